//! The host's processor: its SIMD features, cores and memory. Its memory is the host's. It has no
//! programs, because its kernels are Rust code.

mod device;
pub(crate) mod facts;
mod simd;

pub(crate) use device::CpuDevice;
pub(crate) use facts::CpuFacts;
pub use facts::host_free_bytes;

use crate::backend::{Backend, BackendKind, Found, Probe};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::DeviceId;
use std::sync::Arc;

/// The table entry of the processor.
pub(crate) struct Cpu;

impl Backend for Cpu {
    fn probe(&self) -> Probe {
        let facts = CpuFacts::read();
        let found = Found { caps: facts.caps(), name: facts.name };
        Probe { found: vec![found], ..Probe::default() }
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        match ordinal {
            0 => Ok(Arc::new(CpuDevice::new())),
            _ => Err(Error::NoDevice {
                device: DeviceId::new(BackendKind::Cpu, ordinal),
                reason: "all processors of the machine are the one device cpu".to_owned(),
            }),
        }
    }
}
