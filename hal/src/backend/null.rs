//! The recording device, for tests of the layers above: it stores bytes and records commands. It
//! has no programs and is never listed.

mod device;

pub use device::NullDevice;

use crate::backend::{Backend, BackendKind, Missing, Probe};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use std::sync::Arc;

/// The table entry of the recording device.
pub(crate) struct Null;

impl Backend for Null {
    fn probe(&self) -> Probe {
        let reason = "the recording device is opened by name only".to_owned();
        Probe { missing: Some(Missing::Devices(reason)), ..Probe::default() }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        match ordinal {
            0 => Ok(Arc::new(NullDevice::new(None))),
            _ => Err(Error::NoDevice {
                device: DeviceId::new(BackendKind::Null, ordinal),
                reason: "there is one recording device, null".to_owned(),
            }),
        }
    }
}
