//! The ranges of an arena that are planned for the outputs of the next node.

use lgp_memory::{Arena, Buffer};
use std::sync::{Mutex, PoisonError};

/// A run's arena, and the ranges planned for the outputs of the current node.
#[derive(Debug)]
pub(crate) struct Planned {
    arena: Arena,
    /// Length and offset of each output that has not been allocated yet.
    open: Mutex<Vec<(usize, usize)>>,
}

impl Planned {
    pub(crate) fn new(arena: Arena) -> Self {
        Self { arena, open: Mutex::default() }
    }

    /// Sets the planned length and offset of each output of the next node.
    pub(crate) fn expect(&self, outputs: &[(usize, usize)]) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clear();
        open.extend_from_slice(outputs);
    }

    /// The range planned for an output of `len` bytes; `None` when there is none, or when a buffer
    /// in it is still alive.
    pub(crate) fn take(&self, len: usize) -> Option<Buffer> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.iter().position(|&(bytes, _)| bytes == len)?;
        let (_, offset) = open.swap_remove(at);
        drop(open);
        self.arena.take(offset, len)
    }
}
