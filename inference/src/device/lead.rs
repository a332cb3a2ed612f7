//! How far a run that may be stopped gets ahead of its device. Queued kernels cannot be taken back,
//! and a run that is asked to end waits for all of them.

use crate::error::Result;
use lgp_compute::device::{Accelerator, Mark};
use std::time::{Duration, Instant};

/// Nodes of a group at first, and at most: enough that waiting for a group costs little beside it.
const NODES: usize = 4;
const NODES_MAX: usize = 32;
/// A group grows if the device computes it faster than `SHORT`, and shrinks if slower than `LONG`.
const SHORT: Duration = Duration::from_millis(5);
const LONG: Duration = Duration::from_millis(40);

/// Keeps two groups of nodes queued: the device computes one, and the other keeps it busy if the
/// host is late.
#[derive(Debug)]
pub(super) struct Lead {
    group: usize,
    /// Nodes that were queued since the last mark.
    queued: usize,
    /// The end of the last group.
    mark: Option<Mark>,
    /// When the host learned that the group before it was done.
    done: Instant,
}

impl Lead {
    pub(super) fn new() -> Self {
        Self { group: NODES, queued: 0, mark: None, done: Instant::now() }
    }

    /// Counts a queued node. When a group is full, waits for the group before it.
    ///
    /// # Errors
    /// An error of the queued work.
    pub(super) fn queued(&mut self, accelerator: &Accelerator) -> Result<()> {
        self.queued += 1;
        if self.queued < self.group {
            return Ok(());
        }
        self.queued = 0;
        let Some(before) = self.mark.replace(accelerator.mark()?) else { return Ok(()) };
        before.wait()?;
        let now = Instant::now();
        match now.duration_since(self.done) {
            took if took < SHORT => self.group = NODES_MAX.min(self.group * 2),
            took if took > LONG => self.group = 1.max(self.group / 2),
            _ => {}
        }
        self.done = now;
        Ok(())
    }
}
