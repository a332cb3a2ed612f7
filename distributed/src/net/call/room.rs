//! Places for callers and room for their inputs, in total and for each member: a member that takes
//! all it can get must not keep others out.

use crate::error::{Error, Result};
use crate::net::identity::certificate::Member;
use crate::net::identity::role::Role;
use crate::net::transport::wire;
use crate::proto::frame::BODY_BYTES_MAX;
use crate::worker_info::WorkerId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Most connections of clients, of administrators and of one member. Administrators have their own
/// places: one who wants to revoke clients must get in.
const CLIENTS_MAX: usize = 256;
const ADMINS_MAX: usize = 32;
const CONNECTIONS_MAX: usize = 16;
/// Bytes of inputs that all callers may have on the way to tasks; one member may have those of one
/// body. Counted in units, because a semaphore counts no further.
const BODIES_BYTES_MAX: usize = 256 << 20;
const UNIT_BYTES: usize = 64 << 10;
/// How long a call may wait for room: its unread inputs keep the connection's other calls waiting.
/// A [`Client`](crate::Client) does not begin a call that has no room.
const TIMEOUT: Duration = Duration::from_secs(2);
/// When a call that found no room may be tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What all callers share.
pub(crate) struct Callers {
    clients: Arc<Semaphore>,
    admins: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    members: Mutex<HashMap<(Role, WorkerId), Weak<Share>>>,
}

/// What all connections of one member share.
struct Share {
    places: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
}

/// Room for one body's inputs at one end of a connection.
pub(super) fn body() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BODY_BYTES_MAX / UNIT_BYTES))
}

/// The permits that so many bytes need.
pub(super) fn units(bytes: usize) -> Result<u32> {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).map_err(wire::lost)
}

impl Default for Callers {
    fn default() -> Self {
        let places = |n| Arc::new(Semaphore::new(n));
        Self {
            clients: places(CLIENTS_MAX),
            admins: places(ADMINS_MAX),
            bodies: places(BODIES_BYTES_MAX / UNIT_BYTES),
            members: Mutex::default(),
        }
    }
}

/// A caller's place, free again when this is dropped.
pub(super) struct Place {
    share: Arc<Share>,
    _own: OwnedSemaphorePermit,
    _any: OwnedSemaphorePermit,
}

/// Room for a call's inputs, free again when this is dropped.
pub(super) struct Room {
    _own: OwnedSemaphorePermit,
    _any: OwnedSemaphorePermit,
}

impl Callers {
    /// A place for one more connection of a member; `None` when there is none.
    pub(super) fn enter(&self, member: &Member) -> Option<Place> {
        let places = match member.role {
            Role::Admin => &self.admins,
            Role::Worker | Role::Client => &self.clients,
        };
        let share = self.share(member);
        let own = Arc::clone(&share.places).try_acquire_owned().ok()?;
        let any = Arc::clone(places).try_acquire_owned().ok()?;
        Some(Place { share, _own: own, _any: any })
    }

    fn share(&self, member: &Member) -> Arc<Share> {
        // Every step leaves it consistent.
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        // There are no more shares than places.
        members.retain(|_, share| share.strong_count() > 0);
        let who = (member.role, member.name.clone());
        if let Some(share) = members.get(&who).and_then(Weak::upgrade) {
            return share;
        }
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let share = Arc::new(Share { places, bodies: body() });
        members.insert(who, Arc::downgrade(&share));
        share
    }

    /// Room for so many bytes of inputs.
    pub(super) async fn room(&self, place: &Place, bytes: usize) -> Result<Room> {
        let units = units(bytes)?;
        let own = Arc::clone(&place.share.bodies);
        let any = Arc::clone(&self.bodies);
        let acquiring = async {
            let _own = own.acquire_many_owned(units).await?;
            let _any = any.acquire_many_owned(units).await?;
            Ok::<_, AcquireError>(Room { _own, _any })
        };
        match timeout(TIMEOUT, acquiring).await {
            Ok(room) => room.map_err(|_| Error::Stopped),
            Err(_) => {
                // No task waits; the bytes that the member has on the way leave no room.
                let free = place.share.bodies.available_permits().saturating_mul(UNIT_BYTES);
                let queued_bytes = BODY_BYTES_MAX.saturating_sub(free);
                Err(Error::Overloaded { queued: 0, queued_bytes, retry_after: RETRY_AFTER })
            }
        }
    }
}
