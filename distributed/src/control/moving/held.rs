//! The lead of a place during a migration: no coordinator starts there meanwhile.

use super::Side;
use crate::clock::unix_ms;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};

/// A coordinator that crashed stays a member until its lease ends.
const PARTING: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(100);

/// The lead, until this is dropped.
pub(super) struct Held<'a> {
    pub(super) side: &'a Side,
    pub(super) epoch: u64,
}

impl<'a> Held<'a> {
    /// Takes the lead, with an epoch of at least `least`.
    ///
    /// # Errors
    /// [`Error::Migration`], which names the leader or the members.
    pub(super) fn take(side: &'a Side, least: u64) -> Result<Self> {
        let epoch = match side.authority.lead(unix_ms().max(least)) {
            Err(Error::Led { .. }) => return Err(in_use(side)),
            taken => taken?,
        };
        let held = Self { side, epoch };
        let end = Instant::now() + PARTING;
        while !present(side)?.is_empty() {
            if Instant::now() >= end {
                return Err(in_use(side));
            }
            std::thread::sleep(AGAIN);
        }
        Ok(held)
    }

    /// Takes the lead anew, because a log is opened once per epoch.
    pub(super) fn again(&mut self) -> Result<()> {
        self.epoch = self.side.authority.lead(unix_ms())?;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.side.authority.resign(self.epoch);
    }
}

/// The members, for people.
fn present(side: &Side) -> Result<Vec<String>> {
    let Some(members) = side.authority.members() else { return Ok(Vec::new()) };
    let present = members.present()?;
    Ok(present.iter().map(|one| (side.name)(one)).collect())
}

fn in_use(side: &Side) -> Error {
    let who = present(side).unwrap_or_default();
    let who = match who.is_empty() {
        true => "a coordinator".to_owned(),
        false => who.join(", "),
    };
    Error::Migration { reason: format!("{who} runs on {}: stop it first", side.label) }
}
