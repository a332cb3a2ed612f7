//! The commands that devices for tests executed.

use std::sync::{Arc, Mutex, PoisonError};

/// One command that the recording device executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// A buffer of this many bytes was allocated.
    Allocate(usize),
    /// This many bytes came from the host.
    Write(usize),
    /// This many bytes went to the host.
    Read(usize),
    /// This many bytes moved on the device.
    Copy(usize),
    /// A queue was submitted.
    Submit,
    /// A queue was finished.
    Finish,
}

/// The commands of one device, in order of execution.
#[derive(Debug, Clone, Default)]
pub(super) struct Record(Arc<Mutex<Vec<Command>>>);

impl Record {
    /// Adds a command.
    pub(super) fn note(&self, command: Command) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(command);
    }

    /// All of them.
    pub(super) fn commands(&self) -> Vec<Command> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
