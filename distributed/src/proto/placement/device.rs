//! The reports of workers on their devices, within bounds.

use crate::executor::{DeviceStatus, UnusedDevice};

/// Characters of a device's name, and of texts about it, that are kept.
const NAME_CHARS_MAX: usize = 128;
const TEXT_CHARS_MAX: usize = 1024;

/// Most devices of one worker.
const DEVICES_MAX: usize = 64;

/// The devices of a status; a status that names none has one.
pub(in crate::proto) fn devices(mut devices: Vec<DeviceStatus>) -> Vec<DeviceStatus> {
    devices.truncate(DEVICES_MAX);
    if devices.is_empty() {
        devices.push(DeviceStatus::default());
    }
    for device in &mut devices {
        shorten(&mut device.name, NAME_CHARS_MAX);
        shorten(&mut device.driver, TEXT_CHARS_MAX);
        // A value that is not finite cannot be compared.
        device.utilisation = device.utilisation.filter(|share| share.is_finite());
        device.power_w = device.power_w.filter(|watts| watts.is_finite());
        device.temperature_c = device.temperature_c.filter(|degrees| degrees.is_finite());
    }
    devices
}

/// The devices that a worker does not use.
pub(in crate::proto) fn unused(mut devices: Vec<UnusedDevice>) -> Vec<UnusedDevice> {
    devices.truncate(DEVICES_MAX);
    for device in &mut devices {
        shorten(&mut device.id, NAME_CHARS_MAX);
        shorten(&mut device.name, NAME_CHARS_MAX);
        shorten(&mut device.reason, TEXT_CHARS_MAX);
        if let Some(hint) = &mut device.hint {
            shorten(hint, TEXT_CHARS_MAX);
        }
    }
    devices
}

fn shorten(text: &mut String, chars_max: usize) {
    if let Some((end, _)) = text.char_indices().nth(chars_max) {
        text.truncate(end);
    }
}
