//! An executor's report of itself and its devices.

use crate::task::ModelRef;
use serde::{Deserialize, Serialize};

/// The executor's report of its state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ExecutorStatus {
    /// Its devices. An executor that lists none counts as one device without a name.
    pub devices: Vec<DeviceStatus>,
    /// Devices of its machine on which it runs nothing.
    pub unused: Vec<UnusedDevice>,
}

impl ExecutorStatus {
    /// The state of an executor with one device.
    #[must_use]
    pub fn of(device: DeviceStatus) -> Self {
        Self { devices: vec![device], unused: Vec::new() }
    }
}

/// A device of a worker's machine on which the worker runs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UnusedDevice {
    /// The device, for example `opencl:0`, or `pci:0000:01:00.0` for a card that no driver opens.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Why it is not used.
    pub reason: String,
    /// The line to type or to set that would make it usable, where there is one.
    pub hint: Option<String>,
}

/// The executor's report of one of its devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// The device, for example `cpu:0`.
    pub device: String,
    /// Its name for people, where it has one.
    pub name: String,
    /// Its driver and the driver's version, where they are known.
    pub driver: String,
    /// Its backend, for example `cpu`.
    pub backend: String,
    /// The family of its chip, for example `Polaris`, where it is known.
    pub family: String,
    /// Models that are loaded.
    pub models: Vec<ModelRef>,
    /// Memory that the device has taken, where that is known.
    pub vram_used_bytes: Option<u64>,
    /// Memory that it may take.
    pub vram_total_bytes: Option<u64>,
    /// How busy it is, 0 to 1, where that can be read.
    pub utilisation: Option<f32>,
    /// The power that it draws in watts, where that can be read.
    pub power_w: Option<f32>,
    /// The temperature of its chip in degrees Celsius, where that can be read.
    pub temperature_c: Option<f32>,
}
