//! Groups of tasks that may run together, each with the time at which a thread may take a batch. The
//! groups are kept in order as tasks come and go, so that no look goes through all waiting tasks.

use crate::batching::{Batching, DELAY_MAX};
use crate::proto::queue::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::time::Instant;

/// How tasks of a group are batched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    max: usize,
    /// Ascending, none above `max`.
    preferred: Vec<usize>,
    delay: Duration,
}

impl Rule {
    /// Batches of up to `max` tasks, each of which waits `delay` to fill.
    pub(super) fn new(max: u32, delay: Duration) -> Self {
        let (max, delay) = (wide(max).max(1), delay.min(DELAY_MAX));
        Self { max, preferred: Vec::new(), delay }
    }

    /// The rule of a model's batching.
    pub(super) fn of(batching: &Batching) -> Self {
        let rule = Self::new(batching.max.get(), Duration::from_micros(batching.delay_us));
        let sizes = batching.preferred.iter().map(|size| wide(size.get()));
        let mut preferred: Vec<usize> = sizes.filter(|size| *size <= rule.max).collect();
        preferred.sort_unstable();
        Self { preferred, ..rule }
    }

    /// How many waiting tasks run at once, without a delay.
    pub(super) fn full(&self) -> usize {
        self.preferred.last().copied().unwrap_or(self.max)
    }

    /// The size of the next batch, once it is due.
    fn size(&self, waiting: usize) -> usize {
        if self.delay > Duration::ZERO && waiting < self.full() {
            // The delay is over: no task waits longer for a preferred size.
            return waiting;
        }
        let fits = self.preferred.iter().rev().find(|size| **size <= waiting);
        fits.copied().unwrap_or_else(|| waiting.min(self.max))
    }
}

fn wide(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// What a thread does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A batch of this group.
    Take(u64),
    Wait(Duration),
    End,
}

#[derive(Debug)]
struct Group {
    rule: Rule,
    /// Its tasks in their order; `came` has when each came, by number.
    places: BTreeSet<Place>,
    came: BTreeMap<u64, Instant>,
    listed: Listed,
}

/// Where a group is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    No,
    Ready(Place),
    /// A thread waits until then for its batch to fill.
    Until(Instant),
}

impl Group {
    /// Batches that wait, each as large as possible.
    fn batches(&self) -> usize {
        self.places.len().div_ceil(self.rule.full())
    }

    fn standing(&self, now: Instant) -> Listed {
        let (Some(head), Some((_, came))) = (self.places.first(), self.came.first_key_value())
        else {
            return Listed::No;
        };
        let until = *came + self.rule.delay;
        let ready = self.places.len() >= self.rule.full() || until <= now;
        if ready { Listed::Ready(*head) } else { Listed::Until(until) }
    }
}

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: HashMap<u64, Group>,
    /// Groups of which a batch may be taken, by their first tasks.
    ready: BTreeMap<Place, u64>,
    /// The other groups, by when a batch of them may be taken.
    until: BTreeSet<(Instant, u64)>,
    batches: usize,
}

impl Groups {
    /// How many batches wait, each as large as possible.
    pub(super) fn batches(&self) -> usize {
        self.batches
    }

    /// Adds a task to a group, whose rule is this one.
    pub(super) fn enter(&mut self, kind: u64, rule: Rule, place: Place, now: Instant) {
        let new =
            || Group { rule, places: BTreeSet::new(), came: BTreeMap::new(), listed: Listed::No };
        let group = self.groups.entry(kind).or_insert_with(new);
        let before = group.batches();
        group.places.insert(place);
        group.came.insert(place.seq(), now);
        self.batches += group.batches() - before;
        self.list(kind, now);
    }

    /// Removes tasks from a group.
    pub(super) fn leave(&mut self, kind: u64, places: &[Place], now: Instant) {
        let Some(group) = self.groups.get_mut(&kind) else { return };
        let before = group.batches();
        for place in places {
            group.places.remove(place);
            group.came.remove(&place.seq());
        }
        self.batches -= before - group.batches();
        self.list(kind, now);
    }

    /// The first group of which a batch may be taken, or the time until there is one.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        while let Some((_, kind)) = self.until.first().copied().filter(|(until, _)| *until <= now) {
            self.list(kind, now);
        }
        match (self.ready.first_key_value(), self.until.first()) {
            (Some((_, kind)), _) => Next::Take(*kind),
            (None, Some((until, _))) => Next::Wait(until.saturating_duration_since(now)),
            (None, None) => Next::End,
        }
    }

    /// The tasks of a group in their order, and how many of them are its next batch.
    pub(super) fn batch(&self, kind: u64) -> (impl Iterator<Item = Place>, usize) {
        let group = self.groups.get(&kind);
        let size = group.map_or(0, |group| group.rule.size(group.places.len()));
        (group.into_iter().flat_map(|group| group.places.iter().copied()), size)
    }

    /// Lists a group where it belongs now.
    fn list(&mut self, kind: u64, now: Instant) {
        let Some(group) = self.groups.get_mut(&kind) else { return };
        let after = group.standing(now);
        let before = std::mem::replace(&mut group.listed, after);
        if before == after {
            return;
        }
        match before {
            Listed::No => {}
            Listed::Ready(place) => drop(self.ready.remove(&place)),
            Listed::Until(until) => drop(self.until.remove(&(until, kind))),
        }
        match after {
            Listed::No => drop(self.groups.remove(&kind)),
            Listed::Ready(place) => drop(self.ready.insert(place, kind)),
            Listed::Until(until) => drop(self.until.insert((until, kind))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    const MS: Duration = Duration::from_millis(1);

    fn rule(max: u32, preferred: &[u32], delay_us: u64) -> Rule {
        let size = |n: u32| NonZeroU32::new(n).expect("not zero");
        let preferred = preferred.iter().map(|n| size(*n)).collect();
        Rule::of(&Batching { max: size(max), preferred, delay_us })
    }

    /// Groups into which tasks of kinds come one after another, all at one time.
    fn groups(tasks: &[(u64, &Rule)], now: Instant) -> Groups {
        let mut groups = Groups::default();
        for (seq, (kind, rule)) in (1..).zip(tasks) {
            groups.enter(*kind, (*rule).clone(), place(seq), now);
        }
        groups
    }

    fn place(seq: u64) -> Place {
        Place::new(MS * u32::try_from(seq).expect("few"), seq)
    }

    /// Takes a batch as a thread does; returns its tasks' numbers.
    fn take(groups: &mut Groups, now: Instant) -> Option<Vec<u64>> {
        let Next::Take(kind) = groups.next(now) else { return None };
        let (places, size) = groups.batch(kind);
        let places: Vec<Place> = places.take(size).collect();
        groups.leave(kind, &places, now);
        Some(places.iter().map(Place::seq).collect())
    }

    #[test]
    fn a_preferred_number_runs_at_once_and_what_is_late_whatever_its_number() {
        /// Most, preferred, delay in µs, tasks; the sizes that run at once, and those after the delay.
        type Case<'a> = (u32, &'a [u32], u64, usize, &'a [usize], &'a [usize]);
        let cases: [Case<'_>; 12] = [
            (8, &[4], 500, 3, &[], &[3]),
            (8, &[4], 500, 4, &[4], &[]),
            (8, &[4], 500, 11, &[4, 4], &[3]),
            (8, &[2, 4], 500, 3, &[], &[3]),
            (8, &[4, 2], 500, 9, &[4, 4], &[1]),
            (8, &[], 500, 7, &[], &[7]),
            (8, &[], 500, 17, &[8, 8], &[1]),
            (8, &[4, 2], 0, 7, &[4, 2, 1], &[]),
            (8, &[4], 0, 3, &[3], &[]),
            (8, &[], 0, 11, &[8, 3], &[]),
            (1, &[], 500, 2, &[1, 1], &[]),
            // A preferred size above the maximum is ignored.
            (8, &[16], 500, 9, &[8], &[1]),
        ];
        for (max, preferred, delay_us, tasks, at_once, late) in cases {
            let (rule, now) = (rule(max, preferred, delay_us), Instant::now());
            let mut groups = groups(&vec![(7, &rule); tasks], now);
            let sizes = |groups: &mut Groups, now| {
                std::iter::from_fn(|| take(groups, now))
                    .map(|batch| batch.len())
                    .collect::<Vec<_>>()
            };
            let case = (max, preferred, delay_us, tasks);
            assert_eq!(sizes(&mut groups, now), at_once, "{case:?}");
            let delay = Duration::from_micros(delay_us);
            let expected = if late.is_empty() { Next::End } else { Next::Wait(delay) };
            assert_eq!(groups.next(now), expected, "{case:?}");
            assert_eq!(sizes(&mut groups, now + delay), late, "{case:?}");
            assert_eq!((groups.next(now), groups.batches()), (Next::End, 0), "{case:?}");
        }
    }

    #[test]
    fn one_kind_that_waits_holds_up_no_other_and_the_first_goes_first() {
        let (patient, hasty, now) = (rule(4, &[], 5_000), rule(4, &[], 0), Instant::now());
        let tasks = [(1, &patient), (2, &hasty), (3, &hasty), (2, &hasty)];
        let mut groups = groups(&tasks, now);
        assert_eq!(groups.batches(), 3);
        assert_eq!(take(&mut groups, now), Some(vec![2, 4]));
        assert_eq!(take(&mut groups, now), Some(vec![3]));
        assert_eq!(groups.next(now + 2 * MS), Next::Wait(3 * MS));
        // A second task is no reason to wait again.
        groups.enter(1, patient.clone(), place(9), now + 2 * MS);
        assert_eq!(groups.next(now + 2 * MS), Next::Wait(3 * MS));
        // The task that left does not run, and the other one waits for its own time.
        groups.leave(1, &[place(1)], now + 2 * MS);
        assert_eq!(groups.next(now + 2 * MS), Next::Wait(5 * MS));
        assert_eq!(take(&mut groups, now + 7 * MS), Some(vec![9]));
        assert_eq!(groups.next(now + 7 * MS), Next::End);
    }

    #[test]
    fn ten_thousand_kinds_wait_and_none_is_lost() {
        let (rule, now) = (rule(2, &[], 5_000_000), Instant::now());
        // Each task has its own kind, so that none is full: scans would be a hundred million steps.
        let tasks: Vec<(u64, &Rule)> = (0..10_000).map(|kind| (kind, &rule)).collect();
        let mut groups = groups(&tasks, now);
        for _ in 0..10_000 {
            assert!(matches!(groups.next(now), Next::Wait(_)));
        }
        assert_eq!((groups.until.len(), groups.ready.len(), groups.batches()), (10_000, 0, 10_000));
        let late = now + Duration::from_secs(5);
        assert_eq!(std::iter::from_fn(|| take(&mut groups, late)).count(), 10_000);
        assert!(groups.groups.is_empty() && groups.until.is_empty() && groups.ready.is_empty());
    }
}
