//! OpenCL events.

use super::shared::Shared;
use crate::error::{Error, Result};
use crate::event::Event;
use opencl3::error_codes::{CL_PROFILING_INFO_NOT_AVAILABLE, ClError};
use opencl3::event::CL_COMPLETE;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// An event and its context.
#[derive(Debug)]
pub(super) struct ClEvent {
    shared: Arc<Shared>,
    pub(super) event: opencl3::event::Event,
}

impl ClEvent {
    /// The event of a command.
    pub(super) fn new(shared: Arc<Shared>, event: opencl3::event::Event) -> Self {
        Self { shared, event }
    }

    /// The OpenCL event behind `event`, if it is of this opened device.
    pub(super) fn of<'a>(event: &'a dyn Event, shared: &Arc<Shared>) -> Result<&'a Self> {
        event
            .as_any()
            .downcast_ref::<Self>()
            .filter(|own| Arc::ptr_eq(&own.shared, shared))
            .ok_or(Error::Foreign { what: "event", device: shared.id })
    }

    /// The end of the command on the device's clock, in nanoseconds; `None` if the queue records no
    /// times.
    fn end_ns(&self) -> Result<Option<u64>> {
        self.wait()?;
        match self.event.profiling_command_end() {
            Ok(end) => Ok(Some(end)),
            Err(ClError(CL_PROFILING_INFO_NOT_AVAILABLE)) => Ok(None),
            Err(error) => Err(self.shared.failed("clGetEventProfilingInfo")(error)),
        }
    }
}

impl Event for ClEvent {
    fn is_done(&self) -> Result<bool> {
        self.shared.life.check()?;
        let failed = self.shared.waited("clGetEventInfo");
        match self.event.command_execution_status().map_err(&failed)?.0 {
            CL_COMPLETE => Ok(true),
            // The state of a failed command is its error.
            error if error < 0 => Err(failed(ClError(error))),
            _ => Ok(false),
        }
    }

    fn wait(&self) -> Result<()> {
        self.shared.life.check()?;
        let waited = self.event.wait().map_err(self.shared.waited("clWaitForEvents"));
        // The command's state names its error; the failed wait does not.
        waited.or_else(|error| self.is_done().and(Err(error)))
    }

    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>> {
        let start = Self::of(earlier, &self.shared)?.end_ns()?;
        let end = self.end_ns()?;
        Ok(start.zip(end).map(|(start, end)| Duration::from_nanos(end.saturating_sub(start))))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
