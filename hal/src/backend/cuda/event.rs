//! CUDA events.

use super::shared::Shared;
use crate::error::{Error, Result};
use crate::event::Event;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent as Handle, CudaStream};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// An event and its context.
#[derive(Debug)]
pub(super) struct CudaEvent {
    shared: Arc<Shared>,
    pub(super) handle: Handle,
    timed: bool,
}

impl CudaEvent {
    /// Records an event at the present point of a stream.
    pub(super) fn record(shared: Arc<Shared>, stream: &CudaStream, timed: bool) -> Result<Self> {
        let flags = match timed {
            true => CUevent_flags::CU_EVENT_DEFAULT,
            false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let handle =
            shared.context.new_event(Some(flags)).map_err(shared.failed("cuEventCreate"))?;
        handle.record(stream).map_err(shared.failed("cuEventRecord"))?;
        Ok(Self { shared, handle, timed })
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
        self.handle.try_is_complete().map_err(self.shared.failed("cuEventQuery"))
    }

    fn wait(&self) -> Result<()> {
        self.shared.bind()?;
        self.handle.synchronize().map_err(self.shared.failed("cuEventSynchronize"))
    }

    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>> {
        let earlier = Self::of(earlier, &self.shared)?;
        if !(self.timed && earlier.timed) {
            return Ok(None);
        }
        let elapsed = earlier.handle.elapsed_ms(&self.handle);
        let ms = elapsed.map_err(self.shared.failed("cuEventElapsedTime"))?;
        Ok(Some(Duration::from_secs_f64(f64::from(ms).max(0.0) / 1000.0)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
