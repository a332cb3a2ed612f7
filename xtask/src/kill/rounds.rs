//! A round: load, a fault, recovery, and then a check of every acknowledged task at each coordinator.

use super::callers::{Callers, submit};
use super::client::{Answer, Client};
use super::faults::{self, Fault, Struck};
use super::history::{History, Known};
use super::judge::judge;
use super::settle::{Past, settle};
use super::stage::{COORDINATORS, Stage};
use crate::relay::Random;
use anyhow::Result;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// How soon durable tasks must be accepted again.
pub(super) const RECOVERY: Duration = Duration::from_secs(5);
/// How long to wait for it, to tell late from never.
const RECOVERY_MAX: Duration = Duration::from_secs(40);
/// The pause between probes, which do not wait for earlier ones: those may hang.
const PROBE: Duration = Duration::from_millis(200);
/// How long a killed process stays down.
const DEAD: Duration = Duration::from_millis(2_500);
/// The time of load after everything works again.
const AFTER: Duration = Duration::from_millis(500);

/// The result of a round.
pub(super) struct Round {
    pub(super) number: u64,
    pub(super) fault: String,
    /// The time from the end of the fault, for each living coordinator.
    pub(super) recovered: Vec<Duration>,
    /// The time since a restarted coordinator said it was ready.
    pub(super) rejoined: Vec<Duration>,
    pub(super) pause_of_tasks: Duration,
    pub(super) pause_of_inferences: Duration,
    pub(super) tasks: usize,
    pub(super) inferences: usize,
    /// Counts of tasks by end, and of requests without a result.
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) took: Duration,
    pub(super) broken: Vec<String>,
}

impl Round {
    fn new(number: u64, fault: String) -> Self {
        Self {
            number,
            fault,
            recovered: Vec::new(),
            rejoined: Vec::new(),
            pause_of_tasks: Duration::ZERO,
            pause_of_inferences: Duration::ZERO,
            tasks: 0,
            inferences: 0,
            counts: BTreeMap::new(),
            took: Duration::ZERO,
            broken: Vec::new(),
        }
    }

    /// A round that could not be finished.
    pub(super) fn broken(number: u64, fault: String, what: String) -> Self {
        Self { broken: vec![what], ..Self::new(number, fault) }
    }
}

/// Runs one round on a whole cluster, and records its events in `history`.
pub(super) fn run(
    stage: &mut Stage,
    fault: Fault,
    (seed, number): (u64, u64),
    past: &mut Past,
    history: &History,
) -> Result<Round> {
    let began = Instant::now();
    stage.whole()?;
    let mut random = Random::new(seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let clients = stage.clients.clone();
    let stop = AtomicBool::new(false);
    let name = format!("r{number}-{}", random.next());
    let callers = Callers {
        clients: &clients,
        history,
        stop: &stop,
        name: name.clone(),
        seed: random.next(),
    };
    let probes = Probes { clients: &clients, history, name: &name };
    let mut round = Round::new(number, fault.name());
    let hit = std::thread::scope(|scope| {
        callers.run(scope);
        std::thread::sleep(Duration::from_millis(600 + random.below(500)));
        let struck = fault.strike(stage, &mut random, std::thread::sleep);
        let hit = struck.and_then(|struck| recover(scope, &probes, stage, struck, &mut round));
        stop.store(true, Relaxed);
        hit
    })?;
    let until_us = history.now_us();
    let spared: Vec<usize> = (0..COORDINATORS).filter(|at| !hit.contains(at)).collect();
    round.pause_of_tasks = history.pause_of_tasks(&spared, until_us);
    round.pause_of_inferences = history.pause_of_inferences(&spared, until_us);
    let broken = settle(&clients, history, &mut random, past);
    round.broken.extend(broken);
    round.broken.extend(judge(&history.events()));
    round.broken.extend(stage.ended()?);
    count(&mut round, history, &spared);
    round.took = began.elapsed();
    Ok(round)
}

/// Waits until every coordinator accepts durable tasks again, and restarts the killed process.
fn recover<'s, 'e: 's>(
    scope: &'s Scope<'s, 'e>,
    probes: &'e Probes<'e>,
    stage: &mut Stage,
    struck: Struck,
    round: &mut Round,
) -> Result<Vec<usize>> {
    let live = (0..COORDINATORS).filter(|at| struck.dead != Some(*at));
    let found = probes.wait(scope, live.collect(), struck.over);
    keep(&mut round.broken, &mut round.recovered, found, "after the fault");
    if let Some(dead) = struck.dead {
        std::thread::sleep(DEAD.saturating_sub(struck.over.elapsed()));
        faults::mend(stage, dead)?;
        if dead < COORDINATORS {
            let found = probes.wait(scope, vec![dead], Instant::now());
            keep(&mut round.broken, &mut round.rejoined, found, "after it was started again");
        }
    }
    std::thread::sleep(AFTER);
    Ok(struck.hit)
}

fn keep(
    broken: &mut Vec<String>,
    kept: &mut Vec<Duration>,
    found: Vec<(usize, Option<Duration>)>,
    since: &str,
) {
    for (at, recovered) in found {
        kept.push(recovered.unwrap_or(RECOVERY_MAX));
        match recovered {
            Some(time) if time <= RECOVERY => {}
            Some(time) => broken.push(format!(
                "coordinator {at} accepts durable tasks {} ms {since}, expected {RECOVERY:?}",
                time.as_millis()
            )),
            None => broken.push(format!(
                "coordinator {at} accepts no durable task within {RECOVERY_MAX:?} {since}"
            )),
        }
    }
}

/// Requests that ask whether durable tasks are accepted.
struct Probes<'a> {
    clients: &'a [Client],
    history: &'a History,
    name: &'a str,
}

impl<'a> Probes<'a> {
    /// The time after `since` until each coordinator in `at` accepted a task submitted after it.
    fn wait<'s>(
        &'a self,
        scope: &'s Scope<'s, 'a>,
        at: Vec<usize>,
        since: Instant,
    ) -> Vec<(usize, Option<Duration>)> {
        let found: Arc<Mutex<BTreeMap<usize, Duration>>> = Arc::default();
        let known = |found: &Mutex<BTreeMap<usize, Duration>>| {
            found.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        let mut number = 0;
        while since.elapsed() < RECOVERY_MAX {
            let so_far = known(&found);
            let missing = at.iter().copied().filter(|at| !so_far.contains_key(at));
            let missing: Vec<usize> = missing.collect();
            if missing.is_empty() {
                break;
            }
            for at in missing {
                number += 1;
                let began = self.history.now_us();
                let key = format!("{}-probe-{began}-{number}", self.name);
                let found = Arc::clone(&found);
                scope.spawn(move || self.probe(key, at, since, &found));
            }
            std::thread::sleep(PROBE);
        }
        let found = known(&found);
        at.into_iter().map(|at| (at, found.get(&at).copied())).collect()
    }

    fn probe(
        &self,
        key: String,
        at: usize,
        since: Instant,
        found: &Mutex<BTreeMap<usize, Duration>>,
    ) {
        let caller = 1_000 + u64::try_from(self.history.now_us()).unwrap_or(0);
        let known = Known { key, task: String::new(), iterations: 1 };
        let answer = submit(self.clients, self.history, (caller, at), &known);
        if matches!(answer, Answer::Accepted(_)) {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.entry(at).or_insert(since.elapsed());
        }
    }
}

fn count(round: &mut Round, history: &History, spared: &[usize]) {
    let known = history.known();
    round.tasks = known.len();
    let mut ends: BTreeMap<String, String> = BTreeMap::new();
    for event in history.events() {
        let Answer::Ended(end) = &event.answer else {
            let what = match &event.answer {
                Answer::Refused(code) => format!("{:?} refused: {code}", event.asked),
                Answer::Lost(_) => format!("{:?} without an answer", event.asked),
                _ => continue,
            };
            *round.counts.entry(what).or_default() += 1;
            continue;
        };
        let state = end.split(' ').next().unwrap_or_default();
        ends.insert(event.key, format!("task {state}"));
    }
    for end in ends.into_values() {
        *round.counts.entry(end).or_default() += 1;
    }
    let inferences = history.inferences();
    round.inferences = inferences.len();
    for inference in inferences {
        let Some(failure) = inference.failure else { continue };
        if spared.contains(&inference.at) {
            round.broken.push(format!(
                "an inference at coordinator {}, which was not hit, {} to {} us after the round began: \
                 {failure}",
                inference.at, inference.began_us, inference.ended_us
            ));
        } else {
            *round.counts.entry("inference failed where the fault hit".to_owned()).or_default() +=
                1;
        }
    }
}
