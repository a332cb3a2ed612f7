//! Runs a compiled graph on a device, node by node. Nodes without kernels there run on the CPU.

mod layout;
mod lead;
mod needs;
mod plan;
mod recipes;
mod report;
mod run;
mod split;
mod task;
#[cfg(test)]
mod tests;
mod tune;

pub use plan::Placement;
pub use recipes::{NodeRecipes, recipes};
pub use report::{DeviceMemoryReport, MemoryNeed, WeightBytes};
pub(crate) use split::Split;
pub use tune::{MeasuredPlacement, TunedModel, TunedNode};

use crate::compiled::Compiled;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::plan::{MemoryReport, PlanCache, Signature};
use crate::profile::Recorder;
use crate::slots::Slot;
use layout::{Layout, TooSmall};
use lgp_compute::Context;
use lgp_compute::device::{Accelerator, HostLimit, Kept};
use lgp_memory::{DType, Datum};
use plan::{DevicePlan, Drafted};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The placement of a graph that was compiled for the CPU.
pub(crate) fn on_cpu(graph: &Graph) -> Vec<Placement> {
    let device = lgp_hal::DeviceId::CPU.to_string();
    let place = |node: &crate::graph::Node| Placement {
        name: node.name.clone(),
        op: node.op.name().to_owned(),
        device: device.clone(),
        reason: None,
        measured: false,
    };
    graph.nodes.iter().map(place).collect()
}

/// The types of a run's inputs. Inputs that are no tensors have no shape and are left out: a model
/// that takes them has nothing that a device could plan.
fn signature_of(inputs: &[Slot<'_>]) -> Signature {
    inputs.iter().filter_map(Slot::signature).collect()
}

/// Tensors of a graph that stay on a device while they fit, by value.
type Weights = Mutex<HashMap<ValueId, Arc<Kept>>>;

/// The data that all plans for a device share: the constants of the unspecialised graph.
#[derive(Debug, Default)]
struct Shared {
    values: HashSet<ValueId>,
    kept: Weights,
}

impl Shared {
    fn new(graph: &Graph) -> Self {
        let all = (0..graph.values.len()).map(ValueId);
        let values = all.filter(|id| graph.constant(*id).is_some()).collect();
        Self { values, kept: Weights::default() }
    }
}

/// A graph and the device that it runs on.
#[derive(Debug)]
pub(crate) struct OnDevice {
    graph: Graph,
    accelerator: Accelerator,
    plans: PlanCache<DevicePlan>,
    weights: Arc<Shared>,
    /// Weights on the host's disk.
    on_disk: HashSet<ValueId>,
}

impl OnDevice {
    /// Prepares a graph for its runs. All passes but those for the CPU's kernels have rewritten it.
    ///
    /// # Errors
    /// Weights that cannot be written to disk.
    pub(crate) fn new(graph: Graph, accelerator: Accelerator) -> Result<Self> {
        let weights = Arc::new(Shared::new(&graph));
        Self::with_weights(graph, accelerator, weights)
    }

    /// As [`OnDevice::new`], with weights that other graphs on the device may read too.
    ///
    /// # Errors
    /// As [`OnDevice::new`].
    fn with_weights(
        mut graph: Graph,
        accelerator: Accelerator,
        weights: Arc<Shared>,
    ) -> Result<Self> {
        let on_disk = match accelerator.host_limit() {
            Some(limit) => spill(&mut graph, limit)?,
            None => HashSet::new(),
        };
        Ok(Self { graph, accelerator, plans: PlanCache::default(), weights, on_disk })
    }

    fn layout(&self, drafted: &Drafted) -> Result<Layout, Box<TooSmall>> {
        let limits = self.accelerator.pool().limits();
        Layout::new(&drafted.needs, limits, self.accelerator.buffer_bytes_max())
    }

    fn plan(&self, ctx: &Context, signature: Signature) -> Result<Arc<DevicePlan>> {
        self.plans.get(signature, |signature| {
            self.planned(Drafted::new(&self.graph, signature, &self.accelerator)?, ctx)
        })
    }

    fn planned(&self, drafted: Drafted, ctx: &Context) -> Result<DevicePlan> {
        let layout = self.layout(&drafted).map_err(|small| Error::DeviceTooSmall {
            device: self.accelerator.id(),
            limit_bytes: self.accelerator.pool().limits().budget_bytes,
            smallest_bytes: small.smallest_bytes,
            needs: small.needs,
        })?;
        DevicePlan::new(drafted, layout, ctx, &self.accelerator)
    }

    /// A constant that stays on the device: a weight of the model, which all plans share, or one
    /// of a plan.
    fn kept(&self, plan: &DevicePlan, id: ValueId) -> Arc<Kept> {
        let is_shared = self.weights.values.contains(&id);
        let kept = if is_shared { &self.weights.kept } else { &plan.constants };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(kept.entry(id).or_insert_with(|| self.accelerator.keep()))
    }
}

impl Compiled for OnDevice {
    fn run(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        let plan = self.plan(ctx, signature_of(&inputs))?;
        run::run(self, &plan, ctx, inputs, recorder)
    }

    fn memory_report(&self, _: &Context, signature: &Signature) -> Result<MemoryReport> {
        let drafted = Drafted::new(&self.graph, signature, &self.accelerator)?;
        let layout = self.layout(&drafted).unwrap_or_else(|small| small.layout);
        Ok(report::memory(&drafted, &layout))
    }

    fn placement(&self, ctx: &Context, signature: Signature) -> Result<Vec<Placement>> {
        Ok(self.plan(ctx, signature)?.placement(self.accelerator.id()))
    }

    fn device_memory(&self, signature: &Signature) -> Result<Option<DeviceMemoryReport>> {
        let drafted = Drafted::new(&self.graph, signature, &self.accelerator)?;
        let layout = self.layout(&drafted);
        Ok(Some(DeviceMemoryReport::new(&drafted, layout, &self.accelerator, &self.on_disk)))
    }

    fn tune(&self, ctx: &Context, signature: &Signature, budget: Duration) -> Result<TunedModel> {
        self.measure(ctx, signature, budget)
    }

    fn accelerator(&self) -> Option<&Accelerator> {
        Some(&self.accelerator)
    }
}

/// Moves the largest constants to disk until the others fit the limit.
fn spill(graph: &mut Graph, limit: &HostLimit) -> Result<HashSet<ValueId>> {
    let ids = (0..graph.values.len()).map(ValueId);
    let mut constants: Vec<(usize, ValueId)> = ids
        .filter_map(|id| Some((graph.constant(id)?, id)))
        .filter(|(tensor, _)| tensor.dtype() != DType::Str)
        .map(|(tensor, id)| (tensor.as_bytes().len(), id))
        .collect();
    constants.sort_unstable_by_key(|(bytes, id)| (std::cmp::Reverse(*bytes), *id));
    let mut left: usize = constants.iter().map(|(bytes, _)| bytes).sum();
    let mut on_disk = HashSet::new();
    for (bytes, id) in constants {
        if left <= limit.bytes {
            break;
        }
        if let Some(tensor) = graph.constant(id) {
            let tensor = limit.spill.put(tensor)?;
            graph.set_constant(id, tensor);
        }
        on_disk.insert(id);
        left -= bytes;
    }
    Ok(on_disk)
}
