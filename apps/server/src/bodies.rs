//! Room for request bodies: all bodies in memory share one budget in bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a unit of room: `u32` counts units up to 256 GiB.
const UNIT: usize = 64;
/// The first bytes of each body come from a separate share, so that a few large bodies, or one that waits for all
/// of the room, do not block the many small ones.
const FIRST_BYTES: usize = 64 << 10;
/// That share is one part in this many of the room.
const FIRST_SHARE: usize = 8;

/// The most quarters of the room that one caller may take.
const OWN_PARTS: usize = 3;
/// The most callers that are remembered without bodies.
const CALLERS_MAX: usize = 1_024;

/// The room for all bodies.
#[derive(Debug)]
pub(crate) struct Bodies {
    shared: Shares,
    /// Each caller's part of the room. A caller that uses up its part waits for its own bodies to end, without
    /// blocking other callers.
    own: Mutex<HashMap<String, Arc<Shares>>>,
    bytes: usize,
}

#[derive(Debug)]
struct Shares {
    first: Share,
    rest: Share,
}

impl Shares {
    fn new(first: usize, rest: usize) -> Self {
        Self { first: Share::new(first), rest: Share::new(rest) }
    }

    /// Grows `held` until it suffices for `bytes` bytes, or is the whole share.
    async fn grow(&self, held: &mut Held, bytes: usize) {
        self.first.grow(&mut held.first, bytes.min(FIRST_BYTES)).await;
        self.rest.grow(&mut held.rest, bytes.saturating_sub(FIRST_BYTES)).await;
    }

    /// Like `grow`, but immediately or not at all.
    fn try_grow(&self, held: &mut Held, bytes: usize) -> bool {
        self.first.try_grow(&mut held.first, bytes.min(FIRST_BYTES))
            && self.rest.try_grow(&mut held.rest, bytes.saturating_sub(FIRST_BYTES))
    }

    /// How many of these bytes the shares can ever hold.
    fn most(&self, bytes: usize) -> usize {
        let rest = bytes.saturating_sub(FIRST_BYTES).min(self.rest.bytes());
        bytes.min(FIRST_BYTES).saturating_add(rest)
    }
}

#[derive(Debug)]
struct Share {
    free: Arc<Semaphore>,
    units: u32,
}

impl Share {
    fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
        let free = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(usize::MAX)));
        Self { free, units }
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.units).unwrap_or(usize::MAX).saturating_mul(UNIT)
    }

    /// Grows `held` until it suffices for `bytes` bytes, or is the whole share.
    async fn grow(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) {
        let more = self.missing(held.as_ref(), bytes);
        if more == 0 {
            return;
        }
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&self.free).acquire_many_owned(more).await else { return };
        add(held, permit);
    }

    /// Like `grow`, but immediately or not at all.
    fn try_grow(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let more = self.missing(held.as_ref(), bytes);
        if more == 0 {
            return true;
        }
        let permit = Arc::clone(&self.free).try_acquire_many_owned(more);
        permit.map(|permit| add(held, permit)).is_ok()
    }

    /// Units that `held` lacks for `bytes` bytes, or for the whole share.
    fn missing(&self, held: Option<&OwnedSemaphorePermit>, bytes: usize) -> u32 {
        let wanted = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units);
        let has = held.map_or(0, OwnedSemaphorePermit::num_permits);
        wanted.saturating_sub(u32::try_from(has).unwrap_or(u32::MAX))
    }
}

fn add(held: &mut Option<OwnedSemaphorePermit>, permit: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(permit),
        None => *held = Some(permit),
    }
}

/// The room of one body; dropping it frees the room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    held: Held,
    /// The part of the caller's own room that the body takes.
    own: Option<(Arc<Shares>, Held)>,
}

#[derive(Debug, Default)]
struct Held {
    first: Option<OwnedSemaphorePermit>,
    rest: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// The bytes that the room holds, rounded up.
    pub(crate) fn bytes(&self) -> usize {
        let units = |held: &Option<OwnedSemaphorePermit>| {
            held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
        };
        let Held { first, rest } = &self.held;
        units(first).saturating_add(units(rest)).saturating_mul(UNIT)
    }
}

impl Bodies {
    /// Room for `bytes` bytes in all. A larger body takes all that one caller may have.
    pub(crate) fn new(bytes: usize) -> Self {
        let first = bytes / FIRST_SHARE;
        Self { shared: Shares::new(first, bytes - first), own: Mutex::default(), bytes }
    }

    /// Empty room for a body of this caller.
    pub(crate) fn room_of(&self, caller: &str) -> Room {
        let mut callers = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let shares = match callers.get(caller) {
            Some(shares) => Arc::clone(shares),
            None => {
                if callers.len() >= CALLERS_MAX {
                    callers.retain(|_, shares| Arc::strong_count(shares) > 1);
                }
                let first = self.bytes / FIRST_SHARE;
                let own = |bytes: usize| bytes.div_ceil(4) * OWN_PARTS;
                let shares = Arc::new(Shares::new(own(first), own(self.bytes - first)));
                callers.insert(caller.to_owned(), Arc::clone(&shares));
                shares
            }
        };
        Room { held: Held::default(), own: Some((shares, Held::default())) }
    }

    /// Waits until there is room for a body of `bytes` bytes in all.
    pub(crate) async fn grow(&self, room: &mut Room, bytes: usize) {
        let mut bytes = bytes;
        if let Some((own, held)) = &mut room.own {
            own.grow(held, bytes).await;
            bytes = own.most(bytes);
        }
        self.shared.grow(&mut room.held, bytes).await;
    }

    /// Like `grow`, without waiting; false if there is no room now.
    pub(crate) fn try_grow(&self, room: &mut Room, bytes: usize) -> bool {
        let mut bytes = bytes;
        if let Some((own, held)) = &mut room.own {
            if !own.try_grow(held, bytes) {
                return false;
            }
            bytes = own.most(bytes);
        }
        self.shared.try_grow(&mut room.held, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn fits(bodies: &Bodies, bytes: usize) -> Option<Room> {
        let mut room = Room::default();
        let growing = bodies.grow(&mut room, bytes);
        let grown = tokio::time::timeout(Duration::from_millis(20), growing).await;
        grown.is_ok().then_some(room)
    }

    #[tokio::test]
    async fn bodies_share_the_room_and_large_ones_leave_some_to_small_ones() {
        let bodies = Bodies::new(8 << 20);
        let mut large = fits(&bodies, 4 << 20).await.expect("it is empty");
        assert!(fits(&bodies, 4 << 20).await.is_none(), "an eighth is for the first bytes");
        bodies.grow(&mut large, 7 << 20).await;
        assert!(fits(&bodies, 1 << 20).await.is_none(), "it is full");
        let small: Vec<_> =
            [fits(&bodies, FIRST_BYTES).await, fits(&bodies, 1).await].into_iter().collect();
        assert!(small.iter().all(Option::is_some), "{small:?}");
        drop(large);
        assert!(fits(&bodies, 7 << 20).await.is_some());
        // A body larger than the room takes all of it.
        let all = fits(&bodies, 1 << 30).await.expect("nothing else is held");
        assert!(fits(&bodies, 1 << 20).await.is_none());
        drop(all);
        assert!(fits(&bodies, 1 << 20).await.is_some());
    }

    #[tokio::test]
    async fn one_caller_leaves_a_quarter_to_others() {
        let bodies = Bodies::new(8 << 20);
        let fits = async |caller: &str, bytes: usize| {
            let mut room = bodies.room_of(caller);
            let growing = bodies.grow(&mut room, bytes);
            let grown = tokio::time::timeout(Duration::from_millis(20), growing).await;
            grown.is_ok().then_some(room)
        };
        // A body larger than a caller's part takes all of that part.
        let flood = fits("a", 1 << 30).await.expect("it is empty");
        assert!(fits("a", 1 << 20).await.is_none(), "it has its part");
        let mut other = fits("b", 1 << 20).await.expect("a quarter is left");
        assert!(bodies.try_grow(&mut other, 3 << 19) && !bodies.try_grow(&mut other, 2 << 20));
        drop(flood);
        assert!(fits("a", 4 << 20).await.is_some());

        let mut small: Vec<Room> = (0..64).map(|_| bodies.room_of("a")).collect();
        let got =
            small.iter_mut().filter_map(|room| bodies.try_grow(room, FIRST_BYTES).then_some(()));
        assert_eq!(got.count(), 12, "of sixteen that have their first bytes");
        assert!(fits("c", FIRST_BYTES).await.is_some());
    }
}
