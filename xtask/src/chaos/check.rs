//! Checks promises while every client rests.

use super::ledger::{Breach, Entry};
use super::load::Load;
use crate::relay::Random;
use std::time::{Duration, Instant};

/// How soon all acknowledged tasks must have ended if all are short.
const SHORT: Duration = Duration::from_secs(30);
/// The same for long tasks, in addition to a multiple of the time that one thread needs for them.
const LONG: Duration = Duration::from_secs(90);
const SLOWER: u32 = 8;
/// The pause between requests for the same tasks.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks for tasks until all have ended, for at most `most`; answers the others.
pub(super) fn until_ended(load: &Load, mut ids: Vec<String>, most: Duration) -> Vec<String> {
    let began = Instant::now();
    loop {
        ids.retain(|id| !load.ask(id));
        if ids.is_empty() || began.elapsed() > most {
            return ids;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Checks that every short task has ended, that the list is right, and that some ends and keys are
/// unchanged.
pub(super) fn check(load: &Load, random: &mut Random, ends: usize, keys: usize) {
    all_ended(load, SHORT);
    glance(load, random, ends, keys);
}

/// Checks that the list is right, and that some ends and keys are unchanged; tasks may be open.
pub(super) fn glance(load: &Load, random: &mut Random, ends: usize, keys: usize) {
    listed(load);
    let (mut ended, _) = watched(load, random);
    let again = ended.split_off(ended.len().saturating_sub(keys));
    ended.iter().take(ends).for_each(|(id, _)| {
        load.ask(id);
    });
    again.iter().for_each(|(_, entry)| load.submit_again(&entry.submission));
}

/// Waits until every task has ended, then checks that each result is unchanged.
pub(super) fn settle(load: &Load, random: &mut Random, keys: usize) {
    let (backlog, _) = load.ledger().backlog();
    all_ended(load, LONG + SLOWER * backlog);
    glance(load, random, 0, keys);
    load.ledger().dependencies();
    read_back(load, random);
}

/// Reads the result of each watched task back.
pub(super) fn read_back(load: &Load, random: &mut Random) {
    let (ended, open) = watched(load, random);
    for (id, _) in ended.iter().chain(&open) {
        if !load.ask(id) {
            // The coordinator may be about to answer again.
            let left = until_ended(load, vec![id.clone()], SHORT);
            if !left.is_empty() {
                let what = format!("task {id} cannot be read back");
                load.ledger().violation(Breach::Lost, what);
            }
        }
    }
}

fn all_ended(load: &Load, most: Duration) {
    let open = load.ledger().open();
    let left = until_ended(load, open, most);
    if left.is_empty() {
        return;
    }
    let why: Vec<String> = left.iter().take(3).map(|id| explained(load, id)).collect();
    let what = format!("{} tasks have not ended within {most:?}: {}", left.len(), why.join("; "));
    load.ledger().violation(Breach::Lost, what);
}

/// The cluster's explanation for a task that does not end.
fn explained(load: &Load, id: &str) -> String {
    format!("{id}: {:?}", load.rest.get(&format!("tasks/{id}/why")))
}

/// Checks the list, and reads the tasks that it shows as ended.
fn listed(load: &Load) {
    match load.rest.list() {
        Ok(list) => {
            let ended = load.ledger().listed(&list);
            ended.iter().for_each(|id| {
                load.ask(id);
            });
        }
        Err(other) => {
            let what = format!("the list was met with {other:?}");
            load.ledger().violation(Breach::Other, what);
        }
    }
}

/// Tasks by their ids.
type Watched = Vec<(String, Entry)>;

/// The watched tasks in random order: those with a seen end, and the others.
fn watched(load: &Load, random: &mut Random) -> (Watched, Watched) {
    let mut watched = load.ledger().watched();
    for at in (1..watched.len()).rev() {
        let other = random.below(u64::try_from(at + 1).unwrap_or(1));
        watched.swap(at, usize::try_from(other).unwrap_or_default());
    }
    watched.into_iter().partition(|(_, entry)| entry.has_ended())
}
