//! The members that are connected, so that those of a revoked certificate can be sent away.

use crate::net::close::Close;
use crate::net::role::Role;
use crate::net::tls::Member;
use crate::worker_info::WorkerId;
use quinn::Connection;
use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The connections of members.
#[derive(Default)]
pub(super) struct Present(Mutex<Slab<(Member, Connection)>>);

/// Holds as long as a member's connection is served.
pub(super) struct Visit {
    present: Arc<Present>,
    key: usize,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.present.lock().try_remove(self.key);
    }
}

impl Present {
    fn lock(&self) -> MutexGuard<'_, Slab<(Member, Connection)>> {
        // Every step leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a member as present until the answer is dropped.
    pub(super) fn enter(self: &Arc<Self>, member: Member, connection: Connection) -> Visit {
        let key = self.lock().insert((member, connection));
        Visit { present: Arc::clone(self), key }
    }

    /// Closes every connection whose member was revoked; answers how many were those of one member.
    pub(super) fn send_away(
        &self,
        is_revoked: impl Fn(&Member) -> bool,
        counted: (Role, &WorkerId),
    ) -> usize {
        let gone = |(_, (member, connection)): (usize, &(Member, Connection))| {
            // One that was closed before is served a moment longer.
            let gone = is_revoked(member) && connection.close_reason().is_none();
            if gone {
                let close = Close::Revoked;
                connection.close(close.code(), close.reason().as_bytes());
            }
            gone && (member.role, &member.name) == counted
        };
        self.lock().iter().filter(|entry| gone((entry.0, entry.1))).count()
    }
}
