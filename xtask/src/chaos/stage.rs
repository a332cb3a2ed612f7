//! A cluster of real processes to do damage to: a coordinator with two local workers, and two
//! machines that joined, one of them through a relay.

use super::load::Load;
use super::process::{Process, Site, signal};
use super::rest::Answer;
use crate::relay::{Random, Relay, Weather};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Local workers.
pub(super) const LOCAL: usize = 2;
/// How long a worker may be missing once nothing is done to it any more.
const WHOLE: Duration = Duration::from_secs(30);
/// How long one is looked for.
const LOOK: Duration = Duration::from_secs(15);

/// A machine that joined.
pub(super) struct Far {
    name: String,
    addr: SocketAddr,
    pub(super) process: Process,
}

/// The cluster, and what is wrong with it for now.
pub(super) struct Stage<'a> {
    pub(super) site: &'a Site,
    pub(super) load: &'a Load,
    pub(super) coordinator: Process,
    pub(super) far: Vec<Far>,
    pub(super) relay: Relay,
    pub(super) random: Random,
    /// A process that is stopped, since when, and for how long at least.
    pub(super) stopped: Option<(u32, Instant, Duration)>,
    /// How long the present weather lasts.
    pub(super) bad: Duration,
}

impl<'a> Stage<'a> {
    /// A cluster that is whole.
    pub(super) fn set(site: &'a Site, load: &'a Load, seed: u64) -> Result<Self> {
        let coordinator = site.start()?;
        let relay = Relay::start(site.quic, seed)?;
        let Answer::Said(_, made) = load.rest.post("tokens", &json!({ "uses": 2 })) else {
            bail!("no token");
        };
        let token = made["token"].as_str().context("no token")?.to_owned();
        let mut far = Vec::new();
        for (name, addr) in [("far-1", site.quic), ("far-2", relay.addr())] {
            let process = site.join(&[], addr, name, Some(&token))?;
            far.push(Far { name: name.to_owned(), addr, process });
        }
        let random = Random::new(seed);
        let (stopped, bad) = (None, Duration::ZERO);
        let mut stage = Self { site, load, coordinator, far, relay, random, stopped, bad };
        stage.whole()?;
        Ok(stage)
    }

    /// Every ready worker, as the coordinator lists it.
    fn ready(&self) -> Vec<Value> {
        let Answer::Said(200, workers) = self.load.rest.get("workers") else { return Vec::new() };
        let workers = workers.as_array().cloned().unwrap_or_default();
        workers.into_iter().filter(|worker| worker["state"] == "ready").collect()
    }

    /// Name and process of every ready local worker; waits for one where there is none.
    pub(super) fn locals(&self) -> Result<Vec<(String, u32)>> {
        let until = Instant::now() + LOOK;
        loop {
            let own = |worker: &Value| {
                let name = worker["id"].as_str().filter(|name| name.starts_with("local-"))?;
                Some((name.to_owned(), u32::try_from(worker["pid"].as_u64()?).ok()?))
            };
            let locals: Vec<_> = self.ready().iter().filter_map(own).collect();
            if !locals.is_empty() {
                return Ok(locals);
            }
            ensure!(Instant::now() < until, "no local worker within {LOOK:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Some local worker.
    pub(super) fn a_local(&mut self) -> Result<(String, u32)> {
        let locals = self.locals()?;
        let at = self.random.below(u64::try_from(locals.len())?);
        locals.into_iter().nth(usize::try_from(at)?).context("a local worker")
    }

    /// Waits until every worker is there; how long that took.
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

    /// Kills the coordinator.
    pub(super) fn kill_coordinator(&mut self) -> Result<()> {
        self.load.turn();
        self.coordinator.kill()?;
        self.load.hurt();
        Ok(())
    }

    /// Starts it again on the same data folder.
    pub(super) fn follow(&mut self) -> Result<()> {
        self.coordinator = self.site.start()?;
        self.load.turn();
        Ok(())
    }

    /// Kills a machine that joined, by its place.
    pub(super) fn kill_far(&mut self, at: usize) -> Result<()> {
        self.far.get_mut(at).context("a machine")?.process.kill()
    }

    /// Starts it again: it comes back by the identity that it keeps.
    pub(super) fn bring_back(&mut self, at: usize) -> Result<()> {
        let far = self.far.get_mut(at).context("a machine")?;
        far.process = self.site.join(&[], far.addr, &far.name, None)?;
        Ok(())
    }

    /// Some place of a machine that joined.
    pub(super) fn a_far(&mut self) -> Result<usize> {
        Ok(usize::try_from(self.random.below(u64::try_from(self.far.len())?))?)
    }

    /// A time between two, in milliseconds.
    pub(super) fn some_ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.below(to.saturating_sub(from)))
    }

    /// Stops some worker's process, which is neither told nor asked.
    pub(super) fn stop_a_worker(&mut self, for_ms: (u64, u64)) -> Result<()> {
        let pid = match self.random.chance(500) {
            true => self.a_local()?.1,
            false => {
                let at = self.a_far()?;
                self.far.get(at).context("a machine")?.process.pid()
            }
        };
        let least = self.some_ms(for_ms.0, for_ms.1);
        signal(pid, Signal::STOP);
        self.load.hurt();
        self.stopped = Some((pid, Instant::now(), least));
        Ok(())
    }

    /// Changes the weather for the machine behind the relay.
    pub(super) fn weather(&mut self, weather: Weather, for_ms: (u64, u64)) {
        self.bad = self.some_ms(for_ms.0, for_ms.1);
        self.relay.set(weather);
        self.load.hurt();
    }

    /// Ends what lasts.
    pub(super) fn heal(&mut self) {
        if let Some((pid, since, least)) = self.stopped.take() {
            std::thread::sleep(least.saturating_sub(since.elapsed()));
            signal(pid, Signal::CONT);
        }
        std::thread::sleep(self.bad.saturating_sub(self.load.since_hurt()));
        self.bad = Duration::ZERO;
        self.relay.set(Weather::CALM);
    }

    /// Asks the coordinator to finish what it has and end, and waits for that.
    pub(super) fn stop_in_order(&mut self) -> Result<()> {
        self.load.turn();
        let answer = self.load.rest.post("coordinator/stop", &json!({ "now": false }));
        ensure!(matches!(answer, Answer::Said(202, _)), "stop was met with {answer:?}");
        let status = self.coordinator.wait(Duration::from_secs(60))?;
        self.load.hurt();
        ensure!(status.success(), "the coordinator ended with {status}");
        Ok(())
    }
}
