//! A limited number of places that callers share. No single caller can take all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One place in this many is reserved for callers that hold fewer places than are reserved.
const KEPT_SHARE: usize = 8;

/// Whether a caller with `own` of the `taken` places may have one more.
pub(crate) fn is_free(most: usize, taken: usize, own: usize) -> bool {
    let kept = most / KEPT_SHARE;
    taken < most - kept || (taken < most && own < kept)
}

/// The places.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

/// Taken places, in all and by caller.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<String, usize>,
}

/// A taken place; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    caller: String,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// Takes a place for this caller; `None` if too many are taken.
    pub(crate) fn take(self: &Arc<Self>, caller: &str) -> Option<Place> {
        let mut taken = self.taken();
        let own = taken.by.get(caller).copied().unwrap_or(0);
        if !is_free(self.most, taken.all, own) {
            return None;
        }
        taken.all += 1;
        *taken.by.entry(caller.to_owned()).or_default() += 1;
        Some(Place { places: Arc::clone(self), caller: caller.to_owned() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // The counts are consistent after every statement, so a panic cannot have damaged them.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        let own = taken.by.get(&self.caller).map_or(0, |own| own.saturating_sub(1));
        match own {
            0 => drop(taken.by.remove(&self.caller)),
            own => drop(taken.by.insert(std::mem::take(&mut self.caller), own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flood(places: &Arc<Places>, caller: &str) -> Vec<Place> {
        std::iter::from_fn(|| places.take(caller)).collect()
    }

    #[test]
    fn some_places_are_kept_for_callers_that_have_few() {
        let places = Places::new(64);
        let first = flood(&places, "a");
        assert_eq!(first.len(), 56, "an eighth is kept");
        let second = flood(&places, "b");
        assert_eq!(second.len(), 8, "of which others have some");
        assert!(places.take("c").is_none());
        drop(first);
        assert_eq!(flood(&places, "c").len(), 48);
        assert!(places.taken().by.keys().eq(["b"]), "who has none is forgotten");
        assert_eq!(
            flood(&Places::new(7), "a").len(),
            7,
            "where there are few, who comes first has them"
        );
        assert!(Places::new(0).take("a").is_none());
    }
}
