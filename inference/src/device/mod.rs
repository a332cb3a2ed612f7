//! Runs a compiled graph on a device, node by node. What has no kernels there runs on the CPU.

mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use plan::Placement;

use crate::error::Result;
use crate::exec::Slot;
use crate::graph::{Graph, ValueId};
use crate::plan::{MemoryPlan, MemoryReport, PlanCache, Signature};
use crate::profile::Recorder;
use lgp_compute::Context;
use lgp_compute::device::{Accelerator, DeviceTensor};
use lgp_memory::Datum;
use plan::DevicePlan;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Where nodes run that were compiled for the CPU.
pub(crate) fn on_cpu(graph: &Graph) -> Vec<Placement> {
    let device = lgp_hal::DeviceId::CPU.to_string();
    let place = |node: &crate::graph::Node| Placement {
        name: node.name.clone(),
        op: node.op.name().to_owned(),
        device: device.clone(),
        reason: None,
    };
    graph.nodes.iter().map(place).collect()
}

/// Tensors of a graph that stay on a device, by value.
type Resident = Mutex<HashMap<ValueId, DeviceTensor>>;

/// A graph and the device that it runs on.
#[derive(Debug)]
pub(crate) struct OnDevice {
    graph: Graph,
    accelerator: Accelerator,
    plans: PlanCache<DevicePlan>,
    weights: Resident,
}

impl OnDevice {
    /// Prepares to run a graph that all passes but those for the CPU's kernels have rewritten.
    pub(crate) fn new(graph: Graph, accelerator: Accelerator) -> Self {
        Self { graph, accelerator, plans: PlanCache::default(), weights: Mutex::default() }
    }

    /// The device.
    pub(crate) fn accelerator(&self) -> &Accelerator {
        &self.accelerator
    }

    /// Runs the graph on inputs in its order; the outputs come in theirs.
    ///
    /// # Errors
    /// What a node has against its inputs, with the node's name, or what the device refuses.
    pub(crate) fn run(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>> {
        let known = |input: &Slot<'_>| match input {
            Slot::View(view) => Some((view.dtype(), view.shape().clone())),
            Slot::Own(Datum::Tensor(tensor)) => Some((tensor.dtype(), tensor.shape().clone())),
            _ => None,
        };
        // What is no tensor has no shape: such a model has nothing that a device could plan.
        let signature: Signature = inputs.iter().filter_map(known).collect();
        let plan = self.plan(ctx, signature)?;
        run::run(self, &plan, ctx, inputs, recorder)
    }

    /// What a run with inputs of these types takes of memory: what the CPU would, until devices
    /// have arenas.
    pub(crate) fn memory_report(&self, signature: &Signature) -> MemoryReport {
        MemoryPlan::new(&self.graph, signature, 1).report(&self.graph)
    }

    /// Where each node runs, for inputs of these types.
    ///
    /// # Errors
    /// A node whose inputs cannot fit.
    pub(crate) fn placement(&self, ctx: &Context, signature: Signature) -> Result<Vec<Placement>> {
        Ok(self.plan(ctx, signature)?.placement(self.accelerator.id()))
    }

    fn plan(&self, ctx: &Context, signature: Signature) -> Result<Arc<DevicePlan>> {
        self.plans.get(signature, |signature| {
            DevicePlan::new(&self.graph, signature, ctx, &self.accelerator)
        })
    }

    /// A constant on the device: a weight of the model, which all plans share, or one of a plan.
    fn constant(&self, plan: &DevicePlan, id: ValueId) -> Result<Option<DeviceTensor>> {
        let Some(tensor) = plan.graph.constant(id) else { return Ok(None) };
        let is_weight = id.0 < self.graph.values.len() && self.graph.constant(id).is_some();
        let resident = if is_weight { &self.weights } else { &plan.constants };
        let mut resident = resident.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = resident.get(&id) {
            return Ok(Some(there.clone()));
        }
        let there = self.accelerator.upload(&tensor.view())?;
        resident.insert(id, there.clone());
        Ok(Some(there))
    }
}
