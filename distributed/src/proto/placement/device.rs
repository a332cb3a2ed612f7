//! What workers say of their devices, as far as it is believed.

use crate::executor::{DeviceStatus, ExecutorStatus};

/// Devices that are believed of a worker.
const DEVICES_MAX: usize = 64;

/// The devices of a status; one that names none has one.
pub(in crate::proto) fn devices(status: ExecutorStatus) -> Vec<DeviceStatus> {
    let mut devices = status.devices;
    devices.truncate(DEVICES_MAX);
    if devices.is_empty() {
        devices.push(DeviceStatus::default());
    }
    for device in &mut devices {
        // What is no number cannot be compared.
        device.utilisation = device.utilisation.filter(|share| share.is_finite());
        device.power_w = device.power_w.filter(|watts| watts.is_finite());
    }
    devices
}
