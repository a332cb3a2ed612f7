//! A cluster of real processes for fault injection: a coordinator with local workers, a machine
//! that joined through a relay, and one in a network of its own where possible.

mod lasting;

use super::load::Load;
use super::process::{Process, Site, signal};
use super::rest::Answer;
use super::world::World;
use crate::relay::{Random, Relay};
use anyhow::{Context, Result, bail, ensure};

use lasting::Lasting;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Local workers.
pub(super) const LOCAL: usize = 3;
/// How long a worker may be missing after its fault was removed.
const WHOLE: Duration = Duration::from_secs(45);
/// How long to wait for a ready local worker.
const LOOK: Duration = Duration::from_secs(30);
/// How long an orderly end may take besides the open tasks.
const ORDERLY: Duration = Duration::from_secs(120);

/// The place of the machine behind the relay, and of the one on an island.
pub(super) const RELAYED: usize = 0;
pub(super) const ISLANDER: usize = 1;

/// A machine that joined.
pub(super) struct Far {
    name: String,
    addr: SocketAddr,
    /// The programs through which it runs.
    through: Vec<String>,
    pub(super) process: Process,
}

/// The cluster and its present faults.
pub(super) struct Stage<'a> {
    pub(super) site: &'a Site,
    pub(super) world: &'a World,
    pub(super) load: &'a Load,
    pub(super) coordinator: Process,
    pub(super) far: Vec<Far>,
    pub(super) relay: Relay,
    pub(super) random: Random,
    lasting: Lasting,
}

impl<'a> Stage<'a> {
    /// A cluster that is whole.
    pub(super) fn set(site: &'a Site, world: &'a World, load: &'a Load, seed: u64) -> Result<Self> {
        let coordinator = site.start()?;
        let relay = Relay::start(site.near(), seed)?;
        let Answer::Said(_, made) = load.rest.post("tokens", &json!({ "uses": 2 })) else {
            bail!("no token");
        };
        let token = made["token"].as_str().context("no token")?.to_owned();
        let islander = match &world.island {
            Some(island) => (SocketAddr::new(island.host, site.quic.port()), island.through()),
            None => (site.near(), Vec::new()),
        };
        let mut far = Vec::new();
        for (name, (addr, through)) in [("far-1", (relay.addr(), Vec::new())), ("far-2", islander)]
        {
            let process = site.join(&through, addr, name, Some(&token))?;
            far.push(Far { name: name.to_owned(), addr, through, process });
        }
        let (random, lasting) = (Random::new(seed), Lasting::default());
        let mut stage = Self { site, world, load, coordinator, far, relay, random, lasting };
        stage.whole()?;
        Ok(stage)
    }

    /// Every ready worker of the coordinator's list, busy ones first.
    fn ready(&self) -> Vec<Value> {
        let Answer::Said(200, workers) = self.load.rest.get("workers") else { return Vec::new() };
        let workers = workers.as_array().cloned().unwrap_or_default();
        let mut ready: Vec<_> = workers.into_iter().filter(|w| w["state"] == "ready").collect();
        ready.sort_by_key(|worker| std::cmp::Reverse(worker["running"].as_u64()));
        ready
    }

    /// Waits until workers are busy, for at most `most`.
    pub(super) fn until_busy(&self, most: Duration) {
        let until = Instant::now() + most;
        while Instant::now() < until {
            let ready = self.ready();
            let busy = ready.iter().filter(|w| w["running"].as_u64().is_some_and(|n| n > 0));
            if busy.count() > LOCAL {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Names and processes of the ready local workers, busy ones first; waits until there is one.
    pub(super) fn locals(&self) -> Result<Vec<(String, u32)>> {
        let until = Instant::now() + LOOK;
        loop {
            let own = |worker: &Value| {
                let name = worker["id"].as_str().filter(|name| name.starts_with("local-"))?;
                Some((name.to_owned(), u32::try_from(worker["pid"].as_u64()?).ok()?))
            };
            let mut locals: Vec<_> = self.ready().iter().filter_map(own).collect();
            locals.retain(|(_, pid)| !self.is_stopped(*pid));
            if !locals.is_empty() {
                return Ok(locals);
            }
            ensure!(Instant::now() < until, "no local worker within {LOOK:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A local worker, if possible a busy one.
    pub(super) fn a_local(&mut self) -> Result<(String, u32)> {
        self.locals()?.into_iter().next().context("a local worker")
    }

    /// Waits until every worker is ready; answers how long that took.
    pub(super) fn whole(&mut self) -> Result<Duration> {
        let began = Instant::now();
        while self.ready().len() != LOCAL + self.far.len() {
            if began.elapsed() > WHOLE {
                bail!("after {WHOLE:?} these workers are ready: {}", Value::from(self.ready()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(began.elapsed())
    }

    /// Records which tasks are open.
    pub(super) fn note(&self) {
        if let Ok(list) = self.load.rest.list() {
            self.load.ledger().noted(&list);
        }
    }

    /// Kills the coordinator.
    pub(super) fn kill_coordinator(&mut self) -> Result<()> {
        self.note();
        self.load.gone();
        self.coordinator.kill()?;
        self.load.hurt();
        Ok(())
    }

    /// Starts the coordinator again on the same data folder.
    pub(super) fn follow(&mut self) -> Result<()> {
        self.coordinator = self.site.start()?;
        self.load.back();
        self.note();
        Ok(())
    }

    /// Kills a remote machine.
    pub(super) fn kill_far(&mut self, at: usize) -> Result<()> {
        self.far.get_mut(at).context("a machine")?.process.kill()
    }

    /// Starts a remote machine again: it returns with its kept identity once its network works.
    pub(super) fn bring_back(&mut self, at: usize) -> Result<()> {
        self.free_way(at)?;
        let far = self.far.get_mut(at).context("a machine")?;
        far.process = self.site.join(&far.through, far.addr, &far.name, None)?;
        Ok(())
    }

    /// The index of a remote machine, if possible of the busier one.
    pub(super) fn a_far(&mut self) -> Result<usize> {
        let ready = self.ready();
        let name = ready.iter().find_map(|w| w["id"].as_str().filter(|n| n.starts_with("far-")));
        let busy = self.far.iter().position(|far| Some(far.name.as_str()) == name);
        let any = usize::try_from(self.random.below(u64::try_from(self.far.len())?))?;
        Ok(busy.unwrap_or(any))
    }

    /// A time between two, in milliseconds.
    pub(super) fn some_ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.below(to.saturating_sub(from)))
    }

    /// Asks the coordinator to finish its tasks and end, and waits for that.
    pub(super) fn stop_in_order(&mut self) -> Result<()> {
        let (backlog, _) = self.load.ledger().backlog();
        self.note();
        self.load.gone();
        let answer = self.load.rest.post("coordinator/stop", &json!({ "now": false }));
        ensure!(matches!(answer, Answer::Said(202, _)), "stop was met with {answer:?}");
        let status = self.coordinator.wait(ORDERLY + 8 * backlog)?;
        self.load.hurt();
        ensure!(status.success(), "the coordinator ended with {status}");
        Ok(())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // Local workers that are stopped would outlive their coordinator.
        for pid in self.stopped() {
            signal(pid, rustix::process::Signal::CONT);
        }
    }
}
