//! Asking a run to end before it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Ends runs: when [`Stop::stop`] is called from any thread, or when a deadline has passed. Clones
/// are the same request. A run looks between two operators, so that it ends after the one that is
/// at work.
///
/// ```
/// use lgp_compute::{Stop, Stopped};
/// let stop = Stop::new();
/// assert!(stop.check().is_ok());
/// stop.stop();
/// assert_eq!(stop.check(), Err(Stopped::Cancelled));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Stop {
    cancelled: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

/// The same request as whoever else holds the flag makes by setting it: a runtime above that has a
/// flag of its own needs no thread to pass it on.
///
/// ```
/// use lgp_compute::Stop;
/// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
/// let flag = Arc::new(AtomicBool::new(false));
/// let stop = Stop::from(Arc::clone(&flag));
/// flag.store(true, Ordering::Relaxed);
/// assert!(stop.check().is_err());
/// ```
impl From<Arc<AtomicBool>> for Stop {
    fn from(cancelled: Arc<AtomicBool>) -> Self {
        Self { cancelled, deadline: None }
    }
}

/// Why a run ended before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// Somebody asked for it.
    #[error("the run was cancelled")]
    Cancelled,
    /// It took too long.
    #[error("the run passed its deadline")]
    Deadline,
}

impl Stop {
    /// No deadline, and not stopped yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops at a moment, if not earlier.
    #[must_use]
    pub fn at(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }

    /// The same request, which is also made once a moment has come.
    ///
    /// ```
    /// use lgp_compute::{Stop, Stopped};
    /// let stop = Stop::new().or_at(std::time::Instant::now());
    /// assert_eq!(stop.check(), Err(Stopped::Deadline));
    /// ```
    #[must_use]
    pub fn or_at(self, deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Ends every run that was given this request.
    pub fn stop(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Stopped::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Stopped::Deadline),
            _ => Ok(()),
        }
    }
}
