//! The parts of a model that stay on a device between runs, and those transferred in each run.

use crate::failure::{Failure, Result};
use crate::output;
use lgp_inference::DeviceMemoryReport;
use lgp_sdk::model::Session;
use lgp_sdk::tensor::Shape;
use serde::Serialize;

/// The plan and its cost.
#[derive(Debug, Serialize)]
pub(super) struct Offload {
    #[serde(flatten)]
    pub(super) memory: DeviceMemoryReport,
    /// The link's measured bandwidth to the device; null where the plan does not fit.
    link_bytes_per_second: Option<f64>,
    /// The least transfer time of a run, part of it while kernels compute.
    transfer_ms: Option<f64>,
}

/// Plans a run with inputs of these shapes.
pub(super) fn plan(session: &Session, shapes: &[(&str, Shape)]) -> Result<Offload> {
    let (Some(memory), Some(accelerator)) = (session.device_memory(shapes)?, session.accelerator())
    else {
        return Err(Failure::internal("the session has no device"));
    };
    let link = match memory.fits {
        true => Some(accelerator.link_bytes_per_second().map_err(Failure::internal)?),
        false => None,
    };
    let link = link.filter(|link| *link > 0.);
    let transfer_ms = link.map(|link| memory.to_device_bytes as f64 / link * 1e3);
    Ok(Offload { memory, link_bytes_per_second: link, transfer_ms })
}

/// For people.
pub(super) fn text(plan: &Offload) -> String {
    let bytes = |n: usize| output::bytes(u64::try_from(n).unwrap_or(u64::MAX));
    let DeviceMemoryReport { device, fits, .. } = &plan.memory;
    let memory = &plan.memory;
    if !fits {
        let needs = memory.needs.iter().map(|n| format!("{} for {}", bytes(n.bytes), n.owner));
        return format!(
            "\n{device} needs {} at least: {}\n",
            bytes(memory.smallest_bytes),
            needs.collect::<Vec<_>>().join(", ")
        );
    }
    let stay = memory.weights.iter().filter(|weight| weight.stays).count();
    let come = memory.weights.len() - stay;
    let [stay, come] = [stay, come].map(|count| output::counted(count, "weight"));
    let mut text = format!(
        "\n{stay} of {} kept on {device}, {come} of {} brought there in each run\n\
         each run moves {} to the device and {} back; the least memory that is enough: {}\n",
        bytes(memory.resident_bytes),
        bytes(memory.streamed_bytes),
        bytes(memory.to_device_bytes),
        bytes(memory.to_host_bytes),
        bytes(memory.smallest_bytes),
    );
    if memory.nodes_on_host > 0 {
        let nodes = output::counted(memory.nodes_on_host, "node");
        text += &format!("the CPU runs {nodes}; inspect --device says which and why\n");
    }
    if memory.disk_bytes > 0 {
        text += &format!(
            "the host has {} of weights in RAM and {} on disk, and each run reads {} of those\n",
            bytes(memory.host_bytes),
            bytes(memory.disk_bytes),
            bytes(memory.from_disk_bytes),
        );
    }
    if let (Some(link), Some(ms)) = (plan.link_bytes_per_second, plan.transfer_ms) {
        text += &format!("the way to the device takes {ms:.2} ms at {:.2} GB/s\n", link / 1e9);
    }
    text
}
