//! Enforces the limits of each key: requests a second and concurrent requests.

use super::keys::KeyInfo;
use crate::fault::Fault;
use axum::http::StatusCode;
use governor::clock::{Clock, MonotonicClock};
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What each key's limits have left, by the key's id.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    keys: Mutex<HashMap<String, Arc<Limit>>>,
}

#[derive(Debug)]
struct Limit {
    rate: Option<RateLimiter<NotKeyed, InMemoryState, MonotonicClock>>,
    concurrent: Option<Arc<Semaphore>>,
}

/// A request's place in its key's limits; dropping it frees the place.
pub(crate) type Place = OwnedSemaphorePermit;

impl Limits {
    /// Takes a place for one more request of a key, if the key has limits.
    pub(super) fn take(&self, key: &KeyInfo) -> Result<Option<Place>, Fault> {
        if key.rate_per_s.is_none() && key.concurrent_max.is_none() {
            return Ok(None);
        }
        self.of(key).take(key)
    }

    /// Counts several requests of a key, all or none.
    pub(super) fn count(&self, key: &KeyInfo, requests: usize) -> Result<(), Fault> {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        match (key.rate_per_s, NonZeroU32::new(requests)) {
            (Some(_), Some(requests)) => self.of(key).count(key, requests),
            _ => Ok(()),
        }
    }

    fn of(&self, key: &KeyInfo) -> Arc<Limit> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.get(&key.id) {
            Some(limit) => Arc::clone(limit),
            None => Arc::clone(keys.entry(key.id.clone()).or_insert_with(|| Limit::of(key))),
        }
    }

    /// Drops the state of a key that is no longer valid.
    pub(super) fn forget(&self, id: &str) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

impl Limit {
    fn of(key: &KeyInfo) -> Arc<Self> {
        let rate = key.rate_per_s.and_then(NonZeroU32::new);
        let rate = rate
            .map(|per_s| RateLimiter::direct_with_clock(Quota::per_second(per_s), MonotonicClock));
        let most = key.concurrent_max.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        let most = most.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        Arc::new(Self { rate, concurrent: most })
    }

    fn take(&self, key: &KeyInfo) -> Result<Option<Place>, Fault> {
        let permit = match &self.concurrent {
            Some(free) => match Arc::clone(free).try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    let most = key.concurrent_max.unwrap_or(0);
                    let message = format!("key {} has {most} requests open, its most", key.id);
                    return Err(refused(message).retry_after(std::time::Duration::from_secs(1)));
                }
            },
            None => None,
        };
        self.count(key, NonZeroU32::MIN)?;
        Ok(permit)
    }

    fn count(&self, key: &KeyInfo, requests: NonZeroU32) -> Result<(), Fault> {
        let Some(rate) = &self.rate else { return Ok(()) };
        let (id, most) = (&key.id, key.rate_per_s.unwrap_or(0));
        match rate.check_n(requests) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(early)) => {
                let wait = early.wait_time_from(MonotonicClock.now());
                let message = format!("key {id} may send {most} requests a second");
                Err(refused(message).retry_after(wait))
            }
            Err(_) => {
                let message = format!(
                    "these are {requests} requests more at once, and key {id} may send {most} a second"
                );
                Err(refused(message).hint("send fewer at a time"))
            }
        }
    }
}

fn refused(message: String) -> Fault {
    Fault::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::KeyRole;

    fn key(rate_per_s: Option<u32>, concurrent_max: Option<u32>) -> KeyInfo {
        KeyInfo {
            id: "k".to_owned(),
            role: KeyRole::Infer,
            models: None,
            rate_per_s,
            concurrent_max,
            note: String::new(),
            created_s: 0,
            expires_s: None,
        }
    }

    #[test]
    fn places_come_back_and_rates_say_when() {
        let limits = Limits::default();
        let narrow = key(None, Some(2));
        let held = [limits.take(&narrow).expect("free"), limits.take(&narrow).expect("free")];
        let fault = limits.take(&narrow).expect_err("two are open");
        assert_eq!((fault.status.as_u16(), fault.code), (429, "too_many"));
        assert!(fault.retry_after.is_some());
        drop(held);
        limits.take(&narrow).expect("free again");

        limits.forget("k");
        let slow = key(Some(3), None);
        let taken = (0..10).filter(|_| limits.take(&slow).is_ok()).count();
        assert!((3..5).contains(&taken), "{taken} at once of three a second");
        assert!(limits.take(&slow).expect_err("used up").retry_after.is_some());
        limits.forget("k");
        assert!(limits.count(&slow, 4).expect_err("never").retry_after.is_none());
        limits.count(&slow, 3).expect("nothing was counted before");
        assert!(limits.count(&slow, 2).expect_err("used up").retry_after.is_some());
        assert!((0..10).all(|_| Limits::default().take(&key(None, None)).is_ok()));
    }
}
