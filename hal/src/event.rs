//! A point in a queue: to wait for, and to measure the time between two.

use crate::error::Result;
use std::any::Any;
use std::fmt::Debug;
use std::time::Duration;

/// The point in a queue at which [`crate::Queue::record`] was called. It may outlive the queue.
pub trait Event: Debug + Send + Sync {
    /// Whether everything queued before the event is done; never waits.
    ///
    /// # Errors
    /// A failure of an earlier command.
    fn is_done(&self) -> Result<bool>;

    /// Waits until everything queued before the event is done.
    ///
    /// # Errors
    /// A failure of an earlier command.
    fn wait(&self) -> Result<()>;

    /// Waits for both events and returns the device's time from `earlier` to this one; 0 if this
    /// one is the earlier. `None` if the device records no time, or if either event is not of a
    /// queue of [`crate::Device::timed_queue`].
    ///
    /// # Errors
    /// [`crate::Error::Foreign`] for an event of another opened device; a failure of an earlier
    /// command.
    fn since(&self, earlier: &dyn Event) -> Result<Option<Duration>>;

    /// The backend's own type, for a downcast.
    fn as_any(&self) -> &dyn Any;
}
