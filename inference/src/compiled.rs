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

/// A graph that is ready to run. A signature has the types of the graph's inputs, in their order.
pub(crate) trait Compiled: std::fmt::Debug + Send + Sync {
    /// Runs the graph on inputs in the graph's order; the outputs come in the graph's order too. If
    /// the recorder wants a whole run, a batch runs at once, so that each node has one time. Other
    /// recorders get no nodes of images that run one by one.
    ///
    /// # Errors
    /// An error of a node, with the node's name; an error of a device.
    fn run(
        &self,
        ctx: &Context,
        inputs: Vec<Slot<'_>>,
        recorder: Option<&mut Recorder>,
    ) -> Result<Vec<Datum>>;

    /// The memory that a run takes: on the device, where there is one; of all memories together,
    /// where there are several devices.
    ///
    /// # Errors
    /// On a device, a node whose inputs cannot fit.
    fn memory_report(&self, ctx: &Context, signature: &Signature) -> Result<MemoryReport>;

    /// Where each node runs.
    ///
    /// # Errors
    /// On a device, a node whose inputs cannot fit; on several devices, that no cut fits.
    fn placement(&self, ctx: &Context, signature: Signature) -> Result<Vec<Placement>>;

    /// The device memory that a run takes, and the bytes that it moves; `None` without a device,
    /// and with several.
    ///
    /// # Errors
    /// A node whose inputs cannot fit.
    fn device_memory(&self, signature: &Signature) -> Result<Option<DeviceMemoryReport>> {
        let _ = signature;
        Ok(None)
    }

    /// Measures for about `budget` which kernels are fastest for each node, and on which side each
    /// node is fastest. The result is empty without a device, and with several.
    ///
    /// # Errors
    /// A node whose inputs cannot fit, or an error of the device.
    fn tune(&self, ctx: &Context, signature: &Signature, budget: Duration) -> Result<TunedModel> {
        let _ = (ctx, signature, budget);
        Ok(TunedModel { nodes: Vec::new(), placement: None })
    }

    /// The device; with several devices, the first.
    fn accelerator(&self) -> Option<&Accelerator> {
        None
    }
}
