//! Rounds: load, a fault, recovery, and then what was promised is asked for; now and then, and at
//! the end, everything is.

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

/// Within which something must succeed again.
const RECOVERY: Duration = Duration::from_secs(45);
/// How long a round waits for the short tasks that were acknowledged before its fault. What takes
/// longer is waited for when all is.
const SETTLED: Duration = Duration::from_secs(3);
/// How long a round waits until its tasks are under way, for the fault to strike them.
const BUSY: Duration = Duration::from_millis(700);
/// Ends and keys that are asked for again after a round.
const ENDS_AGAIN: usize = 30;
const KEYS_AGAIN: usize = 8;
/// Rounds, and the time, after which everything is asked for and let go: less than what the cluster
/// keeps keys and their records for.
const SETTLE_EVERY: u64 = 100;
const SETTLE_AFTER: Duration = Duration::from_secs(240);
/// Rounds after which the cluster must become whole, where nothing lasts just then.
const WHOLE_EVERY: u64 = 10;
/// Rounds after which one of the longest tasks is submitted, unless there is one.
const GIANT_EVERY: u64 = 15;
/// From here on a task keeps what is to end in order from ending soon.
const LONG: Duration = Duration::from_secs(6);

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// Of each fault, its rounds.
    pub(super) rounds: BTreeMap<&'static str, Vec<Round>>,
    /// Rounds in which something was killed.
    pub(super) kills: u64,
    /// What clients were told, counted.
    pub(super) told: BTreeMap<String, u64>,
    pub(super) tally: Tally,
    /// What became of the datagrams of the machine behind the relay.
    pub(super) relay: Counts,
    /// How long it took until every worker was there.
    pub(super) whole: Vec<Duration>,
    /// How long everything took to end and to be read back.
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
    /// From the fault to the first result of something asked for after it.
    pub(super) recovered: Duration,
    /// From the fault until every short task acknowledged before it had ended, where the round saw
    /// that.
    pub(super) settled: Option<Duration>,
}

/// Which rounds a run has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Plan {
    /// From the first of these numbers to the second, as a seed deals them, within so long.
    Dealt { from: u64, to: u64, most: Duration },
    /// Those of the short run.
    Sample,
}

/// Runs a cluster of `binary` in `folder` and does damage to it.
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
    // What was shown survives an orderly end as well.
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

/// Nothing more is done until the cluster is whole, everything has ended and was read back.
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

/// Has tasks under way that a fault will hit.
fn under_way(stage: &mut Stage<'_>, number: u64) {
    let load = stage.load;
    let mut random = Random::new(stage.random.next());
    if number % GIANT_EVERY == 1 && load.ledger().backlog().1 < LONG {
        load.giant(&format!("giant-{number}"), &mut random);
    }
    load.volley(&format!("volley-{number}"), &mut random);
    stage.until_busy(BUSY);
}
