//! Rounds of load, a fault, recovery, and a check of promises. At intervals and at the end, all
//! promises are checked.

use super::check::{glance, read_back, settle, until_ended};
use super::faults::{Deck, Fault, Kind, SAMPLE, by_name};
use super::ledger::{Breach, Tally, Violation};
use super::load::Load;
use super::models;
use super::picture::Pictures;
use super::process::Site;
use super::stage::{LOCAL, Stage};
use super::world::World;
use crate::relay::{Counts, Random};
use crate::report::Skip;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// How soon after a fault some request must succeed.
const RECOVERY: Duration = Duration::from_secs(45);
/// How long a round waits for the short tasks acknowledged before its fault. Longer tasks are
/// awaited when everything settles.
const SETTLED: Duration = Duration::from_secs(3);
/// How long a round waits for its tasks to run, so that the fault strikes them.
const BUSY: Duration = Duration::from_millis(700);
/// Ends and keys that are asked for again after a round.
const ENDS_AGAIN: usize = 30;
const KEYS_AGAIN: usize = 8;
/// The rounds, and the time, after which everything is checked and released: less than the cluster
/// keeps keys and their records.
const SETTLE_EVERY: u64 = 100;
const SETTLE_AFTER: Duration = Duration::from_secs(240);
/// Rounds after which every worker must be back, if no fault lasts at that moment.
const WHOLE_EVERY: u64 = 10;
/// Rounds after which one of the longest tasks is submitted, unless there is one.
const GIANT_EVERY: u64 = 15;
/// A task of this length delays an orderly end too much.
const LONG: Duration = Duration::from_secs(6);

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The rounds of each fault.
    pub(super) rounds: BTreeMap<&'static str, Vec<Round>>,
    /// The number of rounds that killed a process.
    pub(super) kills: u64,
    /// Counts of the answers that clients got.
    pub(super) told: BTreeMap<String, u64>,
    pub(super) tally: Tally,
    /// Counts of the datagrams that the relay handled.
    pub(super) relay: Counts,
    /// How long it took until every worker was ready.
    pub(super) whole: Vec<Duration>,
    /// How long it took until every task had ended and was read back.
    pub(super) settled: Vec<Duration>,
    pub(super) skipped: Vec<Skip>,
    pub(super) violations: Vec<Violation>,
    /// Iterations of `work` that a thread does in a second.
    pub(super) pace: f64,
    pub(super) took: Duration,
    /// The round to go on with, where time was over.
    pub(super) next: Option<u64>,
}

/// One round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    /// From the fault to the first success of a later request.
    pub(super) recovered: Duration,
    /// From the fault to the end of every short task acknowledged before it, if the round saw that.
    pub(super) settled: Option<Duration>,
}

/// The rounds of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plan {
    /// Rounds `from` to `to`, dealt from a seed, for at most `most`.
    Dealt { from: u64, to: u64, most: Duration },
    /// The rounds of the short run.
    Sample,
}

/// Runs a cluster of `binary` in `folder` and injects faults.
pub(super) fn run(binary: &Path, folder: &Path, plan: Plan, seed: u64) -> Result<Results> {
    let began = Instant::now();
    let mut world = match plan {
        Plan::Dealt { .. } => World::whole(folder)?,
        Plan::Sample => World::default(),
    };
    let mut site = Site::new(binary, folder.to_owned(), world.ip(), LOCAL)?;
    if matches!(plan, Plan::Dealt { .. }) {
        world.furnish(&mut site)?;
    }
    let pace = models::pace(&site)?;
    let load = Load::of_use(&site, Pictures::new(&site, seed)?, pace);
    let mut results = Results { pace, skipped: world.skipped.clone(), ..Results::default() };
    {
        let mut stage = Stage::set(&site, &world, &load, seed)?;
        models::add(&load.rest)?;
        load.during(seed, || all(&mut stage, plan, seed, &mut results));
        results.relay = stage.relay.counts();
    }
    results.told = load.told();
    let mut ledger = load.ledger();
    results.violations = std::mem::take(&mut ledger.violations);
    results.tally = ledger.tally.clone();
    results.took = began.elapsed();
    Ok(results)
}

fn all(stage: &mut Stage<'_>, plan: Plan, seed: u64, results: &mut Results) -> Result<()> {
    let load = stage.load;
    let began = Instant::now();
    let mut deck = Deck::new(seed);
    let (from, to, most) = match plan {
        Plan::Dealt { from, to, most } => (from, to, most),
        Plan::Sample => (1, u64::try_from(SAMPLE.len())?, Duration::MAX),
    };
    let world = stage.world;
    let has = |fault: &Fault| world.has(fault.need);
    for _ in 1..from {
        deck.deal(has, |_| true)?;
    }
    let mut settled = Instant::now();
    for number in from..=to {
        if began.elapsed() > most {
            results.next = Some(number);
            break;
        }
        let fault = match plan {
            Plan::Sample => by_name(SAMPLE[usize::try_from(number - 1)?])?,
            Plan::Dealt { .. } => {
                let slow = stage.is_troubled() || load.ledger().backlog().1 > LONG;
                deck.deal(has, |fault| fault.kind != Kind::Orderly || !slow)?
            }
        };
        let round = round(stage, fault, number)?;
        told(number, to, fault, &round);
        results.rounds.entry(fault.name).or_default().push(round);
        results.kills += u64::from(fault.kind == Kind::Kills);
        if number % WHOLE_EVERY == 0 && !stage.is_troubled() {
            results.whole.push(stage.whole()?);
        }
        if number % SETTLE_EVERY == 0 || settled.elapsed() > SETTLE_AFTER {
            results.settled.push(calm(stage)?);
            load.ledger().let_all_go();
            settled = Instant::now();
        }
    }
    results.settled.push(calm(stage)?);
    // Ends that were shown must survive an orderly end too.
    stage.stop_in_order()?;
    stage.follow()?;
    read_back(load, &mut stage.random);
    Ok(())
}

fn told(number: u64, to: u64, fault: &Fault, round: &Round) {
    let after = |time: Option<Duration>| match time {
        Some(time) => format!("after {} ms", time.as_millis()),
        None => "later".to_owned(),
    };
    let (recovered, settled) = (after(Some(round.recovered)), after(round.settled));
    eprintln!("round {number} of {to}: {}: recovered {recovered}, settled {settled}", fault.name);
}

/// Waits until the cluster is whole and every task has ended and was read back.
fn calm(stage: &mut Stage<'_>) -> Result<Duration> {
    let began = Instant::now();
    stage.heal_all()?;
    stage.load.pause()?;
    stage.whole()?;
    settle(stage.load, &mut stage.random, KEYS_AGAIN);
    let took = began.elapsed();
    eprintln!("everything has ended and was read back after {} ms", took.as_millis());
    Ok(took)
}

fn round(stage: &mut Stage<'_>, fault: &Fault, number: u64) -> Result<Round> {
    let load = stage.load;
    stage.heal_due()?;
    load.resume();
    std::thread::sleep(stage.some_ms(50, 250));
    under_way(stage, number);
    (fault.strike)(stage)?;
    let recovered = loop {
        if let Some(recovered) = load.recovered() {
            break recovered;
        }
        if load.since_hurt() > RECOVERY {
            let what = format!("{}: nothing succeeds within {RECOVERY:?}", fault.name);
            load.ledger().violation(Breach::Late, what);
            break load.since_hurt();
        }
        stage.heal_due()?;
        std::thread::sleep(Duration::from_millis(2));
    };
    let most = SETTLED.saturating_sub(load.since_hurt());
    let left = until_ended(load, load.acknowledged_before(), most);
    let settled = left.is_empty().then(|| load.since_hurt());
    stage.heal_due()?;
    load.pause()?;
    glance(load, &mut stage.random, ENDS_AGAIN, KEYS_AGAIN);
    Ok(Round { recovered, settled })
}

/// Submits tasks for the fault to hit.
fn under_way(stage: &mut Stage<'_>, number: u64) {
    let load = stage.load;
    let mut random = Random::new(stage.random.next());
    if number % GIANT_EVERY == 1 && load.ledger().backlog().1 < LONG {
        load.giant(&format!("giant-{number}"), &mut random);
    }
    load.volley(&format!("volley-{number}"), &mut random);
    stage.until_busy(BUSY);
}
