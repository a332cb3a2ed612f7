//! Turns for work of one task at a time. A task that is asked to stop does not wait for its turn.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often waiting tasks check whether they should still wait.
const LOOK: Duration = Duration::from_millis(20);

/// A lock for one task at a time.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A turn; dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn; `None` if `unwanted` becomes true before.
    pub(crate) fn take(&self, unwanted: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut taken = self.lock();
        while *taken {
            if unwanted() {
                return None;
            }
            taken = self.free.wait_timeout(taken, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken = true;
        Some(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_one_after_another_and_nobody_unwanted_waits() {
        let turns = Turns::default();
        let turn = turns.take(|| true).expect("it is free");
        assert!(turns.take(|| true).is_none(), "it is taken");
        std::thread::scope(|scope| {
            let next = scope.spawn(|| turns.take(|| false).is_some());
            drop(turn);
            assert!(next.join().expect("no panic"));
        });
        assert!(turns.take(|| true).is_some(), "it is free again");
    }
}
