//! A disk that fills up under a running coordinator: durable tasks are refused by name, the rest
//! goes on, and with room again so does everything.

use super::load::Load;
use super::picture::Pictures;
use super::process::Site;
use super::rest::Answer;
use super::rounds::check;
use crate::cmd;
use crate::relay::Random;
use crate::report::{Outcome, Skip};
use anyhow::{Result, bail, ensure};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The disk's size: room for the coordinator's files and some hundred tasks.
const SIZE: &str = "size=16m";
/// Tasks until a full disk must have said so.
const TASKS_MAX: u32 = 20_000;
/// Within which a disk with room again must be used.
const AGAIN: Duration = Duration::from_secs(20);

/// A small file system, gone when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let mut mount = cmd::command("mount");
        let finished = cmd::capture(mount.args(["-t", "tmpfs", "-o", SIZE, "none"]).arg(&folder))?;
        ensure!(finished.ok, "{}", finished.output.trim());
        Ok(Self(folder))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes all the room that is left.
    fn fill(&self) -> Result<()> {
        let mut filler = std::fs::File::options().create(true).append(true).open(self.filler())?;
        for bytes in [1 << 16, 1 << 12] {
            while filler.write_all(&vec![0; bytes]).is_ok() {}
        }
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Still in use where something of ours did not end; then it goes with that.
        let _ = cmd::capture(cmd::command("umount").arg("--lazy").arg(&self.0));
    }
}

/// Fills the disk twice: with room made while the coordinator lives, and after it was killed.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<Outcome> {
    let site = Site::new(binary, folder.to_owned(), [127, 0, 0, 1].into(), 1)?;
    let disk = match Disk::mount(site.data()) {
        Ok(disk) => disk,
        Err(error) => {
            let reason = format!("no file system of a size of its own: {error:#}");
            return Ok(Outcome::skip(Skip::new("mount", reason)));
        }
    };
    let load = Load::new(&site.url(), Pictures::new(&site, 5)?);
    let mut coordinator = site.start()?;
    (0..20).for_each(|number| load.submit(&format!("early-{number}"), number % 8));
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
        std::fs::remove_file(disk.filler())?;
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
    let failed = std::mem::take(&mut load.ledger().violations);
    Ok(Outcome { passed, failed, ..Outcome::default() })
}

/// Submits until the journal has no room; how many it took before.
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
