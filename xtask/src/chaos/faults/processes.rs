//! Processes that are killed, stopped, or asked to end.

use super::Kind::{Kills, Orderly, Other};
use super::{Fault, fault};
use crate::chaos::process::signal;
use crate::chaos::rest::Answer;
use crate::chaos::stage::Stage;
use crate::chaos::world::Need::Nothing;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// From this time on a stopped coordinator may be taken for dead.
const LONG: Duration = Duration::from_secs(2);

pub(super) const FAULTS: &[Fault] = &[
    fault("coordinator killed", 30, (Kills, Nothing), |stage| {
        stage.kill_coordinator()?;
        stage.follow()
    }),
    fault("coordinator killed, and again as it starts", 9, (Kills, Nothing), |stage| {
        stage.kill_coordinator()?;
        let mut follower = stage.site.begin()?;
        std::thread::sleep(stage.some_ms(0, 900));
        follower.kill()?;
        stage.follow()
    }),
    fault("local worker killed", 12, (Kills, Nothing), |stage| {
        let (_, pid) = stage.a_local()?;
        signal(pid, Signal::KILL);
        stage.load.hurt();
        Ok(())
    }),
    fault("joined worker killed", 12, (Kills, Nothing), |stage| {
        let at = stage.a_far()?;
        stage.kill_far(at)?;
        stage.load.hurt();
        stage.bring_back(at)
    }),
    fault("every worker killed", 16, (Kills, Nothing), |stage| {
        for (_, pid) in stage.locals()? {
            signal(pid, Signal::KILL);
        }
        (0..stage.far.len()).try_for_each(|at| stage.kill_far(at))?;
        stage.load.hurt();
        (0..stage.far.len()).try_for_each(|at| stage.bring_back(at))
    }),
    fault("coordinator and joined worker killed", 9, (Kills, Nothing), |stage| {
        let at = stage.a_far()?;
        stage.kill_far(at)?;
        stage.kill_coordinator()?;
        stage.follow()?;
        stage.bring_back(at)
    }),
    fault("worker stopped for less than 1.2 s", 3, (Other, Nothing), |stage| {
        stop_a_worker(stage, (200, 1_200))
    }),
    fault("worker stopped for 1 to 5 s", 5, (Other, Nothing), |stage| {
        stop_a_worker(stage, (1_000, 5_000))
    }),
    fault("worker stopped for 5 to 20 s", 4, (Other, Nothing), |stage| {
        stop_a_worker(stage, (5_000, 20_000))
    }),
    fault("coordinator stopped for less than 1 s", 2, (Other, Nothing), |stage| {
        stop_coordinator(stage, (100, 1_000))
    }),
    fault("coordinator stopped for 1 to 5 s", 4, (Other, Nothing), |stage| {
        stop_coordinator(stage, (1_000, 5_000))
    }),
    fault("coordinator stopped for 5 to 20 s", 1, (Other, Nothing), |stage| {
        stop_coordinator(stage, (5_000, 20_000))
    }),
    fault("coordinator drained, ended and started", 3, (Orderly, Nothing), |stage| {
        stage.stop_in_order()?;
        stage.follow()
    }),
    fault("workers restarted in order", 2, (Orderly, Nothing), |stage| {
        stage.load.hurt();
        let answer = stage.load.rest.post_long("restart", &json!({}));
        ensure!(matches!(answer, Answer::Said(200, _)), "restart was met with {answer:?}");
        Ok(())
    }),
    fault("local worker drained", 2, (Orderly, Nothing), |stage| {
        let (name, _) = stage.a_local()?;
        stage.load.hurt();
        let answer = stage.load.rest.post(&format!("workers/{name}/shutdown"), &json!({}));
        ensure!(matches!(answer, Answer::Said(202, _)), "the drain was met with {answer:?}");
        Ok(())
    }),
];

/// Stops the process of a random worker.
fn stop_a_worker(stage: &mut Stage<'_>, (from, to): (u64, u64)) -> Result<()> {
    let pid = match stage.random.chance(500) {
        true => stage.a_local()?.1,
        false => {
            let at = stage.a_far()?;
            stage.far.get(at).context("a machine")?.process.pid()
        }
    };
    let time = stage.some_ms(from, to);
    stage.stop(pid, time);
    Ok(())
}

fn stop_coordinator(stage: &mut Stage<'_>, (from, to): (u64, u64)) -> Result<()> {
    let time = stage.some_ms(from, to);
    stage.load.ledger().excuse.begin();
    stage.coordinator.signal(Signal::STOP);
    if time > LONG {
        // The coordinator may wake up any time, so no other may take its folder.
        let mut rival = stage.site.begin()?;
        let status = rival.wait(Duration::from_secs(10));
        ensure!(status.is_ok_and(|s| !s.success()), "a second coordinator took the folder");
    }
    std::thread::sleep(time);
    stage.coordinator.signal(Signal::CONT);
    stage.load.ledger().excuse.end();
    stage.load.hurt();
    Ok(())
}
