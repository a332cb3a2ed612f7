//! A disk that fills up under a running coordinator. Durable tasks are refused with a code, other
//! work continues, and durable tasks are accepted again once there is space.

use super::check::check;
use super::load::Load;
use super::picture::Pictures;
use super::process::Site;
use super::rest::Answer;
use super::world::disk::{Disk, unmount};
use crate::relay::Random;
use crate::report::{Outcome, Skip};
use anyhow::{Result, bail, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

/// The disk's size: room for the coordinator's files and some hundred tasks.
const SIZE: &str = "16m";
/// The number of tasks by which a full disk must have been reported.
const TASKS_MAX: u32 = 20_000;
/// How soon a disk with space again must be used.
const AGAIN: Duration = Duration::from_secs(20);

/// Fills the disk twice; frees it once under the living coordinator, and once after a kill.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<Outcome> {
    unmount(&Site::data_in(folder));
    let site = Site::new(binary, folder.to_owned(), [127, 0, 0, 1].into(), 1)?;
    let disk = match Disk::in_memory(site.data(), SIZE) {
        Ok(disk) => disk,
        Err(error) => return Ok(Outcome::skip(Skip::new("mount", format!("{error:#}")))),
    };
    let load = Load::of_digits(&site, Pictures::new(&site, 5)?);
    let mut coordinator = site.start()?;
    (0..20).for_each(|number| load.submit_digits(&format!("early-{number}"), number % 8));
    let mut passed = 0;
    for killed in [false, true] {
        disk.fill()?;
        let accepted = until_refused(&load, killed)?;
        ensure!(
            matches!(load.rest.infer(load.pictures.pixels(0)), Answer::Said(200, _)),
            "a full disk keeps inferences from being answered"
        );
        if killed {
            coordinator.kill()?;
        }
        disk.free()?;
        if killed {
            coordinator = site.start()?;
        }
        let began = Instant::now();
        while load.try_once(&format!("again-{killed}"), 1)?.is_some() {
            ensure!(began.elapsed() < AGAIN, "there is room, and durable tasks are refused");
            std::thread::sleep(Duration::from_millis(20));
        }
        let again = began.elapsed();
        check(&load, &mut Random::new(1), usize::MAX, 50);
        let how = if killed { "by the next coordinator" } else { "by the same coordinator" };
        eprintln!(
            "a full disk: {accepted} more tasks were accepted, then none; with room, accepted \
             again {how} after {again:?}"
        );
        passed += 1;
    }
    coordinator.kill()?;
    let _coordinator = site.start()?;
    check(&load, &mut Random::new(1), usize::MAX, 50);
    Ok(Outcome { passed, failed: load.failures(), ..Outcome::default() })
}

/// Submits until the journal is full; answers the number of accepted tasks.
fn until_refused(load: &Load, round: bool) -> Result<u32> {
    for number in 0..TASKS_MAX {
        match load.try_once(&format!("late-{round}-{number}"), 2)? {
            None => {}
            Some(code) if code == "507 not_saved" => return Ok(number),
            Some(code) => bail!("a full disk answers {code}"),
        }
    }
    bail!("{TASKS_MAX} tasks were accepted on a full disk")
}
