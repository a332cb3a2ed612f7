//! Three coordinators with a local worker each, the servers of their engine, and a machine that may join
//! all three, each in a place of its own.

use super::client::Client;
use super::engine::{Engine, Servers};
use super::net::Net;
use crate::chaos::models;
use crate::chaos::process::Process;
use crate::chaos::world::disk::{Disk, unmount};
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Coordinators.
pub(crate) const COORDINATORS: usize = 3;
/// The place of the machine that joins; the engine's places follow.
pub(super) const WORKER: usize = COORDINATORS;
const QUIC: u16 = 8443;
/// How long a cluster may take until it is whole.
const WHOLE: Duration = Duration::from_secs(40);

pub(crate) struct Stage {
    pub(super) engine: Engine,
    binary: PathBuf,
    pub(crate) folder: PathBuf,
    control: String,
    pub(crate) clients: Vec<Client>,
    coordinators: Vec<Option<Process>>,
    worker: Option<Process>,
    pub(super) disks: Vec<Disk>,
    pub(crate) servers: Servers,
    pub(crate) net: Net,
}

impl Stage {
    /// Sets the stage up on a network of its own with small disks, and lets a machine join.
    pub(super) fn apart(engine: Engine, binary: &Path, folder: &Path) -> Result<Self> {
        let mut stage =
            Self::set(engine, binary, folder, || Net::new(WORKER + 1 + engine.places()))?;
        let token = stage.token(3)?;
        stage.join(Some(&token))?;
        Ok(stage)
    }

    /// Sets the stage up on this machine and its disk.
    pub(crate) fn together(engine: Engine, binary: &Path, folder: &Path) -> Result<Self> {
        Self::set(engine, binary, folder, || Ok(Net::together()))
    }

    /// Sets the stage up in an empty folder, without the machine that joins.
    fn set(
        engine: Engine,
        binary: &Path,
        folder: &Path,
        net: impl FnOnce() -> Result<Net>,
    ) -> Result<Self> {
        clear(folder)?;
        let net = net()?;
        let servers = Servers::start(engine, &net, folder, WORKER + 1)?;
        let disks = (0..COORDINATORS)
            .map(|at| net.disk(data(folder, at), "64m"))
            .collect::<Result<Vec<_>>>()?;
        let control = servers.url(&net);
        let client = |at| Client::new(&format!("http://{}:8000", net.local(at)), &data(folder, at));
        let mut stage = Self {
            engine,
            binary: binary.to_owned(),
            folder: folder.to_owned(),
            control,
            clients: (0..COORDINATORS).map(client).collect(),
            coordinators: (0..COORDINATORS).map(|_| None).collect(),
            worker: None,
            disks,
            servers,
            net,
        };
        stage.furnish()?;
        Ok(stage)
    }

    fn furnish(&mut self) -> Result<()> {
        self.start(0)?;
        let authority = self.authority();
        for at in 1..COORDINATORS {
            let pki = data(&self.folder, at).join("pki");
            std::fs::create_dir_all(&pki)?;
            std::fs::set_permissions(&pki, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
            std::fs::copy(&authority, pki.join("authority.pem"))?;
            self.start(at)?;
        }
        self.whole()?;
        self.clients[self.leader()?].cluster_raw("POST", "models/work", &models::work())?;
        self.clients.iter().try_for_each(has_work)
    }

    /// A token with which `uses` machines can join.
    fn token(&self, uses: u64) -> Result<String> {
        let token = self.clients[0].cluster("POST", "tokens", &json!({ "uses": uses }))?;
        Ok(token["token"].as_str().context("no token")?.to_owned())
    }

    /// Where workers find each coordinator.
    pub(crate) fn addresses(&self) -> String {
        let all = (0..COORDINATORS).map(|at| format!("{}:{QUIC}", self.net.addr(at)));
        all.collect::<Vec<_>>().join(",")
    }

    /// The file of the cluster's authority, from the first coordinator.
    pub(crate) fn authority(&self) -> PathBuf {
        data(&self.folder, 0).join("pki/authority.pem")
    }

    fn command(&self, at: usize) -> Command {
        let mut command = self.net.command(at, &[]);
        command.arg(&self.binary);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RADEON_") {
                command.env_remove(name);
            }
        }
        let home = self.folder.join(format!("home{at}"));
        command.env("RADEON_QUIC__ADVERTISE", "never").env("RADEON_CONTROL", &self.control);
        command.env("RADEON_KEYS_KEPT_FOR_S", "600").env_remove("RUST_LOG");
        command.env("XDG_DATA_HOME", &home).env("XDG_CACHE_HOME", home);
        command
    }

    /// Starts a coordinator and waits until it is ready.
    pub(super) fn start(&mut self, at: usize) -> Result<()> {
        let mut start = self.command(at);
        start.args(["start", "--foreground", "--json", "--device", "cpu", "--workers", "1"]);
        start.arg("--data").arg(data(&self.folder, at));
        start.arg("--http").arg(format!("{}:8000", self.net.local(at)));
        start.arg("--grpc").arg(format!("{}:8001", self.net.local(at)));
        start.arg("--quic").arg(format!("{}:{QUIC}", self.net.addr(at)));
        let mut process = Process::spawn(start, &self.log(at))?;
        process.said().with_context(|| format!("coordinator {at}"))?;
        self.coordinators[at] = Some(process);
        Ok(())
    }

    /// Starts the machine that joins all three.
    pub(super) fn join(&mut self, token: Option<&str>) -> Result<()> {
        let mut join = self.command(WORKER);
        join.arg("join").arg(self.addresses()).args(token);
        join.args(["--json", "--device", "cpu", "--name", "joined"]);
        join.arg("--data").arg(self.folder.join("joined"));
        let mut process = Process::spawn(join, &self.log(WORKER))?;
        process.said().context("the machine that joins")?;
        self.worker = Some(process);
        Ok(())
    }

    fn log(&self, at: usize) -> PathBuf {
        self.folder.join(format!("place{at}.log"))
    }

    pub(crate) fn coordinator(&mut self, at: usize) -> Result<&mut Process> {
        self.coordinators[at].as_mut().with_context(|| format!("coordinator {at} does not run"))
    }

    /// The URL of the coordinators' shared state.
    pub(crate) fn control(&self) -> &str {
        &self.control
    }

    /// Ends every coordinator; the servers go on.
    pub(crate) fn halt(&mut self) -> Result<()> {
        let mut running = self.coordinators.iter_mut().filter_map(Option::take);
        running.try_for_each(|mut process| process.kill())
    }

    pub(super) fn kill(&mut self, at: usize) -> Result<()> {
        match at {
            WORKER => self.worker.take().context("no machine has joined")?.kill(),
            _ => self.coordinators[at].take().context("it does not run")?.kill(),
        }
    }

    /// The process of a coordinator's local worker.
    pub(super) fn local_worker(&mut self, at: usize) -> Result<u32> {
        let parent = self.coordinator(at)?.pid();
        let of_any = std::fs::read_dir(format!("/proc/{parent}/task"))?.flatten();
        let children =
            of_any.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
        let children = children.collect::<String>();
        let first = children.split_whitespace().next();
        first
            .with_context(|| format!("process {parent} has no worker"))?
            .parse()
            .context("no number")
    }

    /// The coordinator that leads.
    pub(crate) fn leader(&self) -> Result<usize> {
        let end = Instant::now() + WHOLE;
        while Instant::now() < end {
            let standing =
                self.clients.iter().map(|it| it.standing().is_ok_and(|(leads, _)| leads));
            let leads: Vec<usize> =
                standing.enumerate().filter(|(_, leads)| *leads).map(|(at, _)| at).collect();
            if let [leader] = leads[..] {
                return Ok(leader);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("no coordinator, or several, lead for {WHOLE:?}")
    }

    /// Waits until every server runs, one coordinator leads and none reports trouble.
    pub(super) fn whole(&mut self) -> Result<()> {
        for server in &mut self.servers.0 {
            server.revive(&self.net)?;
            server.wait(&self.net)?;
        }
        let end = Instant::now() + WHOLE;
        loop {
            let all: Vec<_> = self.clients.iter().map(Client::standing).collect();
            let leads = all.iter().filter(|it| matches!(it, Ok((true, _)))).count();
            if leads == 1 && all.iter().all(|it| matches!(it, Ok((_, None)))) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the cluster is not whole after {WHOLE:?}: {all:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Processes that ended without being killed.
    pub(super) fn ended(&mut self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        let all = self.coordinators.iter_mut().flatten().chain(&mut self.worker);
        for (number, process) in all.enumerate() {
            if let Some(status) = process.ended()? {
                ended.push(format!("process {number} ended by itself: {status}"));
            }
        }
        Ok(ended)
    }

    /// Copies every log to another folder.
    pub(super) fn keep_logs(&self, to: &Path) -> Result<()> {
        std::fs::create_dir_all(to)?;
        for at in 0..=WORKER {
            std::fs::copy(self.log(at), to.join(format!("place{at}.log")))?;
        }
        for server in &self.servers.0 {
            let name = format!("{:?}{}.log", server.kind, server.at).to_lowercase();
            std::fs::copy(server.log(), to.join(name))?;
        }
        Ok(())
    }
}

/// Waits until a coordinator has the model that was uploaded to another.
fn has_work(client: &Client) -> Result<()> {
    let end = Instant::now() + WHOLE;
    loop {
        match client.cluster_raw("GET", "models/work", &[]) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// The data folder of a coordinator.
fn data(folder: &Path, at: usize) -> PathBuf {
    folder.join(format!("coordinator{at}"))
}

/// Empties a folder, and unmounts disks that an earlier run left in it.
fn clear(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        for below in [entry.path(), entry.path().join("disk")] {
            unmount(&below);
        }
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(std::fs::create_dir_all(folder)?)
}
