//! Clocks that jump by hours and weeks under a running cluster. Calendar time must not matter to
//! tasks. Records of ended tasks are kept for a calendar time, which a clock set forward shortens
//! at the next start.

use super::check::check;
use super::load::Load;
use super::picture::Pictures;
use super::process::{Process, Site, signal};
use super::rest::Answer;
use super::world::clock::{Clocks, Whose};
use crate::cmd;
use crate::relay::Random;
use crate::report::Outcome;
use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use std::path::Path;
use std::time::Duration;

/// The clock's offsets in seconds, one after another.
const JUMPS: [i64; 5] = [3_600, -3_600, 12 * 3_600, -40 * 86_400, 0];
/// Seconds for which the cluster keeps the record of a task that has ended.
const KEPT: i64 = 600;
/// How long clients work under each offset.
const WORK: Duration = Duration::from_millis(1_500);

/// Sets the clock to each offset, and restarts the coordinator under it.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<Outcome> {
    let mut site = Site::new(binary, folder.to_owned(), [127, 0, 0, 1].into(), 1)?;
    let clocks = match Clocks::new(&site.folder)? {
        Ok(clocks) => clocks,
        Err(skip) => return Ok(Outcome::skip(skip)),
    };
    clocks.show(&mut site);
    jumps(&site, &clocks)?;
    let load = Load::of_digits(&site, Pictures::new(&site, 4)?);
    let mut coordinator = site.start()?;
    let (mut passed, mut before) = (0, 0);
    load.during(4, || {
        for jump in JUMPS {
            load.resume();
            std::thread::sleep(WORK / 2);
            clocks.set(Whose::Coordinator, jump)?;
            std::thread::sleep(WORK);
            load.pause()?;
            check(&load, &mut Random::new(1), usize::MAX, 20);
            if jump - before > KEPT {
                load.ledger().let_go();
            }
            before = jump;
            coordinator = restart(&site, &load, coordinator, jump)?;
            check(&load, &mut Random::new(1), usize::MAX, 20);
            eprintln!("a clock off by {jump} s: done");
            passed += 1;
        }
        Ok(())
    });
    Ok(Outcome { passed, failed: load.failures(), ..Outcome::default() })
}

/// Restarts a killed coordinator that has tasks which no worker has finished.
fn restart(site: &Site, load: &Load, mut coordinator: Process, jump: i64) -> Result<Process> {
    let Answer::Said(200, workers) = load.rest.get("workers") else { bail!("no list of workers") };
    let pids = workers.as_array().into_iter().flatten().filter_map(|w| w["pid"].as_u64());
    let pids: Vec<u32> = pids.filter_map(|pid| u32::try_from(pid).ok()).collect();
    pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
    (0..10).for_each(|number| load.submit_digits(&format!("kept-{jump}-{number}"), number % 8));
    load.gone();
    coordinator.kill()?;
    pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
    let open = load.ledger().open().len();
    ensure!(open == 10, "{open} tasks are open, expected 10");
    let coordinator = site.start()?;
    load.back();
    Ok(coordinator)
}

/// Checks that programs see the set clock; otherwise the test would prove nothing.
fn jumps(site: &Site, clocks: &Clocks) -> Result<()> {
    clocks.set(Whose::Coordinator, 86_400)?;
    let mut date = cmd::command("date");
    date.arg("+%s").envs(site.environment.iter().map(|(name, value)| (name, value)));
    let seen: u64 = cmd::capture(&mut date)?.output.trim().parse()?;
    let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    ensure!(seen > real + 80_000, "`date` says {seen} where the clock is a day ahead of {real}");
    clocks.set(Whose::Coordinator, 0)?;
    Ok(())
}
