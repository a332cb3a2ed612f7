//! Partitions of a real network: two machines in network namespaces of their own, whose links to
//! the coordinator are cut.

use super::check::check;
use super::load::Load;
use super::picture::Pictures;
use super::process::{Process, Site};
use super::rest::Answer;
use super::world::island::{self, Direction, Island};
use crate::relay::Random;
use crate::report::Outcome;
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Silence that is forgiven, and silence that is not.
const SHORT: Duration = Duration::from_millis(800);
const LONG: Duration = Duration::from_secs(4);
/// How soon a worker notices that only the direction towards it is cut.
const ONE_WAY: Duration = Duration::from_secs(7);
/// How soon a silent worker must be given up: two seconds, and some for a busy machine.
const NOTICED: Duration = Duration::from_millis(2_700);
/// How soon a machine must be back once its link is.
const BACK: Duration = Duration::from_secs(10);

/// Cuts links for shorter and longer than detection takes.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<Outcome> {
    let islands = match island::some(2) {
        Ok(islands) => islands,
        Err(skip) => return Ok(Outcome::skip(skip)),
    };
    let everywhere = IpAddr::from([0, 0, 0, 0]);
    let site = Site::new(binary, folder.to_owned(), everywhere, 0)?;
    let load = Load::of_digits(&site, Pictures::new(&site, 3)?);
    let _coordinator = site.start()?;
    let Answer::Said(_, made) = load.rest.post("tokens", &json!({ "uses": 2 })) else {
        bail!("no token");
    };
    let token = made["token"].as_str().context("no token")?;
    let mut machines = Vec::new();
    for (number, island) in islands.iter().enumerate() {
        let addr = SocketAddr::new(island.host, site.quic.port());
        let name = format!("island-{number}");
        machines.push(site.join(&island.through(), addr, &name, Some(token))?);
    }
    wait_for(&load, &["ready", "ready"], BACK)?;
    let mut passed = 0;
    load.during(3, || {
        for (links, cut, direction) in [
            (1, SHORT, Direction::Both),
            (1, LONG, Direction::Both),
            (2, SHORT, Direction::Both),
            (2, LONG, Direction::Both),
            (1, LONG, Direction::ToCoordinator),
            (1, ONE_WAY, Direction::ToWorker),
        ] {
            partition(&load, islands.get(..links).unwrap_or(&islands), cut, direction)?;
            alive(&mut machines)?;
            passed += 1;
        }
        Ok(())
    });
    Ok(Outcome { passed, failed: load.failures(), ..Outcome::default() })
}

/// Cuts some links for a while under load, and checks promises afterwards.
fn partition(load: &Load, cut: &[Island], time: Duration, direction: Direction) -> Result<()> {
    load.resume();
    std::thread::sleep(Duration::from_millis(300));
    let lost = lost(load)?;
    cut.iter().try_for_each(|island| island.cut(direction))?;
    let began = Instant::now();
    if time > NOTICED {
        let mut wanted = ["ready", "ready"];
        wanted.iter_mut().take(cut.len()).for_each(|state| *state = "lost");
        let most = if direction == Direction::ToWorker { ONE_WAY } else { NOTICED };
        wait_for(load, &wanted, most).context("the cut is not noticed")?;
    }
    std::thread::sleep(time.saturating_sub(began.elapsed()));
    cut.iter().try_for_each(Island::heal)?;
    load.hurt();
    wait_for(load, &["ready", "ready"], BACK).context("they do not come back")?;
    let back = load.since_hurt();
    load.pause()?;
    check(load, &mut Random::new(1), 50, 10);
    let retries = self::lost(load)?.saturating_sub(lost);
    // A cut shorter than the tolerated silence must not repeat attempts.
    ensure!(time > NOTICED || retries == 0, "{retries} attempts repeated for a cut of {time:?}");
    eprintln!(
        "{} of 2 links cut ({direction:?}) for {time:?}: back after {back:?}, {retries} attempts repeated",
        cut.len()
    );
    Ok(())
}

/// Waits until the machines, by name, are in these states.
fn wait_for(load: &Load, states: &[&str], most: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = load.rest.get("workers");
        let Answer::Said(200, workers) = &answer else { bail!("the list was met with {answer:?}") };
        let workers = workers.as_array().cloned().unwrap_or_default();
        let given = workers.iter().map(|worker| worker["state"].as_str().unwrap_or_default());
        if given.clone().eq(states.iter().copied()) {
            return Ok(());
        }
        if began.elapsed() > most {
            let given: Vec<_> = given.collect();
            bail!("the machines are {given:?} after {most:?}, expected {states:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Attempts that had to be repeated so far.
fn lost(load: &Load) -> Result<u64> {
    match load.rest.get("stats") {
        Answer::Said(200, stats) => stats["retries"].as_u64().context("no retries"),
        other => bail!("stats were met with {other:?}"),
    }
}

/// Checks that no machine's process has ended.
fn alive(machines: &mut [Process]) -> Result<()> {
    for machine in machines {
        if let Some(status) = machine.ended()? {
            bail!("a machine ended with {status}");
        }
    }
    Ok(())
}
