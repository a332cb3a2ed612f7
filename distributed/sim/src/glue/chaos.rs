//! The faults of a run, and their times.

use super::cluster::{CALLERS_MAX, COORDINATOR, caller_node, worker_node};
use super::net::Weather;
use super::world::World;
use rand::RngExt;
use std::time::Duration;
use tokio::time::sleep;

/// A fault.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Weather(Weather),
    Block(u8, u8, Duration),
    Hold(u8, Duration),
    KillWorker(usize),
    ShutWorkerDown(usize),
    Crash,
    Restart,
    SlowLog(u64),
    FullLog(bool),
    BreakLog,
    /// Every timer fires late.
    Jump(Duration),
}

impl World {
    /// Causes faults for a while; false if an invariant was broken.
    pub(super) async fn chaos(&mut self) -> bool {
        let mut faults: Vec<(u64, Fault)> = Vec::new();
        for _ in 0..self.rng.random_range(2..=10) {
            let at = self.rng.random_range(100..8_000);
            let fault = self.fault();
            if let Fault::FullLog(true) = fault {
                faults.push((at + self.rng.random_range(100..1_500), Fault::FullLog(false)));
            }
            faults.push((at, fault));
        }
        faults.sort_by_key(|(at, _)| *at);
        for (at, fault) in faults {
            let now = self.cluster.scene.now();
            sleep(Duration::from_millis(at).saturating_sub(now)).await;
            self.cluster.scene.note(|| format!("{fault:?}"));
            self.begin(fault).await;
            if self.is_failed() {
                return false;
            }
        }
        let wait = self.rng.random_range(100..1_500);
        sleep(Duration::from_millis(wait)).await;
        true
    }

    fn fault(&mut self) -> Fault {
        let shape = &self.cluster.shape;
        let rng = &mut self.rng;
        let worker = rng.random_range(0..shape.workers);
        let node = match rng.random_range(0..3) {
            0 => caller_node(rng.random_range(0..CALLERS_MAX)),
            _ => worker_node(worker),
        };
        let mut ms = |most| Duration::from_millis(rng.random_range(100..most));
        let (short, long) = (ms(2_000), ms(5_000));
        match rng.random_range(0..100) {
            0..20 => Fault::Weather(Weather {
                lost: rng.random_range(0..150),
                doubled: rng.random_range(0..150),
                late: rng.random_range(0..150),
                late_ms_max: rng.random_range(1..400),
            }),
            20..32 => Fault::Block(node, COORDINATOR, long),
            32..38 => Fault::Block(COORDINATOR, node, long),
            // Long enough that the worker drops its connection, but short enough that it reconnects
            // before it is given up.
            38..44 => {
                let time = Duration::from_millis(rng.random_range(2_500..4_200));
                Fault::Block(COORDINATOR, worker_node(worker), time)
            }
            44..50 => Fault::Hold(node, short),
            50..54 => Fault::Hold(COORDINATOR, short),
            54..64 => Fault::KillWorker(worker),
            64..69 => Fault::ShutWorkerDown(worker),
            69..77 => Fault::Crash,
            77..80 => Fault::Restart,
            80..86 => Fault::SlowLog(rng.random_range(10..3_000)),
            86..90 => Fault::FullLog(true),
            90..93 => Fault::BreakLog,
            _ => Fault::Jump(short),
        }
    }

    async fn begin(&mut self, fault: Fault) {
        let (cluster, report) = (&self.cluster, &mut self.report);
        report.faults += 1;
        match fault {
            Fault::Weather(weather) => cluster.scene.net.set(weather),
            Fault::Block(from, to, time) => {
                report.partitions += 1;
                cluster.scene.net.block(from, to, time);
            }
            Fault::Hold(to, time) => {
                report.holds += 1;
                cluster.scene.net.hold(to, time);
            }
            Fault::KillWorker(at) => {
                report.worker_crashes += 1;
                cluster.kill_worker(at);
            }
            Fault::ShutWorkerDown(at) => cluster.shut_worker_down(at),
            Fault::Crash => {
                report.coordinator_crashes += 1;
                cluster.crash();
                let wait = self.rng.random_range(1..2_000);
                sleep(Duration::from_millis(wait)).await;
                cluster.insist().await;
            }
            Fault::Restart => {
                cluster.stop().await;
                cluster.insist().await;
            }
            Fault::SlowLog(ms_max) => {
                report.slow_logs += 1;
                cluster.place.slow(ms_max);
            }
            Fault::FullLog(full) => {
                report.full_logs += u64::from(full);
                cluster.place.full(full);
            }
            Fault::BreakLog => {
                report.broken_logs += 1;
                cluster.place.break_next();
            }
            Fault::Jump(time) => {
                report.jumps += 1;
                tokio::time::advance(time).await;
            }
        }
    }
}
