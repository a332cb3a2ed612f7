//! The request to end a run before it is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A request to end runs, made by [`Stop::stop`] from any thread or by a deadline. Clones are the
/// same request. A run checks the request between operators, so it ends after the current operator.
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

/// A request that any holder of the flag makes by setting the flag. A runtime with a flag of its
/// own needs no thread to pass the request on.
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
    /// [`Stop::stop`] was called, or the flag was set.
    #[error("the run was cancelled")]
    Cancelled,
    /// The deadline passed.
    #[error("the run passed its deadline")]
    Deadline,
}

impl Stop {
    /// A request without a deadline that is not made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request that is made at a deadline, unless earlier.
    #[must_use]
    pub fn at(deadline: Instant) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }

    /// The same request, which is also made at a deadline.
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

    /// Ends every run that has this request.
    pub fn stop(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Succeeds while the run may continue.
    ///
    /// # Errors
    /// Why the run must end.
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
