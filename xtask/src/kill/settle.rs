//! The end of a round: asks every coordinator for every task until it has ended, and a random
//! coordinator for some tasks of earlier rounds.

use super::callers::submit;
use super::client::{Answer, Client};
use super::history::{Asked, History, Known};
use crate::relay::Random;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How soon every task must have ended.
const ENDED: Duration = Duration::from_secs(30);
/// Tasks of earlier rounds, and keys, that are asked for again.
const AGAIN: usize = 12;
/// How many tasks of earlier rounds are remembered.
const PAST_MAX: usize = 3_000;

/// Tasks of earlier rounds, with their ends.
#[derive(Default)]
pub(super) struct Past(Vec<(Known, String)>);

/// Waits until every task has ended, and compares the coordinators' answers; checks some tasks of
/// earlier rounds and some keys at a random coordinator.
pub(super) fn settle(
    clients: &[Client],
    history: &History,
    random: &mut Random,
    past: &mut Past,
) -> Vec<String> {
    let known = history.known();
    let end = Instant::now() + ENDED;
    let mut broken = std::thread::scope(|scope| {
        let asked = (0..clients.len()).map(|at| {
            let known = &known;
            scope.spawn(move || all_ended(clients, history, (200 + at as u64, at), known, end))
        });
        let asked: Vec<_> = asked.collect();
        let joined = asked.into_iter().map(|it| it.join().unwrap_or_default());
        joined.collect::<Vec<_>>().concat()
    });
    let mut draw = |count: usize| usize::try_from(random.below(count as u64)).unwrap_or(0);
    for _ in 0..AGAIN.min(known.len()) {
        let (known, at) = (&known[draw(known.len())], draw(clients.len()));
        submit(clients, history, (300, at), known);
    }
    for _ in 0..AGAIN.min(past.0.len()) {
        let ((known, end), at) = (&past.0[draw(past.0.len())], draw(clients.len()));
        let answer = clients[at].look(&known.task, Duration::ZERO);
        let is_same = match &answer {
            Answer::Ended(now) => now == end,
            Answer::Refused(_) | Answer::Lost(_) => true,
            _ => false,
        };
        if !is_same {
            let Known { key, task, .. } = known;
            broken.push(format!(
                "task {task} of key {key}, which had ended as {end}, is {answer:?} at coordinator {at}"
            ));
        }
    }
    let mut ends: BTreeMap<String, String> = BTreeMap::new();
    for event in history.events() {
        if let Answer::Ended(end) = event.answer {
            ends.insert(event.key, end);
        }
    }
    let ended = known.into_iter().filter_map(|it| ends.get(&it.key).map(|end| (it, end.clone())));
    past.0.extend(ended.collect::<Vec<_>>());
    let surplus = past.0.len().saturating_sub(PAST_MAX);
    past.0.drain(..surplus);
    broken
}

/// Asks a coordinator for each task until it has ended.
fn all_ended(
    clients: &[Client],
    history: &History,
    (caller, at): (u64, usize),
    known: &[Known],
    end: Instant,
) -> Vec<String> {
    let mut broken = Vec::new();
    for known in known {
        loop {
            let look = || clients[at].look(&known.task, Duration::from_secs(3));
            let answer = history.ask((caller, at), Asked::Look, known, look);
            if matches!(answer, Answer::Ended(_) | Answer::Unknown) {
                break;
            }
            if Instant::now() > end {
                let Known { key, task, .. } = known;
                broken.push(format!(
                    "task {task} of key {key} has not ended at coordinator {at}: {answer:?}"
                ));
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    broken
}
