//! Triton's GPU metrics, from workers' reports of their devices. A value without a sensor has no series, because a
//! zero would read as an idle card.

use super::page::{Number, Page, label};
use lgp_distributed::{DeviceInfo as WorkerDevice, WorkerInfo, WorkerState};
use prometheus::proto::{LabelPair, MetricFamily};

/// Name, kind, help, and how to read the value, if there is one.
type Figure = (&'static str, Number, &'static str, fn(&WorkerDevice) -> Option<f64>);

const FIGURES: [Figure; 5] = [
    ("nv_gpu_utilization", Number::Gauge, "How busy the device is, 0 to 1", |device| {
        device.utilisation.map(f64::from)
    }),
    (
        "nv_gpu_memory_total_bytes",
        Number::Gauge,
        "Memory of the device that the worker may take, in bytes",
        |device| device.vram_total_bytes.map(|bytes| bytes as f64),
    ),
    (
        "nv_gpu_memory_used_bytes",
        Number::Gauge,
        "Memory of the device that the worker has taken, in bytes",
        |device| device.vram_used_bytes.map(|bytes| bytes as f64),
    ),
    ("nv_gpu_power_usage", Number::Gauge, "Power that the device draws, in watts", |device| {
        device.power_w.map(f64::from)
    }),
    (
        "nv_energy_consumption",
        Number::Counter,
        "Energy of the device since its worker connected, in joules: its power added up over time",
        |device| device.energy_j,
    ),
];

/// The metrics of every device other than CPUs, for workers with current heartbeats.
pub(super) fn families(workers: &[WorkerInfo]) -> Vec<MetricFamily> {
    let heard = [WorkerState::Ready, WorkerState::Draining];
    let devices: Vec<(&WorkerInfo, &WorkerDevice)> = workers
        .iter()
        .filter(|worker| heard.contains(&worker.state))
        .flat_map(|worker| worker.devices.iter().map(move |device| (worker, device)))
        .filter(|(_, device)| device.backend != "cpu" && !device.backend.is_empty())
        .collect();
    let mut page = Page::default();
    for (name, number, help, value) in FIGURES {
        let samples = devices.iter().filter_map(|(worker, device)| {
            let value = value(device).filter(|value| value.is_finite())?;
            Some((labels(worker, device), value))
        });
        let samples: Vec<_> = samples.collect();
        if !samples.is_empty() {
            page.measures((name, number, help), samples);
        }
    }
    page.families()
}

/// Triton identifies cards by UUID. Workers do not report UUIDs; worker and device identify a card as well.
fn labels(worker: &WorkerInfo, device: &WorkerDevice) -> Vec<LabelPair> {
    let (worker, device) = (worker.id.as_str(), device.device.as_str());
    let uuid = format!("{worker}/{device}");
    vec![label("gpu_uuid", &uuid), label("worker", worker), label("device", device)]
}
