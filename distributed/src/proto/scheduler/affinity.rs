//! Sticky routing: where tasks of one key went last.

use crate::worker_info::WorkerId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// How long a key is remembered after its last task.
const KEPT: Duration = Duration::from_secs(600);
/// Most keys that are remembered; the least recently used one goes first.
const KEYS_MAX: usize = 65_536;

/// A device that tasks of a key went to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) worker: WorkerId,
    pub(crate) ordinal: u32,
}

/// The homes of keys.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    homes: HashMap<String, (Duration, Home)>,
    /// The same by the time of last use.
    oldest: BTreeSet<(Duration, String)>,
    /// Tasks that went to their key's home, and all tasks with a key.
    pub(crate) kept: u64,
    pub(crate) asked: u64,
}

impl Affinity {
    /// The key of a task, which belongs to its model.
    pub(crate) fn key(model: &str, key: &str) -> String {
        format!("{model}\0{key}")
    }

    /// Where the key's tasks went last.
    pub(crate) fn home(&self, now: Duration, key: &str) -> Option<&Home> {
        let (used, home) = self.homes.get(key)?;
        (now.saturating_sub(*used) <= KEPT).then_some(home)
    }

    /// A task of the key goes to a device.
    pub(crate) fn remember(&mut self, now: Duration, key: String, home: Home) {
        self.asked += 1;
        if let Some((used, earlier)) = self.homes.get(&key) {
            self.kept += u64::from(*earlier == home && now.saturating_sub(*used) <= KEPT);
            self.oldest.remove(&(*used, key.clone()));
        }
        self.oldest.insert((now, key.clone()));
        self.homes.insert(key, (now, home));
        while let Some((used, key)) = self.oldest.first().cloned() {
            if self.homes.len() <= KEYS_MAX && now.saturating_sub(used) <= KEPT {
                return;
            }
            self.oldest.pop_first();
            self.homes.remove(&key);
        }
    }

    /// Whether a home with this load may be kept: not much busier than the mean of all (the
    /// bound of consistent hashing with bounded loads, Mirrokni et al. 2018, with c = 1.25).
    pub(crate) fn is_bearable(load: f64, mean: f64) -> bool {
        // Some slack, or the first task of all would drive the second away.
        load <= 1.25 * mean + 0.25
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(name: &str) -> Home {
        Home { worker: name.parse().expect("a name"), ordinal: 0 }
    }

    #[test]
    fn homes_are_kept_for_a_time_and_up_to_a_number() {
        let s = Duration::from_secs;
        let mut affinity = Affinity::default();
        affinity.remember(s(0), Affinity::key("m", "a"), home("w1"));
        assert_eq!(affinity.home(s(600), "m\0a"), Some(&home("w1")));
        assert_eq!(affinity.home(s(601), "m\0a"), None);
        assert_eq!(affinity.home(s(0), "n\0a"), None, "another model");
        affinity.remember(s(500), Affinity::key("m", "a"), home("w2"));
        assert_eq!(affinity.home(s(1100), "m\0a"), Some(&home("w2")), "use prolongs it");
        for i in 0..=KEYS_MAX {
            affinity.remember(s(1000), i.to_string(), home("w1"));
        }
        assert_eq!((affinity.homes.len(), affinity.oldest.len()), (KEYS_MAX, KEYS_MAX));
        assert_eq!(affinity.home(s(1000), "m\0a"), None, "the oldest went");
    }
}
