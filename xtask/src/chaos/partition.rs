//! Partitions of a real network: two machines in network namespaces of their own, whose links to
//! the coordinator are cut.

use super::load::Load;
use super::picture::Pictures;
use super::process::{Process, Site};
use super::rest::Answer;
use super::rounds::{check, under_load};
use crate::relay::Random;
use crate::report::{Outcome, Skip};
use crate::{apt, cmd};
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Silence that is forgiven, and silence that is not.
const SHORT: Duration = Duration::from_millis(800);
const LONG: Duration = Duration::from_secs(4);
/// How soon a silent worker must be given up: two seconds, and some for a busy machine.
const NOTICED: Duration = Duration::from_millis(2_700);
/// How soon a machine must be back once its link is.
const BACK: Duration = Duration::from_secs(10);

/// A network namespace that one link leads to. Removed when dropped, the link with it.
struct Island {
    /// Of the namespace, and of the link's end outside of it.
    name: String,
    /// What the outer end is called inside.
    host: IpAddr,
}

impl Island {
    fn new(number: u8) -> Result<Self> {
        let name = format!("lgp{}{number}", std::process::id());
        let inner = format!("{name}i");
        // Addresses that are set aside for measurements, so that nobody else's are hidden.
        let (host, own) = (format!("198.18.{number}.1"), format!("198.18.{number}.2/30"));
        ip(&["netns", "add", &name])?;
        let island = Self { host: host.parse()?, name };
        let name = island.name.as_str();
        ip(&["link", "add", name, "type", "veth", "peer", "name", &inner])?;
        ip(&["link", "set", &inner, "netns", name])?;
        ip(&["addr", "add", &format!("{host}/30"), "dev", name])?;
        ip(&["link", "set", name, "up"])?;
        ip(&["-n", name, "addr", "add", &own, "dev", &inner])?;
        ip(&["-n", name, "link", "set", &inner, "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        Ok(island)
    }

    /// What runs a command in it.
    fn through(&self) -> Vec<String> {
        ["ip", "netns", "exec", &self.name].map(str::to_owned).to_vec()
    }

    fn link(&self, state: &str) -> Result<()> {
        ip(&["link", "set", &self.name, state])
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        // The namespace takes the inner end along, and that the outer one; unless it never got there.
        let _ = ip(&["link", "del", &self.name]);
        let _ = ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let finished = cmd::capture(cmd::command("ip").args(arguments))?;
    ensure!(finished.ok, "{}", finished.output.trim());
    Ok(())
}

/// Cuts links for shorter and longer than detection takes.
pub(super) fn run(binary: &Path, folder: &Path) -> Result<Outcome> {
    let islands = apt::iproute().and_then(|()| (1..=2).map(Island::new).collect());
    let islands: Vec<Island> = match islands {
        Ok(islands) => islands,
        Err(error) => {
            let reason = format!("no network namespaces with links: {error:#}");
            return Ok(Outcome::skip(Skip::new("netns", reason)));
        }
    };
    let everywhere = IpAddr::from([0, 0, 0, 0]);
    let site = Site::new(binary, folder.to_owned(), everywhere, 0)?;
    let load = Load::new(&site.url(), Pictures::new(&site, 3)?);
    let _coordinator = site.start()?;
    let Answer::Said(_, made) = load.rest.post("tokens", &json!({ "uses": 2 })) else {
        bail!("no token");
    };
    let token = made["token"].as_str().context("no token")?;
    let mut machines = Vec::new();
    for (number, island) in islands.iter().enumerate() {
        let addr = SocketAddr::new(island.host, site.quic.port());
        let name = format!("island-{number}");
        machines.push(site.join(&island.through(), addr, &name, Some(token))?);
    }
    wait_for(&load, &["ready", "ready"], BACK)?;
    let mut passed = 0;
    under_load(&load, 3, || {
        for (links, cut) in [(1, SHORT), (1, LONG), (2, SHORT), (2, LONG)] {
            partition(&load, islands.get(..links).unwrap_or(&islands), cut)?;
            alive(&mut machines)?;
            passed += 1;
        }
        Ok(())
    });
    let failed = std::mem::take(&mut load.ledger().violations);
    Ok(Outcome { passed, failed, ..Outcome::default() })
}

/// Cuts some links for a while, under load, and asks for everything afterwards.
fn partition(load: &Load, cut: &[Island], time: Duration) -> Result<()> {
    load.resume();
    std::thread::sleep(Duration::from_millis(300));
    let lost = lost(load)?;
    cut.iter().try_for_each(|island| island.link("down"))?;
    let began = Instant::now();
    if time > NOTICED {
        let mut wanted = ["ready", "ready"];
        wanted.iter_mut().take(cut.len()).for_each(|state| *state = "lost");
        wait_for(load, &wanted, NOTICED).context("the cut is not noticed")?;
    }
    std::thread::sleep(time.saturating_sub(began.elapsed()));
    cut.iter().try_for_each(|island| island.link("up"))?;
    load.hurt();
    wait_for(load, &["ready", "ready"], BACK).context("they do not come back")?;
    let back = load.since_hurt();
    load.pause()?;
    check(load, &mut Random::new(1), 50, 10);
    let retries = self::lost(load)?.saturating_sub(lost);
    // What is shorter than the silence that a worker may keep repeats nothing.
    ensure!(time > NOTICED || retries == 0, "{retries} attempts repeated for a cut of {time:?}");
    eprintln!(
        "{} of 2 links cut for {time:?}: back after {back:?}, {retries} attempts repeated",
        cut.len()
    );
    Ok(())
}

/// Waits until the machines, by name, are in these states.
fn wait_for(load: &Load, states: &[&str], most: Duration) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = load.rest.get("workers");
        let Answer::Said(200, workers) = &answer else { bail!("the list was met with {answer:?}") };
        let workers = workers.as_array().cloned().unwrap_or_default();
        let given = workers.iter().map(|worker| worker["state"].as_str().unwrap_or_default());
        if given.clone().eq(states.iter().copied()) {
            return Ok(());
        }
        if began.elapsed() > most {
            let given: Vec<_> = given.collect();
            bail!("the machines are {given:?} after {most:?}, expected {states:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Attempts that had to be repeated so far.
fn lost(load: &Load) -> Result<u64> {
    match load.rest.get("stats") {
        Answer::Said(200, stats) => stats["retries"].as_u64().context("no retries"),
        other => bail!("stats were met with {other:?}"),
    }
}

/// Each machine came back as the process that it was.
fn alive(machines: &mut [Process]) -> Result<()> {
    for machine in machines {
        if let Some(status) = machine.ended()? {
            bail!("a machine ended with {status}");
        }
    }
    Ok(())
}
