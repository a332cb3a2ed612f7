//! Rounds: load, a fault, recovery, and then everything that was promised is asked for.

use super::fault::{Deck, Fault, SAMPLE, by_name};
use super::load::Load;
use super::picture::Pictures;
use super::process::Site;
use super::rest::Answer;
use super::stage::{LOCAL, Stage};
use crate::relay::{Counts, Random};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Clients: of each kind two.
const CLIENTS: u64 = 6;
/// Within which something must succeed again, and every acknowledged task must have ended.
const RECOVERY: Duration = Duration::from_secs(30);
/// Ends and keys that are asked for again after a round.
const ENDS_AGAIN: usize = 80;
const KEYS_AGAIN: usize = 20;
/// Rounds after which the cluster must become whole.
const WHOLE_EVERY: u64 = 10;

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Of each fault, its rounds.
    pub(super) rounds: BTreeMap<&'static str, Vec<Round>>,
    /// Rounds in which something was killed.
    pub(super) kills: u64,
    /// What clients were told, counted.
    pub(super) told: BTreeMap<String, u64>,
    /// Ends of durable tasks, counted.
    pub(super) ends: BTreeMap<String, u64>,
    pub(super) accepted: u64,
    /// Tasks that took more than one attempt.
    pub(super) redone: u64,
    pub(super) seen_again: u64,
    pub(super) keys_again: u64,
    /// What became of the datagrams of the machine behind the relay.
    pub(super) relay: Counts,
    /// How long it took until every worker was there.
    pub(super) whole: Vec<Duration>,
    pub(super) violations: Vec<String>,
    pub(super) took: Duration,
}

/// One round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// From the fault to the first result of something asked for after it.
    pub(super) recovered: Duration,
    /// From the fault until every durable task acknowledged before it had ended.
    pub(super) settled: Duration,
}

/// Which faults a run tries.
pub(super) enum Plan {
    /// So many, as a seed deals them.
    Dealt(u64),
    /// Those of the short run.
    Sample,
}

/// Runs a cluster of `binary` in `folder` and does damage to it.
pub(super) fn run(binary: &Path, folder: &Path, plan: &Plan, seed: u64) -> Result<Results> {
    let began = Instant::now();
    let site = Site::new(binary, folder.to_owned(), [127, 0, 0, 1].into(), LOCAL)?;
    let pictures = Pictures::new(&site, seed)?;
    let load = Load::new(&site.url(), pictures);
    let mut stage = Stage::set(&site, &load, seed)?;
    let mut results = Results::default();
    under_load(&load, seed, || all(&mut stage, plan, seed, &mut results));
    results.told = load.told();
    results.relay = stage.relay.counts();
    let mut ledger = load.ledger();
    results.violations = std::mem::take(&mut ledger.violations);
    results.ends = std::mem::take(&mut ledger.ends);
    (results.accepted, results.redone) = (ledger.accepted, ledger.redone);
    (results.seen_again, results.keys_again) = (ledger.seen_again, ledger.keys_again);
    results.took = began.elapsed();
    Ok(results)
}

/// Does `work` while clients are there; that it fails is a violation.
pub(super) fn under_load(load: &Load, seed: u64, work: impl FnOnce() -> Result<()>) {
    let done = std::thread::scope(|scope| {
        // Also when something goes wrong or panics: the scope waits for the clients.
        let _end = End(load);
        for number in 0..CLIENTS {
            scope.spawn(move || load.client(number, seed));
        }
        work()
    });
    if let Err(error) = done {
        load.ledger().violation(format!("{error:#}"));
    }
}

/// Ends the clients when dropped.
struct End<'a>(&'a Load);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn all(stage: &mut Stage<'_>, plan: &Plan, seed: u64, results: &mut Results) -> Result<()> {
    let load = stage.load;
    let mut deck = Deck::new(seed);
    let count = match plan {
        Plan::Dealt(count) => *count,
        Plan::Sample => u64::try_from(SAMPLE.len())?,
    };
    let mut sample = SAMPLE.iter();
    for number in 1..=count {
        let fault = match (plan, sample.next()) {
            (Plan::Sample, Some(name)) => by_name(name)?,
            _ => deck.deal()?,
        };
        let round = round(stage, fault)?;
        let (recovered, settled) = (round.recovered.as_millis(), round.settled.as_millis());
        eprintln!(
            "round {number} of {count}: {}: recovered after {recovered} ms, settled after {settled} ms",
            fault.name
        );
        results.rounds.entry(fault.name).or_default().push(round);
        results.kills += u64::from(fault.kills);
        if number % WHOLE_EVERY == 0 || number == count {
            results.whole.push(stage.whole()?);
        }
    }
    check(load, &mut stage.random, usize::MAX, usize::MAX);
    // What was shown survives an orderly end as well.
    stage.stop_in_order()?;
    stage.follow()?;
    check(load, &mut stage.random, usize::MAX, 0);
    Ok(())
}

fn round(stage: &mut Stage<'_>, fault: &Fault) -> Result<Round> {
    let load = stage.load;
    load.resume();
    std::thread::sleep(stage.some_ms(100, 400));
    (fault.strike)(stage)?;
    let recovered = loop {
        if let Some(recovered) = load.recovered() {
            break recovered;
        }
        if load.since_hurt() > RECOVERY {
            let what = format!("{}: nothing succeeds within {RECOVERY:?}", fault.name);
            load.ledger().violation(what);
            break load.since_hurt();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    until_ended(load, load.acknowledged_before());
    let settled = load.since_hurt();
    stage.heal();
    load.pause()?;
    check(load, &mut stage.random, ENDS_AGAIN, KEYS_AGAIN);
    Ok(Round { recovered, settled })
}

/// Asks for tasks until each has ended.
fn until_ended(load: &Load, mut ids: Vec<String>) {
    let began = Instant::now();
    loop {
        ids.retain(|id| {
            let answer = load.rest.get(&format!("tasks/{id}"));
            !load.ledger().asked(id, &answer, &load.pictures)
        });
        if ids.is_empty() {
            return;
        }
        if began.elapsed() > RECOVERY {
            let what = format!("these tasks have not ended within {RECOVERY:?}: {ids:?}");
            return load.ledger().violation(what);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// With every client at rest: each task has ended, the list is right, and ends and keys, so many
/// of them, are what they were.
pub(super) fn check(load: &Load, random: &mut Random, ends: usize, keys: usize) {
    let open = load.ledger().open();
    until_ended(load, open);
    match load.rest.get("tasks") {
        Answer::Said(200, list) => load.ledger().listed(&list),
        other => load.ledger().violation(format!("the list was met with {other:?}")),
    }
    let mut watched = load.ledger().watched();
    shuffle(&mut watched, random);
    for (id, _) in watched.iter().take(ends) {
        let answer = load.rest.get(&format!("tasks/{id}"));
        load.ledger().asked(id, &answer, &load.pictures);
    }
    for (_, entry) in watched.iter().take(keys) {
        load.submit(&entry.key, entry.picture);
    }
    load.ledger().retire();
}

fn shuffle<T>(list: &mut [T], random: &mut Random) {
    for at in (1..list.len()).rev() {
        let other = random.below(u64::try_from(at + 1).unwrap_or(1));
        list.swap(at, usize::try_from(other).unwrap_or_default());
    }
}
