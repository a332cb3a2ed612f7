//! The conditions after the last fault.

use super::cluster::coordinator_node;
use super::world::World;
use lgp_distributed::inside::outside::on;
use lgp_distributed::{Coordinator, Peer, TaskId, WorkerState, inside};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The time until all coordinators agree on one leader.
const LEAD_LIMIT: Duration = Duration::from_secs(30);
/// The time until the cluster is at rest.
const REST_LIMIT: Duration = Duration::from_secs(100);

/// The pause between two checks, and how many successive checks must find the cluster at rest.
const LOOK: Duration = Duration::from_millis(250);
const STILL: u32 = 10;

impl World {
    /// Waits until one coordinator leads and all know it.
    pub(super) async fn one_leads(&self) -> bool {
        let leads = async {
            while self.standing().is_some() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(LEAD_LIMIT, leads).await.is_err() {
            let what = self.standing().unwrap_or_default();
            self.fail(format!("it is not clear who leads: {what}"));
        }
        !self.is_failed()
    }

    /// The reason why the leader is not clear; `None` if it is.
    fn standing(&self) -> Option<String> {
        let processes = self.cluster.processes();
        let leads: Vec<bool> = processes.iter().map(|(_, it)| it.coordinator.leads()).collect();
        let holder = self.cluster.register.leader();
        let says = || format!("the authority says {holder:?}, of {leads:?}");
        let led: Vec<_> = processes.iter().filter(|(_, it)| it.coordinator.leads()).collect();
        let [(at, leader)] = led.as_slice() else { return Some(says()) };
        if holder != Some(coordinator_node(*at)) {
            return Some(says());
        }
        let number = leader.coordinator.epoch();
        let all = processes.len();
        let agree = |peers: Vec<Peer>| {
            peers.len() == all && peers.iter().all(|peer| peer.leads == (peer.number == number))
        };
        let wrong = processes.iter().find(|(_, it)| !agree(it.coordinator.peers()));
        wrong.map(|(at, it)| format!("coordinator {at} knows {:?}", it.coordinator.peers()))
    }

    /// Records the coordinators' explanations of tasks that have not ended.
    pub(super) async fn explain(&self) {
        for (at, process) in self.cluster.processes() {
            for (number, _, id, _) in self.cluster.ledger.accepted() {
                if process.coordinator.state(id).is_ok_and(|state| !state.is_terminal()) {
                    let lines = process.coordinator.explain(id).await;
                    let what = self.cluster.ledger.with(number, |entry| entry.behaviour);
                    self.cluster.scene.note(|| format!("{at}: task {number} {what:?}: {lines:?}"));
                }
            }
            for worker in process.coordinator.workers() {
                self.cluster.scene.note(|| format!("{at}: {worker:?}"));
            }
        }
    }

    /// Waits until the cluster is at rest.
    pub(super) async fn rest(&self) -> bool {
        let resting = async {
            let mut still = 0;
            while still < STILL {
                still = if self.busy().is_none() { still + 1 } else { 0 };
                sleep(LOOK).await;
            }
        };
        if timeout(REST_LIMIT, resting).await.is_err() {
            self.explain().await;
            self.fail(format!("it does not come to rest: {:?}", self.busy()));
        }
        !self.is_failed()
    }

    /// What is not at rest; `None` if everything is.
    fn busy(&self) -> Option<String> {
        let processes = self.cluster.processes();
        if processes.len() != self.cluster.shape.coordinators {
            return Some(format!("{} coordinators run", processes.len()));
        }
        processes.into_iter().find_map(|(at, process)| {
            let coordinator = process.coordinator;
            let tasks = coordinator.stats().tasks;
            if tasks.queued + tasks.running > 0 {
                return Some(format!("{at}: {tasks:?}"));
            }
            let workers = coordinator.workers();
            let ready = workers.iter().filter(|w| w.state == WorkerState::Ready).count();
            if ready != self.cluster.shape.workers {
                return Some(format!("{at}: {ready} workers are ready"));
            }
            if let Some(worker) = workers.iter().find(|w| w.running + w.queued > 0) {
                return Some(format!("{at}: {} has {} attempts", worker.id, worker.running));
            }
            let residue = inside::shared(&coordinator).residue();
            (!residue.is_none(ready)).then(|| format!("{at}: {residue:?}"))
        })
    }

    /// Asks every coordinator for the end of every accepted task, also after all were killed.
    pub(super) async fn audit(&mut self) -> bool {
        for round in 0..2 {
            for (at, process) in self.cluster.processes() {
                for (number, way, id, _) in self.cluster.ledger.accepted() {
                    if way.is_durable() {
                        self.ask_again((at, &process.coordinator), number, id).await;
                    }
                }
            }
            if round == 0 && !self.is_failed() {
                for at in 0..self.cluster.shape.coordinators {
                    self.cluster.crash(at);
                }
                self.start_all().await;
                self.one_leads().await;
            }
            if self.is_failed() {
                return false;
            }
        }
        true
    }

    async fn ask_again(&self, (at, coordinator): (usize, &Coordinator), number: usize, id: TaskId) {
        let asked = on(coordinator_node(at), coordinator.wait(id));
        match timeout(REST_LIMIT, asked).await {
            Ok(Ok(record)) => {
                let recorded = self.cluster.log.ends().get(&inside::key(id)).copied();
                if recorded != Some(record.state) {
                    let state = record.state;
                    self.fail(format!(
                        "{at} says {state:?} of task {number}, recorded {recorded:?}"
                    ));
                }
                self.cluster.ledger.show(number, record);
            }
            Ok(Err(error)) => self.fail(format!("task {number} is lost to {at}: {error}")),
            Err(_) => self.fail(format!("task {number} does not end at {at}")),
        }
    }

    /// Checks the laws that need the whole run.
    pub(super) fn judge(&mut self) {
        let leads = self.cluster.register.leads();
        if !leads.is_sorted_by(|earlier, later| earlier < later) {
            self.fail(format!("the epochs of the leads do not rise: {leads:?}"));
        }
        let commits = self.cluster.log.commits();
        if !commits.is_sorted() {
            self.fail(format!("commits of several leads are mixed: {commits:?}"));
        }
        let history = &self.cluster.history;
        self.report.calls = u64::try_from(history.calls()).unwrap_or(u64::MAX);
        if let Some((number, told)) = history.wrong() {
            self.fail(format!("no order makes all true that was told of task {number}: {told}"));
        }
    }

    /// Checks that nothing of ended processes is still running.
    pub(super) async fn nothing_is_left(&self) {
        let over = async {
            while self.cluster.left() > 0 || self.cluster.scene.net.sockets() > 0 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        if timeout(REST_LIMIT, over).await.is_err() {
            let (coordinators, sockets) = (self.cluster.left(), self.cluster.scene.net.sockets());
            self.fail(format!("{coordinators} coordinators and {sockets} sockets are left"));
        }
    }
}
