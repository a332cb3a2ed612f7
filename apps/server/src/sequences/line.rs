//! The sequences that a request may refer to.

use super::table::Key;
use super::{Asked, Sequences, Ticket};
use crate::access::Caller;
use crate::state::ServerState;
use std::sync::Arc;

/// Identifies the sequences that a request may refer to: those of its caller with the same name and version. A
/// sequence stays on the model that this name had at its start.
pub(crate) struct Line {
    sequences: Arc<Sequences>,
    caller: String,
    name: String,
    version: Option<u64>,
}

impl Line {
    pub(crate) fn of(
        state: &ServerState,
        caller: &Caller,
        name: &str,
        version: Option<u64>,
    ) -> Self {
        let sequences = Arc::clone(state.sequences());
        Self { sequences, caller: caller.id().to_owned(), name: name.to_owned(), version }
    }

    /// Takes the next place among the inferences of a sequence.
    pub(crate) fn ticket(self, asked: Asked) -> Ticket {
        let Self { sequences, caller, name, version } = self;
        let key = Key { caller, name, version, id: asked.id.clone() };
        Ticket::draw(sequences, key, asked)
    }
}
