//! The Rust part of the Python package `legacy_gpu`: devices, and sessions that run models. The rest of the package
//! is Python, in `python/legacy_gpu`.

#![forbid(unsafe_code)]

mod error;
mod interrupt;
mod session;
mod values;

use lgp_sdk::device::{DeviceInfo, ProbeOptions};
use pyo3::prelude::*;

/// A device for Python: id, name, backend, bytes of memory, whether it is usable, why not, and what to do about
/// that.
type Device = (String, String, String, Option<u64>, bool, Option<String>, Option<String>);

/// Probes devices without the interpreter's lock.
#[pyfunction]
fn devices(py: Python<'_>) -> Vec<Device> {
    let found = py.detach(|| lgp_sdk::device::probe(&ProbeOptions::default()));
    let device = |info: DeviceInfo| {
        let DeviceInfo { id, name, backend, memory_bytes, usable, reason, hint, .. } = info;
        (id, name, backend, memory_bytes, usable, reason, hint)
    };
    found.into_iter().map(device).collect()
}

/// The extension module `legacy_gpu._native`.
#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use super::devices;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::values::Array;
}
