//! A device with a library for products, as vendors have: the host multiplies in its place.

use lgp_hal::testing::HostBlas;
use lgp_hal::{Blas, Caps, Device, Gemm, Queue, Result, pass_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A device around another device, with a library for products.
#[derive(Debug)]
pub(crate) struct WithLibrary {
    inner: Arc<dyn Device>,
    caps: Caps,
    library: Arc<Library>,
}

impl WithLibrary {
    pub(crate) fn new(inner: Arc<dyn Device>) -> Self {
        let caps = Caps { gemm: true, ..inner.caps().clone() };
        Self { inner, caps, library: Arc::default() }
    }

    /// How many times the library was called.
    pub(crate) fn multiplied(&self) -> usize {
        self.library.0.load(Ordering::Relaxed)
    }
}

impl Device for WithLibrary {
    pass_on!(inner: id, name, free_bytes, allocate, queue, pinned, compile, load, arithmetic);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn blas(&self) -> Option<Arc<dyn Blas>> {
        Some(Arc::clone(&self.library) as Arc<dyn Blas>)
    }
}

/// A library that counts its calls.
#[derive(Debug, Default)]
struct Library(AtomicUsize);

impl Blas for Library {
    fn gemm(&self, queue: &mut dyn Queue, gemm: &Gemm<'_>) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        HostBlas.gemm(queue, gemm)
    }
}
