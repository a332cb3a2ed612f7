//! A device with a library for products, as the vendors have one: the host multiplies.

use lgp_hal::{Caps, Device, Gemm, Queue, Result, pass_on};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Another device, whose queues multiply.
#[derive(Debug)]
pub(crate) struct WithLibrary {
    inner: Arc<dyn Device>,
    caps: Caps,
    multiplied: Arc<AtomicUsize>,
}

impl WithLibrary {
    pub(crate) fn new(inner: Arc<dyn Device>) -> Self {
        let caps = Caps { gemm: true, ..inner.caps().clone() };
        Self { inner, caps, multiplied: Arc::default() }
    }

    /// How many times the library was called.
    pub(crate) fn multiplied(&self) -> usize {
        self.multiplied.load(Ordering::Relaxed)
    }
}

impl Device for WithLibrary {
    pass_on!(inner: id, name, free_bytes, allocate, pinned, compile, load, arithmetic);

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn queue(&self) -> Result<Box<dyn Queue>> {
        let multiplied = Arc::clone(&self.multiplied);
        Ok(Box::new(Multiplying { inner: self.inner.queue()?, multiplied }))
    }
}

struct Multiplying {
    inner: Box<dyn Queue>,
    multiplied: Arc<AtomicUsize>,
}

impl Queue for Multiplying {
    pass_on!(
        inner: device, write, read, write_async, read_async, copy, launch, record, wait_for, submit,
        finish
    );

    fn gemm(&mut self, gemm: &Gemm<'_>) -> Result<()> {
        self.multiplied.fetch_add(1, Ordering::Relaxed);
        gemm.on_host(&mut *self.inner)
    }
}
