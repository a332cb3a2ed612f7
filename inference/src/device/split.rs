//! A graph over several devices: it is cut into parts, and each part runs on one device like a
//! graph of its own, one part after the other.

mod cut;

use super::plan::specialized;
use super::{OnDevice, Placement, Shared};
use crate::compiled::Compiled;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::plan::{MemoryPlan, MemoryReport, PlanCache, Signature};
use crate::profile::Recorder;
use crate::slots::{Slot, Slots};
use cut::Costs;
use lgp_compute::Context;
use lgp_compute::device::Accelerator;
use lgp_memory::Datum;
use std::ops::Range;
use std::sync::Arc;

/// A graph and the devices that it is cut for. The cut depends on the shapes of the inputs.
#[derive(Debug)]
pub(crate) struct Split {
    graph: Graph,
    accelerators: Vec<Accelerator>,
    /// The weights on each device, shared by the cuts for all shapes.
    weights: Vec<Arc<Shared>>,
    plans: PlanCache<SplitPlan>,
}

/// The parts of a graph whose dimensions are known.
#[derive(Debug)]
struct SplitPlan {
    /// The whole graph, for its inputs and outputs.
    graph: Graph,
    parts: Vec<Part>,
}

/// A part and its device.
#[derive(Debug)]
struct Part {
    device: OnDevice,
    /// The inputs and values of other parts that the part reads, and its values that other parts or
    /// the caller read.
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    signature: Signature,
}

impl Split {
    /// Prepares to run a graph that all passes for devices have rewritten.
    pub(crate) fn new(graph: Graph, accelerators: Vec<Accelerator>) -> Self {
        let weights = accelerators.iter().map(|_| Arc::new(Shared::new(&graph))).collect();
        Self { graph, accelerators, weights, plans: PlanCache::default() }
    }

    fn plan(&self, signature: Signature) -> Result<Arc<SplitPlan>> {
        self.plans.get(signature, |signature| self.cut(signature))
    }

    /// Cuts the graph for inputs of these types. The graph is specialised for them first, so a part
    /// has the same nodes and kernels as the whole graph on one device.
    fn cut(&self, signature: &Signature) -> Result<SplitPlan> {
        let graph = specialized(&self.graph, signature)?;
        let costs = Costs::new(&graph, &self.accelerators);
        let budgets: Vec<usize> = self.accelerators.iter().map(Accelerator::memory_bytes).collect();
        let ranges = costs.cut(&budgets);
        let ranges = ranges.ok_or_else(|| {
            let (weights_bytes, values_bytes) = costs.whole();
            Error::NoCut { limits: budgets, weights_bytes, values_bytes }
        })?;
        let devices = ranges.into_iter().zip(self.accelerators.iter().zip(&self.weights));
        let devices = devices.filter(|(nodes, _)| !nodes.is_empty());
        let parts = devices.map(|(nodes, (device, weights))| {
            part(&graph, nodes, (device.clone(), Arc::clone(weights)))
        });
        let parts = parts.collect::<Result<_>>()?;
        Ok(SplitPlan { graph, parts })
    }
}

impl Compiled for Split {
    fn run(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        mut recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        let plan = self.plan(super::signature_of(&inputs))?;
        let mut values = Slots::new(&plan.graph, inputs);
        for part in &plan.parts {
            let given = part.inputs.iter().map(|id| values.get(*id).clone()).collect();
            let made = part.device.run(ctx, given, recorder.as_deref_mut())?;
            for (id, value) in part.outputs.iter().zip(made) {
                values.set(*id, Slot::Own(value));
            }
        }
        plan.graph.outputs.iter().map(|(_, id)| values.datum(*id)).collect()
    }

    fn memory_report(&self, _: &Context, signature: &Signature) -> Result<MemoryReport> {
        Ok(MemoryPlan::new(&self.graph, signature, 1).report(&self.graph))
    }

    fn placement(&self, ctx: &Context, signature: Signature) -> Result<Vec<Placement>> {
        let plan = self.plan(signature)?;
        let places =
            plan.parts.iter().map(|part| part.device.placement(ctx, part.signature.clone()));
        Ok(places.collect::<Result<Vec<_>>>()?.concat())
    }

    fn accelerator(&self) -> Option<&Accelerator> {
        self.accelerators.first()
    }
}

/// The part of a graph with these nodes.
fn part(
    graph: &Graph,
    nodes: Range<usize>,
    (device, weights): (Accelerator, Arc<Shared>),
) -> Result<Part> {
    let count = graph.values.len();
    let (mut made, mut read, mut wanted) =
        (vec![false; count], vec![false; count], vec![false; count]);
    let own = &graph.nodes[nodes.clone()];
    own.iter().flat_map(|node| node.outputs.iter().flatten()).for_each(|id| made[id.0] = true);
    own.iter().flat_map(|node| node.inputs.iter().flatten()).for_each(|id| read[id.0] = true);
    let later = graph.nodes[nodes.end..].iter().flat_map(|node| node.inputs.iter().flatten());
    later.chain(graph.outputs.iter().map(|(_, id)| id)).for_each(|id| wanted[id.0] = true);
    let all = || (0..count).map(ValueId);
    let is_given = |id: &ValueId| read[id.0] && !made[id.0] && graph.constant(*id).is_none();
    let inputs: Vec<ValueId> = all().filter(is_given).collect();
    let outputs: Vec<ValueId> = all().filter(|id| made[id.0] && wanted[id.0]).collect();
    let mut values = graph.values.clone();
    for (value, _) in values.iter_mut().zip(&read).filter(|(_, read)| !**read) {
        // A part keeps no weights of other parts.
        if let Some(info) = &mut value.info {
            info.constant = None;
        }
    }
    let named = |id: &ValueId| (graph.values[id.0].name.clone(), *id);
    let signature = inputs.iter().filter_map(|id| {
        let ty = &graph.info(*id).filter(|info| info.kind.holds_tensors())?.ty;
        Some((ty.dtype, ty.concrete_shape()?))
    });
    Ok(Part {
        signature: signature.collect(),
        device: OnDevice::with_weights(
            Graph {
                values,
                nodes: own.to_vec(),
                inputs: inputs.clone(),
                outputs: outputs.iter().map(named).collect(),
                options: graph.options,
            },
            device,
            weights,
        )?,
        inputs,
        outputs,
    })
}
