//! Calendar clocks of processes, set by libfaketime. Monotonic time is left alone, as when a
//! machine's clock is set.

use crate::apt;
use crate::chaos::process::Site;
use crate::report::Skip;
use anyhow::Result;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The owner of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::chaos) enum Whose {
    /// The coordinator and its local workers.
    Coordinator,
    /// That of machines that joined.
    Joined,
}

/// The files that programs look into.
pub(in crate::chaos) struct Clocks {
    coordinator: PathBuf,
    joined: PathBuf,
    /// Seconds by which the coordinator's clock is ahead.
    ahead_s: Cell<i64>,
}

impl Clocks {
    /// Clocks with the right time; a skip where libfaketime is missing.
    pub(in crate::chaos) fn new(folder: &Path) -> Result<Result<Self, Skip>> {
        if let Err(error) = apt::faketime() {
            return Ok(Err(Skip::new("faketime", format!("{error:#}"))));
        }
        let [coordinator, joined] = ["clock", "clock-joined"].map(|name| folder.join(name));
        let clocks = Self { coordinator, joined, ahead_s: Cell::new(0) };
        clocks.set(Whose::Coordinator, 0)?;
        clocks.set(Whose::Joined, 0)?;
        Ok(Ok(clocks))
    }

    /// Makes a site's processes use these clocks.
    pub(in crate::chaos) fn show(&self, site: &mut Site) {
        site.environment.extend(environment(&self.coordinator));
        site.joined_environment.extend(environment(&self.joined));
    }

    /// Sets a clock to a number of seconds ahead of the right time. Answers the change of the
    /// coordinator's clock.
    pub(in crate::chaos) fn set(&self, whose: Whose, seconds: i64) -> Result<Duration> {
        let (file, moved) = match whose {
            Whose::Coordinator => {
                (&self.coordinator, self.ahead_s.replace(seconds).abs_diff(seconds))
            }
            Whose::Joined => (&self.joined, 0),
        };
        // Replaced by renaming, so that no reader sees half of it.
        let new = file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}"))?;
        std::fs::rename(new, file)?;
        Ok(Duration::from_secs(moved))
    }
}

fn environment(file: &Path) -> Vec<(String, String)> {
    let pairs = [
        ("LD_PRELOAD", apt::FAKETIME.to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
}
