//! What a session runs: a graph compiled for the CPU, for a device, or for several devices.

use crate::device::{DeviceMemoryReport, Placement, TunedModel};
use crate::error::Result;
use crate::plan::{MemoryReport, Signature};
use crate::profile::Recorder;
use crate::slots::Slot;
use lgp_compute::Context;
use lgp_compute::device::Accelerator;
use lgp_memory::Datum;
use std::time::Duration;

/// A graph that is ready to run. Signatures are the types of its inputs, in its order.
pub(crate) trait Compiled: std::fmt::Debug + Send + Sync {
    /// Runs the graph on inputs in its order; the outputs come in theirs. A recorder that wants it
    /// has a batch run as a whole, so that each node has one time. Other recorders are told no
    /// nodes of images that run one by one.
    ///
    /// # Errors
    /// What a node has against its inputs, with the node's name; what a device refuses.
    fn run(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>>;

    /// What a run takes of memory: of its device's, where it has one; of all together, where it
    /// has several.
    ///
    /// # Errors
    /// On a device, a node whose inputs cannot fit.
    fn memory_report(&self, ctx: &Context, signature: &Signature) -> Result<MemoryReport>;

    /// Where each node runs.
    ///
    /// # Errors
    /// On a device, a node whose inputs cannot fit; on several, that no cut fits.
    fn placement(&self, ctx: &Context, signature: Signature) -> Result<Vec<Placement>>;

    /// What a run takes of its device's memory, and what it moves; `None` without a device, and
    /// with several.
    ///
    /// # Errors
    /// A node whose inputs cannot fit.
    fn device_memory(&self, signature: &Signature) -> Result<Option<DeviceMemoryReport>> {
        let _ = signature;
        Ok(None)
    }

    /// Measures for about `budget` which kernels each node is fastest with, and where. Nothing
    /// without a device, and with several.
    ///
    /// # Errors
    /// A node whose inputs cannot fit, or what the device refuses.
    fn tune(&self, ctx: &Context, signature: &Signature, budget: Duration) -> Result<TunedModel> {
        let _ = (ctx, signature, budget);
        Ok(TunedModel { nodes: Vec::new(), placement: None })
    }

    /// The device; of several, the first.
    fn accelerator(&self) -> Option<&Accelerator> {
        None
    }
}
