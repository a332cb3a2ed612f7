//! Faults of the machine: a full disk, and set clocks.

use super::Kind::{Kills, Other};
use super::{Fault, fault};
use crate::chaos::stage::Stage;
use crate::chaos::world::Need;
use crate::chaos::world::clock::Whose;
use anyhow::{Context, Result};
use std::time::Duration;

/// The largest clock offset in seconds. With the time that a run watches tasks, it stays below the
/// ten minutes for which the cluster keeps keys and their records.
const OFF_S: u64 = 60;
/// How long the disk is full, in milliseconds.
const FULL_MS: (u64, u64) = (300, 3_000);
/// How long a disk may stay full where the coordinator ends meanwhile.
const FULL_MAX: Duration = Duration::from_secs(60);

pub(super) const FAULTS: &[Fault] = &[
    fault("disk full", 4, (Other, Need::Disk), |stage| {
        fill(stage)?;
        std::thread::sleep(stage.some_ms(FULL_MS.0, FULL_MS.1));
        free(stage)?;
        stage.load.hurt();
        Ok(())
    }),
    fault("disk full, and coordinator killed", 2, (Kills, Need::Disk), |stage| {
        fill(stage)?;
        std::thread::sleep(stage.some_ms(FULL_MS.0, FULL_MS.1));
        stage.kill_coordinator()?;
        free(stage)?;
        stage.follow()
    }),
    fault("coordinator's clock set", 4, (Other, Need::Clocks), |stage| {
        set(stage, Whose::Coordinator)?;
        stage.load.hurt();
        Ok(())
    }),
    fault("coordinator's clock set, and it is killed", 3, (Kills, Need::Clocks), |stage| {
        set(stage, Whose::Coordinator)?;
        stage.kill_coordinator()?;
        stage.follow()
    }),
    fault("joined workers' clock set", 2, (Other, Need::Clocks), |stage| {
        set(stage, Whose::Joined)?;
        stage.load.hurt();
        Ok(())
    }),
];

fn fill(stage: &Stage<'_>) -> Result<()> {
    stage.load.full_for(FULL_MAX);
    stage.load.ledger().excuse.begin();
    stage.world.disk.as_ref().context("a disk")?.fill()
}

fn free(stage: &Stage<'_>) -> Result<()> {
    stage.world.disk.as_ref().context("a disk")?.free()?;
    stage.load.full_for(Duration::ZERO);
    stage.load.ledger().excuse.end();
    Ok(())
}

/// Sets a clock to a random allowed time.
fn set(stage: &mut Stage<'_>, whose: Whose) -> Result<()> {
    let ahead = i64::try_from(stage.random.below(2 * OFF_S + 1))? - i64::try_from(OFF_S)?;
    let moved = stage.world.clocks.as_ref().context("clocks")?.set(whose, ahead)?;
    stage.load.ledger().excuse.set(moved);
    Ok(())
}
