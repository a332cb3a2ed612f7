//! What a coordinator holds for callers and workers, to check that nothing stays behind.

use super::CoreHandle;

/// How much of each kind is held.
#[derive(Debug)]
pub struct Residue {
    pub waiting: usize,
    removals: usize,
    larges: usize,
    rooms: usize,
    sessions: usize,
    attempts: usize,
}

impl Residue {
    /// Whether there is nothing but the sessions of `workers` workers.
    pub fn is_none(&self, workers: usize) -> bool {
        let held = [self.waiting, self.removals, self.larges, self.rooms, self.attempts];
        held.iter().all(|count| *count == 0) && self.sessions == workers
    }
}

impl CoreHandle {
    /// What is held for others.
    pub fn residue(&self) -> Residue {
        let state = self.lock();
        Residue {
            waiting: state.callers.waiting(),
            removals: state.callers.removals(),
            larges: state.larges.len(),
            rooms: state.journal.under_way(),
            sessions: state.sessions.len(),
            attempts: state.sessions.values().map(|session| session.attempts.len()).sum(),
        }
    }
}
