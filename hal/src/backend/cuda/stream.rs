//! A stream of the driver's: commands that run in order.

use super::library::done;
use super::shared::Shared;
use crate::error::Result;
use cudarc::driver::sys::{CUstream, CUstream_flags};
use std::sync::Arc;

/// A stream and its context; dropping this destroys the stream.
#[derive(Debug)]
pub(super) struct Stream {
    shared: Arc<Shared>,
    pub(super) handle: CUstream,
}

// SAFETY: the stream is the driver's handle. Any thread may use it whose current context is the
// stream's, and every use binds the context first.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Makes a stream that does not wait for the context's default stream.
    pub(super) fn new(shared: Arc<Shared>) -> Result<Self> {
        shared.bind()?;
        let mut handle = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is bound; the stream is destroyed once, in `drop`.
        done(unsafe { (shared.driver.cuStreamCreate)(&raw mut handle, flags) })
            .map_err(shared.failed("cuStreamCreate"))?;
        Ok(Self { shared, handle })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A context that cannot be bound is lost, together with its streams.
        if self.shared.bind().is_ok() {
            // SAFETY: the stream was made once and is not used again; its commands still run.
            let status = unsafe { (self.shared.driver.cuStreamDestroy_v2)(self.handle) };
            self.shared.dropped("cuStreamDestroy", status);
        }
    }
}
