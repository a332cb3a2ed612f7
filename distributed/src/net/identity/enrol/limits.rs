//! How many machines may join or renew at once and in a second, and names that are reserved.

use crate::worker_info::WorkerId;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bounds on how many machines come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// At once, in total and from one address: a slow machine must not keep others out.
    at_once: u32,
    at_once_from_one: u32,
    /// Attempts that may come in a burst, and that are given back in a second.
    burst: f64,
    per_second: f64,
}

/// Nothing is known of machines that join.
pub(crate) const JOINING: Rate =
    Rate { at_once: 32, at_once_from_one: 4, burst: 64.0, per_second: 16.0 };
/// Members that renew have proved who they are; after a long absence they come all at once, and
/// many of them may have one address.
pub(crate) const RENEWING: Rate =
    Rate { at_once: 128, at_once_from_one: 16, burst: 512.0, per_second: 128.0 };
/// How long a name stays reserved for a machine that was certified and has not connected yet.
const RESERVED: Duration = Duration::from_secs(20);

/// The bounds on joining, or on renewing.
pub(crate) struct Limits(Mutex<State>);

struct State {
    rate: Rate,
    joiners: HashMap<IpAddr, u32>,
    attempts_left: f64,
    counted: Instant,
    names: HashMap<WorkerId, Instant>,
}

impl Limits {
    pub(crate) fn new(rate: Rate) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            rate,
            joiners: HashMap::new(),
            attempts_left: rate.burst,
            counted: Instant::now(),
            names: HashMap::new(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step leaves it consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one machine; `None` when there is none.
    pub(crate) fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        self.lock().admit(ip.to_canonical(), Instant::now())?;
        Some(Place { limits: Arc::clone(self), ip: ip.to_canonical() })
    }

    /// Reserves a name for one joiner; `None` when another one has it.
    pub(super) fn reserve(self: &Arc<Self>, name: &WorkerId) -> Option<Reservation> {
        let now = Instant::now();
        let mut state = self.lock();
        state.names.retain(|_, until| now < *until);
        if state.names.contains_key(name) {
            return None;
        }
        state.names.insert(name.clone(), now + RESERVED);
        Some(Reservation { limits: Arc::clone(self), name: Some(name.clone()) })
    }

    /// Frees a name whose machine will not connect.
    pub(crate) fn release(&self, name: &WorkerId) {
        self.lock().names.remove(name);
    }
}

impl State {
    fn admit(&mut self, ip: IpAddr, now: Instant) -> Option<()> {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64();
        let Rate { at_once, at_once_from_one, burst, per_second } = self.rate;
        self.attempts_left = (self.attempts_left + passed * per_second).min(burst);
        self.counted = now;
        let here = self.joiners.get(&ip).copied().unwrap_or(0);
        let full = here >= at_once_from_one || self.joiners.values().sum::<u32>() >= at_once;
        if full || self.attempts_left < 1.0 {
            return None;
        }
        self.attempts_left -= 1.0;
        self.joiners.insert(ip, here + 1);
        Some(())
    }

    fn leave(&mut self, ip: IpAddr) {
        let left = self.joiners.get(&ip).map_or(0, |n| n.saturating_sub(1));
        if left == 0 {
            self.joiners.remove(&ip);
        } else {
            self.joiners.insert(ip, left);
        }
    }
}

/// A place, free again when this is dropped.
pub(crate) struct Place {
    limits: Arc<Limits>,
    ip: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.limits.lock().leave(self.ip);
    }
}

/// A name, free again when this is dropped unless it is kept.
pub(super) struct Reservation {
    limits: Arc<Limits>,
    name: Option<WorkerId>,
}

impl Reservation {
    /// Leaves the name reserved until its machine has had time to connect.
    pub(super) fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.limits.lock().names.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_keep_others_out() {
        let limits = Limits::new(JOINING);
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let places: Vec<_> = (0..10).map_while(|_| limits.admit(a)).collect();
        assert_eq!(places.len(), 4);
        assert!(limits.admit(b).is_some());
        drop(places);
        assert!(limits.admit(a).is_some());
        assert!(limits.lock().joiners.is_empty(), "nothing is kept of those who left");
    }

    #[test]
    fn attempts_are_given_back_with_time() {
        let start = Instant::now();
        let limits = Limits::new(JOINING);
        let mut state = limits.lock();
        let ip = IpAddr::from([10, 0, 0, 1]);
        let mut attempt = |now| {
            let admitted = state.admit(ip, now);
            admitted.inspect(|()| state.leave(ip)).is_some()
        };
        let burst = (0..1000).take_while(|_| attempt(start)).count();
        assert_eq!(burst, 64);
        let later = start + Duration::from_secs(2);
        assert_eq!((0..1000).take_while(|_| attempt(later)).count(), 32);
    }

    #[test]
    fn a_name_is_reserved_once() {
        let limits = Limits::new(JOINING);
        let name: WorkerId = "w".parse().expect("a name");
        let first = limits.reserve(&name).expect("free");
        assert!(limits.reserve(&name).is_none());
        drop(first);
        limits.reserve(&name).expect("free again").keep();
        assert!(limits.reserve(&name).is_none());
    }
}
