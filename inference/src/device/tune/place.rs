//! Measures whether each node is cheaper on the device or on the host, transfers included.

use super::super::plan::{DevicePlan, Drafted};
use super::super::{OnDevice, run};
use crate::division::{self, NodeCost, ValueCost};
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::plan::Signature;
use crate::profile::Recorder;
use crate::slots::Slot;
use lgp_compute::Context;
use lgp_compute::device::Accelerator;
use lgp_memory::{DType, Tensor};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The factor by which a division must beat the device alone: a smaller gain is noise.
const GAIN_MIN: f64 = 1.03;
/// Runs of each kind after a first one that warms up: the least, whatever the budget, and the most.
const ROUNDS: std::ops::Range<u32> = 3..20;
/// Bytes of the two transfers that give a link's latency and rate.
const PROBES: [usize; 2] = [4 << 10, 1 << 20];

/// The result of measuring where nodes are cheapest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredPlacement {
    /// Milliseconds of a run with every node on the device that has kernels there.
    pub device_ms: f64,
    /// Milliseconds with the nodes of `on_host` on the host; equal to `device_ms` if there are
    /// none.
    pub divided_ms: f64,
    /// The names of the nodes that the device could compute and that are cheaper on the host. From
    /// now on they run there.
    pub on_host: Vec<String>,
}

/// The nanoseconds that a transfer takes: a fixed part, and a part for each byte.
#[derive(Debug, Clone, Copy)]
struct Link {
    fixed: f64,
    each: f64,
}

impl Link {
    fn of(times: [Duration; 2]) -> Self {
        let [small, large] = times.map(|time| time.as_secs_f64() * 1e9);
        let each = (large - small).max(0.) / (PROBES[1] - PROBES[0]) as f64;
        Self { fixed: (small - each * PROBES[0] as f64).max(0.), each }
    }

    fn nanos(self, bytes: usize) -> u64 {
        nanos(Duration::from_secs_f64((self.fixed + self.each * bytes as f64) / 1e9))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl OnDevice {
    /// Runs the graph in both places for about `budget` and divides it for the shortest run. Keeps
    /// the division for inputs of these types if it is measured to be faster.
    ///
    /// # Errors
    /// A node whose inputs cannot fit, an error of a node, or an error of the device.
    pub(super) fn place(
        &self,
        ctx: &Context,
        signature: &Signature,
        budget: Duration,
    ) -> Result<MeasuredPlacement> {
        let end = Instant::now() + budget;
        let inputs = inputs(signature)?;
        let plan = |on_host: &dyn Fn(usize) -> bool| -> Result<DevicePlan> {
            let drafted = Drafted::undivided(&self.graph, signature, &self.accelerator)?;
            self.planned(drafted.moved_to_host(on_host), ctx)
        };
        let (device, host) = (plan(&|_| false)?, plan(&|_| true)?);
        let share = budget / 4;
        let costs = Costs {
            device: self.times(&device, ctx, &inputs, Instant::now() + share)?,
            host: self.times(&host, ctx, &inputs, Instant::now() + share)?,
            links: links(&self.accelerator)?,
        };
        let moved = costs.divide(&device);
        let names = device.graph.nodes.iter().zip(&moved).filter(|(_, moved)| **moved);
        let names: Vec<String> = names.map(|(node, _)| node.name.clone()).collect();
        let divided = plan(&|node| moved[node])?;
        let [device_ms, divided_ms] = self.race([&device, &divided], ctx, &inputs, end)?;
        let pays = !names.is_empty() && device_ms >= GAIN_MIN * divided_ms;
        let drafted = Drafted::undivided(&self.graph, signature, &self.accelerator)?;
        drafted.keep_moved(&self.accelerator, if pays { &moved } else { &[] })?;
        Ok(if pays {
            MeasuredPlacement { device_ms, divided_ms, on_host: names }
        } else {
            MeasuredPlacement { device_ms, divided_ms: device_ms, on_host: Vec::new() }
        })
    }

    /// The shortest time of each node.
    fn times(
        &self,
        plan: &DevicePlan,
        ctx: &Context,
        inputs: &[Tensor],
        end: Instant,
    ) -> Result<Vec<Duration>> {
        let mut best = vec![Duration::MAX; plan.graph.nodes.len()];
        for round in 0..ROUNDS.end {
            if round > ROUNDS.start && Instant::now() >= end {
                break;
            }
            let mut recorder = Recorder::new(true);
            run::run(self, plan, ctx, slots(inputs), Some(&mut recorder))?;
            if round > 0 {
                let nodes = recorder.finish().nodes;
                best.iter_mut().zip(nodes).for_each(|(best, it)| *best = it.duration.min(*best));
            }
        }
        Ok(best)
    }

    /// The shortest milliseconds of a run of each plan; the plans run in turn.
    fn race(
        &self,
        plans: [&DevicePlan; 2],
        ctx: &Context,
        inputs: &[Tensor],
        end: Instant,
    ) -> Result<[f64; 2]> {
        let mut best = [f64::INFINITY; 2];
        for round in 0..ROUNDS.end {
            if round > ROUNDS.start && Instant::now() >= end {
                break;
            }
            for (best, plan) in best.iter_mut().zip(plans) {
                let start = Instant::now();
                run::run(self, plan, ctx, slots(inputs), None)?;
                if round > 0 {
                    *best = best.min(start.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
        Ok(best)
    }
}

/// The measured times of nodes and link.
struct Costs {
    device: Vec<Duration>,
    host: Vec<Duration>,
    /// To the device, and back.
    links: [Link; 2],
}

impl Costs {
    /// Which nodes of the device are cheaper on the host.
    fn divide(&self, plan: &DevicePlan) -> Vec<bool> {
        let graph = &plan.graph;
        let times = self.device.iter().zip(&self.host).enumerate();
        let nodes: Vec<NodeCost> = times
            .map(|(i, (device, host))| NodeCost {
                moved: plan.is_on_device(i).then(|| nanos(*device)),
                stays: nanos(*host),
            })
            .collect();
        let chosen = division::moved(&nodes, &self.values(graph)).into_iter();
        chosen.enumerate().map(|(i, to_device)| !to_device && plan.is_on_device(i)).collect()
    }

    fn values(&self, graph: &Graph) -> Vec<ValueCost> {
        let producers = graph.producers();
        let readers = graph.readers();
        let moving = |id: &ValueId| graph.constant(*id).is_none();
        let all = (0..graph.values.len()).map(ValueId).filter(moving);
        let value = |id: ValueId| {
            let ty = graph.info(id).map(|info| &info.ty);
            let bytes = ty.and_then(|ty| ty.concrete_shape()?.byte_len(ty.dtype).ok());
            let [out, back] = self.links.map(|link| link.nanos(bytes.unwrap_or(0)));
            let (from, to) = (producers[id.0], readers.nodes(id).to_vec());
            ValueCost { from, to, stays: readers.is_output(id), out, back }
        };
        all.map(value).collect()
    }
}

/// The speed of the link to the device, and of the link back.
fn links(accelerator: &Accelerator) -> Result<[Link; 2]> {
    let mut times = [[Duration::MAX; 2]; 2];
    for (i, bytes) in PROBES.into_iter().enumerate() {
        let host = Tensor::zeros(DType::U8, [bytes])?;
        let there = accelerator.upload(&host.view())?;
        for _ in 0..ROUNDS.end {
            let start = Instant::now();
            accelerator.write(&there, host.as_bytes())?;
            accelerator.finish()?;
            let written = Instant::now();
            accelerator.download(&there)?;
            times[0][i] = times[0][i].min(written - start);
            times[1][i] = times[1][i].min(written.elapsed());
        }
    }
    Ok(times.map(Link::of))
}

/// Zeros as inputs of these types: zero is a valid index everywhere.
fn inputs(signature: &Signature) -> Result<Vec<Tensor>> {
    let zeros = signature.iter().map(|(dtype, shape)| Tensor::zeros(*dtype, shape.clone()));
    Ok(zeros.collect::<Result<_, _>>()?)
}

fn slots(inputs: &[Tensor]) -> Vec<Slot<'_>> {
    inputs.iter().map(|input| Slot::View(input.view())).collect()
}
