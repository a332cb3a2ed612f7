//! The members that are connected, so that a member whose certificate is revoked or expires can be
//! disconnected.

use crate::clock::now_s;
use crate::net::identity::certificate::Member;
use crate::net::identity::role::Role;
use crate::net::transport::close::Close;
use crate::worker_info::WorkerId;
use quinn::Connection;
use slab::Slab;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time between two checks for expiry. Each check reads the clock, which may have been set.
const LOOK: Duration = Duration::from_secs(1);

/// The connections of members.
#[derive(Default)]
pub(crate) struct ConnectedMembers(Mutex<Slab<Arc<Visit>>>);

/// A member's connection.
struct Visit {
    member: Member,
    connection: Connection,
    /// When the certificate in force expires: the one of the handshake, or a later one that was
    /// issued over this connection.
    until_s: AtomicU64,
}

impl Visit {
    fn is_expired(&self, now_s: u64) -> bool {
        now_s >= self.until_s.load(Ordering::Relaxed)
    }

    fn close(&self, close: Close) {
        self.connection.close(close.code(), close.reason().as_bytes());
    }
}

/// Lives as long as a member's connection is served.
pub(crate) struct Connected {
    present: Arc<ConnectedMembers>,
    key: usize,
    visit: Arc<Visit>,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.present.lock().try_remove(self.key);
    }
}

impl Connected {
    /// The member, by the certificate of the handshake.
    pub(crate) fn member(&self) -> &Member {
        &self.visit.member
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.visit.connection
    }

    /// Whether the certificate in force has expired.
    pub(crate) fn is_expired(&self) -> bool {
        self.visit.is_expired(now_s())
    }

    /// Closes the connection of a member whose certificate has expired.
    pub(crate) fn expire(&self) {
        self.visit.close(Close::Expired);
    }

    /// A certificate that was issued over this connection is in force from now on.
    pub(crate) fn extend(&self, until_s: u64) {
        self.visit.until_s.fetch_max(until_s, Ordering::Relaxed);
    }
}

impl ConnectedMembers {
    fn lock(&self) -> MutexGuard<'_, Slab<Arc<Visit>>> {
        // Every step leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a member as present until the answer is dropped, and lets it stay until `until_s`.
    pub(crate) fn enter(
        self: &Arc<Self>,
        member: Member,
        connection: Connection,
        until_s: u64,
    ) -> Connected {
        let visit = Arc::new(Visit { member, connection, until_s: AtomicU64::new(until_s) });
        let key = self.lock().insert(Arc::clone(&visit));
        Connected { present: Arc::clone(self), key, visit }
    }

    /// Closes every connection whose member was revoked; returns how many were those of one member.
    pub(crate) fn send_away(
        &self,
        is_revoked: impl Fn(&Member) -> bool,
        counted: (Role, &WorkerId),
    ) -> usize {
        let gone = |visit: &Visit| {
            let member = &visit.member;
            // A connection that was closed before is served a moment longer.
            let gone = is_revoked(member) && visit.connection.close_reason().is_none();
            if gone {
                visit.close(Close::Revoked);
            }
            gone && (member.role, &member.name) == counted
        };
        self.lock().iter().filter(|(_, visit)| gone(visit)).count()
    }

    /// Closes every connection whose member was revoked, by another coordinator.
    pub(crate) fn send_revoked_away(&self, is_revoked: impl Fn(&Member) -> bool) {
        for visit in self.lock().iter().map(|(_, visit)| visit).filter(|it| is_revoked(&it.member))
        {
            visit.close(Close::Revoked);
        }
    }

    /// Closes each connection once its certificate in force has expired. Never ends.
    pub(crate) async fn send_expired_away(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let now_s = now_s();
            let expired: Vec<Arc<Visit>> = {
                let visits = self.lock();
                let visits = visits.iter().filter(|(_, visit)| visit.is_expired(now_s));
                visits.map(|(_, visit)| Arc::clone(visit)).collect()
            };
            // Members that come or go meanwhile do not wait for the closing.
            for visit in expired {
                if visit.connection.close_reason().is_none() {
                    let Member { role, name, .. } = &visit.member;
                    tracing::info!(%role, %name, "a connection outlived its certificate");
                    visit.close(Close::Expired);
                }
            }
        }
    }
}
