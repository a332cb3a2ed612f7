//! An inference's place in the line of its sequence.

use super::Sequences;
use super::asked::Asked;
use super::table::Key;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::OwnedMutexGuard;

/// A place in the line; dropping it leaves the line.
pub(super) struct Place {
    pub(super) sequences: Arc<Sequences>,
    pub(super) key: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sequences.table().leave(&self.key, Instant::now());
    }
}

/// Held by the one inference whose turn it is.
pub(super) type Guard = OwnedMutexGuard<()>;

/// A place in the line of a sequence, taken when the inference arrived.
pub(crate) struct Ticket {
    pub(super) asked: Asked,
    /// The turn if nobody is ahead, or else the future that waits for it.
    pub(super) turn: Result<Guard, BoxFuture<'static, Guard>>,
    pub(super) place: Place,
}

impl Ticket {
    pub(super) fn draw(sequences: Arc<Sequences>, key: Key, asked: Asked) -> Self {
        let turn = {
            // Holding the table orders the places.
            let mut table = sequences.table();
            let mut waiting = table.enter(&key, Instant::now()).lock_owned().boxed();
            // The first poll of a lock enters its queue.
            let first = (&mut waiting).now_or_never();
            first.ok_or(waiting)
        };
        Self { asked, turn, place: Place { sequences, key } }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.place.key).finish()
    }
}
