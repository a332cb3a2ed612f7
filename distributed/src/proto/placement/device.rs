//! What workers say of their devices, as far as it is believed.

use crate::executor::{DeviceStatus, UnusedDevice};

/// Devices that are believed of a worker.
const DEVICES_MAX: usize = 64;

/// The devices of a status; one that names none has one.
pub(in crate::proto) fn devices(mut devices: Vec<DeviceStatus>) -> Vec<DeviceStatus> {
    devices.truncate(DEVICES_MAX);
    if devices.is_empty() {
        devices.push(DeviceStatus::default());
    }
    for device in &mut devices {
        // What is no number cannot be compared.
        device.utilisation = device.utilisation.filter(|share| share.is_finite());
        device.power_w = device.power_w.filter(|watts| watts.is_finite());
        device.temperature_c = device.temperature_c.filter(|degrees| degrees.is_finite());
    }
    devices
}

/// The devices that a worker does not use.
pub(in crate::proto) fn unused(mut devices: Vec<UnusedDevice>) -> Vec<UnusedDevice> {
    devices.truncate(DEVICES_MAX);
    devices
}
