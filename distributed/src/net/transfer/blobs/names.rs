//! The names of files. In a shared store a name has, besides the digest, the epoch of the leader
//! that wrote it and a number, so that a name is written once: a delete that arrives late removes
//! no file that was written again.

use object_store::path::Path as Key;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name of a blob in the folder beside the journal.
pub(super) fn of(sha256: [u8; 32]) -> Key {
    Key::from(hex::encode(sha256))
}

/// The digest and the epoch in a name of a shared store.
pub(super) fn parse(name: &str) -> Option<([u8; 32], u64)> {
    let mut parts = name.split('.');
    let (digest, epoch, number) = (parts.next()?, parts.next()?, parts.next()?);
    let (epoch, _) = (epoch.parse().ok()?, number.parse::<u64>().ok()?);
    let mut sha256 = [0; 32];
    hex::decode_to_slice(digest, &mut sha256).ok()?;
    parts.next().is_none().then_some((sha256, epoch))
}

/// The names that a leader gives in a shared store.
pub(super) struct Names {
    epoch: u64,
    /// The epochs in which the log was opened.
    epochs: HashSet<u64>,
    next: AtomicU64,
}

impl Names {
    /// The names of the leader in `epoch`; the log was opened in `epochs`.
    pub(super) fn new(epoch: u64, epochs: &[u64]) -> Self {
        let epochs = epochs.iter().copied().chain([epoch]).collect();
        Self { epoch, epochs, next: AtomicU64::new(0) }
    }

    /// A name that no file ever had.
    pub(super) fn fresh(&self, sha256: [u8; 32]) -> Key {
        let number = self.next.fetch_add(1, Relaxed);
        Key::from(format!("{}.{}.{number}", hex::encode(sha256), self.epoch))
    }

    /// Whether no leader can need the file once this one does not: this leader or an earlier one
    /// wrote it. A later leader relies on no file that this one has let go of.
    pub(super) fn may_remove(&self, name: &Key) -> bool {
        parse(name.as_ref()).is_some_and(|(_, epoch)| self.is_own_or_earlier(epoch))
    }

    fn is_own_or_earlier(&self, epoch: u64) -> bool {
        epoch <= self.epoch && self.epochs.contains(&epoch)
    }

    /// Whether the incomplete file of a name belongs to an earlier leader.
    pub(super) fn was_abandoned(&self, name: &str) -> bool {
        let Some((name, _)) = name.split_once('#') else { return false };
        parse(name).is_some_and(|(_, epoch)| epoch != self.epoch && self.is_own_or_earlier(epoch))
    }
}

/// The names under which the bytes of one digest lie, or may lie.
#[derive(Default)]
pub(super) struct Copies(Vec<Copy>);

struct Copy {
    name: Key,
    /// The file was written, so it must be there.
    whole: bool,
}

impl Copies {
    /// Adds a name; a name that is known as whole stays so.
    pub(super) fn add(&mut self, name: Key, whole: bool) {
        match self.0.iter_mut().find(|copy| copy.name == name) {
            Some(copy) => copy.whole |= whole,
            None => self.0.push(Copy { name, whole }),
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.0.iter().any(|copy| copy.whole)
    }

    /// Names of copies that can be read, the latest first.
    pub(super) fn whole(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().rev().filter(|copy| copy.whole).map(|copy| &copy.name)
    }

    pub(super) fn names(self) -> impl Iterator<Item = Key> {
        self.0.into_iter().map(|copy| copy.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_known_leaders_up_to_this_one_are_removed() {
        let names = Names::new(7, &[3, 5, 7]);
        let digest = "ab".repeat(32);
        let cases = [
            (format!("{digest}.7.0"), true),
            (format!("{digest}.3.12"), true),
            // Names of a successor, of another log, and of files that are none of ours.
            (format!("{digest}.8.0"), false),
            (format!("{digest}.4.0"), false),
            (digest.clone(), false),
            (format!("{digest}.7"), false),
            (format!("{digest}.7.0.0"), false),
            (format!("{digest}.7.0.new"), false),
            ("radeon-cluster".to_owned(), false),
        ];
        for (name, may) in cases {
            assert_eq!(names.may_remove(&Key::from(name.clone())), may, "{name}");
        }
        assert!(names.was_abandoned(&format!("{digest}.5.1#2")));
        for name in [format!("{digest}.7.1#2"), format!("{digest}.5.1"), format!("{digest}.8.1#1")]
        {
            assert!(!names.was_abandoned(&name), "{name}");
        }
    }

    #[test]
    fn no_name_is_given_twice() {
        let names = Names::new(7, &[]);
        let (one, two) = (names.fresh([1; 32]), names.fresh([1; 32]));
        assert_ne!(one, two);
        assert_eq!(parse(one.as_ref()), Some(([1; 32], 7)));
    }
}
