//! CUDA events.

use super::driver::is;
use super::library::done;
use super::shared::Shared;
use super::stream::Stream;
use crate::error::{Error, Result};
use crate::event::Event;
use cudarc::driver::sys::{CUevent, CUevent_flags, CUresult};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// An event and its context; dropping this destroys the event.
#[derive(Debug)]
pub(super) struct CudaEvent {
    shared: Arc<Shared>,
    pub(super) handle: CUevent,
    timed: bool,
}

// SAFETY: the event is the driver's handle. Any thread may use it whose current context is the
// event's, and every use binds the context first.
unsafe impl Send for CudaEvent {}
// SAFETY: as above.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Records an event at the present point of a stream; the device's context must be bound.
    pub(super) fn record(shared: Arc<Shared>, stream: &Stream, timed: bool) -> Result<Self> {
        let flags = match timed {
            true => CUevent_flags::CU_EVENT_DEFAULT,
            false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is bound; the event is destroyed once, in `drop`.
        done(unsafe { (shared.driver.cuEventCreate)(&raw mut handle, flags as u32) })
            .map_err(shared.failed("cuEventCreate"))?;
        let event = Self { shared, handle, timed };
        // SAFETY: event and stream are alive and of the bound context.
        done(unsafe { (event.shared.driver.cuEventRecord)(handle, stream.handle) })
            .map_err(event.shared.failed("cuEventRecord"))?;
        Ok(event)
    }

    /// The CUDA event behind `event`, if it is of this opened device.
    pub(super) fn of<'a>(event: &'a dyn Event, shared: &Arc<Shared>) -> Result<&'a Self> {
        event
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "event", device: shared.id })
    }
}

impl Event for CudaEvent {
    fn is_done(&self) -> Result<bool> {
        self.shared.bind()?;
        // SAFETY: the event is alive, and its context bound.
        match done(unsafe { (self.shared.driver.cuEventQuery)(self.handle) }) {
            Ok(()) => Ok(true),
            Err(status) if is(status, CUresult::CUDA_ERROR_NOT_READY) => Ok(false),
            Err(status) => Err(self.shared.failed("cuEventQuery")(status)),
        }
    }

    fn wait(&self) -> Result<()> {
        self.shared.bind()?;
        // SAFETY: the event is alive, and its context bound.
        done(unsafe { (self.shared.driver.cuEventSynchronize)(self.handle) })
            .map_err(self.shared.failed("cuEventSynchronize"))
    }

    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>> {
        let earlier = Self::of(earlier, &self.shared)?;
        if !(self.timed && earlier.timed) {
            return Ok(None);
        }
        earlier.wait()?;
        self.wait()?;
        let mut ms = 0f32;
        let driver = &self.shared.driver;
        // SAFETY: both events are alive and of the bound context; one number is written.
        done(unsafe { (driver.cuEventElapsedTime)(&raw mut ms, earlier.handle, self.handle) })
            .map_err(self.shared.failed("cuEventElapsedTime"))?;
        Ok(Some(Duration::from_secs_f64(f64::from(ms).max(0.0) / 1000.0)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // A context that cannot be bound is lost, together with its events.
        if self.shared.bind().is_ok() {
            // SAFETY: the event was made once and is not used again.
            let status = unsafe { (self.shared.driver.cuEventDestroy_v2)(self.handle) };
            self.shared.dropped("cuEventDestroy", status);
        }
    }
}
