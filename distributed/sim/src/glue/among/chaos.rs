//! Faults among several coordinators, and their times.

use super::authority::LEASE;
use super::cluster::coordinator_node;
use super::world::World;
use crate::glue::cluster::{CALLERS_MAX, caller_node, worker_node};
use crate::glue::net::{Node, Weather};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How many numbers beyond those of the coordinators stand for the leader.
const AIMED: usize = 3;

/// A fault.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Weather(Weather),
    /// A partition between two machines.
    Part(Node, Node, Duration),
    Block(Node, Node, Duration),
    /// A coordinator cannot reach the others, the authority or the log, but callers reach it.
    Isolate(usize, Duration),
    CutAuthority(usize, Duration, bool),
    CutLog(usize, Duration, bool),
    /// A coordinator is suspended.
    Stop(usize, Duration),
    Kill(usize, Duration),
    Restart(usize),
    KillWorker(usize),
    ShutWorkerDown(usize),
    SlowLog(u64),
    FullLog(bool),
    /// Every timer fires late.
    Jump(Duration),
}

impl World {
    /// Causes faults for a while; false if an invariant was broken.
    pub(super) async fn chaos(&mut self) -> bool {
        let mut faults: Vec<(u64, Fault)> = Vec::new();
        for _ in 0..self.rng.random_range(3..=14) {
            let at = self.rng.random_range(500..14_000);
            let fault = self.fault();
            if let Fault::FullLog(true) = fault {
                faults.push((at + self.rng.random_range(100..2_500), Fault::FullLog(false)));
            }
            faults.push((at, fault));
        }
        faults.sort_by_key(|(at, _)| *at);
        for (at, fault) in faults {
            let now = self.cluster.scene.now();
            sleep(Duration::from_millis(at).saturating_sub(now)).await;
            self.cluster.scene.note(|| format!("{fault:?}"));
            self.begin(fault);
            if self.is_failed() {
                return false;
            }
        }
        let wait = self.rng.random_range(100..4_000);
        sleep(Duration::from_millis(wait)).await;
        true
    }

    /// A coordinator; half of the time, the leader.
    fn one(&mut self) -> usize {
        let leader = self.cluster.register.leader();
        let all = 0..self.cluster.shape.coordinators;
        let led = all.clone().find(|at| leader == Some(coordinator_node(*at)));
        match led {
            Some(led) if self.rng.random_range(0..2) == 0 => led,
            _ => self.rng.random_range(all),
        }
    }

    fn fault(&mut self) -> Fault {
        // The leader is chosen when the fault begins.
        let shape = self.cluster.shape;
        let at = self.rng.random_range(0..shape.coordinators + AIMED);
        let rng = &mut self.rng;
        let worker = rng.random_range(0..shape.workers);
        let (here, there) = (
            coordinator_node(at % shape.coordinators),
            match rng.random_range(0..4) {
                0 => caller_node(rng.random_range(0..CALLERS_MAX)),
                1 => worker_node(worker),
                _ => coordinator_node((at + 1) % shape.coordinators),
            },
        );
        let mut ms = |least, most| Duration::from_millis(rng.random_range(least..most));
        let (short, long) = (ms(100, 2_000), ms(300, 7_000));
        let past_lease = LEASE + ms(100, 4_000);
        let answers_only = rng.random_range(0..3) == 0;
        match rng.random_range(0..100) {
            0..12 => Fault::Weather(Weather {
                lost: rng.random_range(0..120),
                doubled: rng.random_range(0..120),
                late: rng.random_range(0..150),
                late_ms_max: rng.random_range(1..400),
            }),
            12..22 => Fault::Part(here, there, long),
            22..28 => Fault::Block(here, there, long),
            28..38 => Fault::Isolate(at, past_lease),
            38..47 => Fault::CutAuthority(at, long, answers_only),
            47..56 => Fault::CutLog(at, long, answers_only),
            56..66 => Fault::Stop(at, past_lease),
            66..75 => Fault::Kill(at, long),
            75..79 => Fault::Restart(at),
            79..85 => Fault::KillWorker(worker),
            85..88 => Fault::ShutWorkerDown(worker),
            88..92 => Fault::SlowLog(rng.random_range(10..3_000)),
            92..95 => Fault::FullLog(true),
            _ => Fault::Jump(short),
        }
    }

    /// The coordinator of a number; a larger number stands for the leader.
    fn aim(&mut self, at: usize) -> usize {
        match at < self.cluster.shape.coordinators {
            true => at,
            false => self.one(),
        }
    }

    fn begin(&mut self, fault: Fault) {
        self.report.faults += 1;
        match fault {
            Fault::Weather(weather) => self.cluster.scene.net.set(weather),
            Fault::Part(one, other, time) => {
                self.report.partitions += 1;
                self.cluster.scene.net.part(one, other, time);
            }
            Fault::Block(from, to, time) => {
                self.report.partitions += 1;
                self.cluster.scene.net.block(from, to, time);
            }
            Fault::Isolate(at, time) => {
                self.report.isolated += 1;
                let at = self.aim(at);
                for other in (0..self.cluster.shape.coordinators).filter(|other| *other != at) {
                    let (one, other) = (coordinator_node(at), coordinator_node(other));
                    self.cluster.scene.net.part(one, other, time);
                }
                self.cluster.register.cut(coordinator_node(at), time, false);
                self.cluster.log.cut(coordinator_node(at), time, false);
            }
            Fault::CutAuthority(at, time, answers_only) => {
                self.report.without_authority += 1;
                let node = coordinator_node(self.aim(at));
                self.cluster.register.cut(node, time, answers_only);
            }
            Fault::CutLog(at, time, answers_only) => {
                self.report.without_log += 1;
                let node = coordinator_node(self.aim(at));
                self.cluster.log.cut(node, time, answers_only);
            }
            Fault::Stop(at, time) => {
                self.report.stops += 1;
                let node = coordinator_node(self.aim(at));
                self.cluster.scene.stop(node, time);
            }
            Fault::Kill(at, time) => {
                self.report.kills += 1;
                let at = self.aim(at);
                self.cluster.crash(at);
                let cluster = Arc::clone(&self.cluster);
                tokio::spawn(async move {
                    sleep(time).await;
                    cluster.insist(at).await;
                });
            }
            Fault::Restart(at) => {
                let at = self.aim(at);
                let cluster = Arc::clone(&self.cluster);
                tokio::spawn(async move {
                    cluster.stop(at).await;
                    cluster.insist(at).await;
                });
            }
            Fault::KillWorker(at) => {
                self.report.worker_kills += 1;
                self.cluster.kill_worker(at);
            }
            Fault::ShutWorkerDown(at) => self.cluster.shut_worker_down(at),
            Fault::SlowLog(ms_max) => {
                self.report.slow_logs += 1;
                self.cluster.log.slow(ms_max);
            }
            Fault::FullLog(full) => {
                self.report.full_logs += u64::from(full);
                self.cluster.log.full(full);
            }
            Fault::Jump(time) => {
                self.report.jumps += 1;
                tokio::spawn(tokio::time::advance(time));
            }
        }
    }
}
