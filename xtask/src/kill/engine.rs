//! The engines that hold election and log: PostgreSQL, or etcd and NATS, three servers each.

use super::net::Net;
use crate::chaos::process::Process;
use crate::chaos::world::disk::{Disk, unmount};
use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const POSTGRES: u16 = 5499;
const ETCD: u16 = 23_790;
const ETCD_PEERS: u16 = 23_800;
const NATS: u16 = 24_222;
const NATS_ROUTES: u16 = 26_222;
const NATS_WATCH: u16 = 28_222;
/// How long a server may take to answer.
const STARTING: Duration = Duration::from_secs(60);

/// What keeps lead and log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// One PostgreSQL.
    Postgres,
    /// Three etcd and three NATS.
    Etcd,
}

/// The program of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    Etcd,
    Nats,
}

/// A server in its place on the network.
pub(crate) struct Server {
    pub(super) kind: Kind,
    pub(super) at: usize,
    folder: PathBuf,
    pub(super) disk: Disk,
    process: Option<Process>,
    arguments: Vec<String>,
}

/// All servers, by their places.
pub(crate) struct Servers(pub(super) Vec<Server>);

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Etcd => "etcd",
        }
    }

    /// The number of places that the engine takes.
    pub(super) fn places(self) -> usize {
        match self {
            Self::Postgres => 1,
            Self::Etcd => 6,
        }
    }
}

impl Servers {
    /// Starts servers from the place `first` on.
    pub(super) fn start(engine: Engine, net: &Net, folder: &Path, first: usize) -> Result<Self> {
        let mut servers = match engine {
            Engine::Postgres => vec![Server::postgres(net, folder, first)?],
            Engine::Etcd => {
                let etcd = (0..3).map(|n| Server::etcd(net, folder, first, n));
                let nats = (0..3).map(|n| Server::nats(net, folder, first + 3, n));
                etcd.chain(nats).collect::<Result<Vec<_>>>()?
            }
        };
        servers.iter_mut().try_for_each(|server| server.begin(net))?;
        servers.iter_mut().try_for_each(|server| server.wait(net))?;
        Ok(Self(servers))
    }

    /// Each server's process.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|server| server.process.as_ref().map(Process::pid))
    }

    /// The URL for coordinators.
    pub(crate) fn url(&self, net: &Net) -> String {
        let all = self.0.iter().map(|server| {
            let host = net.local(server.at);
            match server.kind {
                Kind::Postgres => format!("postgres://postgres@{host}:{POSTGRES}/postgres"),
                Kind::Etcd => format!("etcd://{host}:{ETCD}"),
                Kind::Nats => format!("nats://{host}:{NATS}"),
            }
        });
        all.collect::<Vec<_>>().join(",")
    }

    /// The servers of a kind, the leader first if there is one.
    pub(super) fn led(&self, net: &Net, kind: Kind) -> Result<Vec<usize>> {
        let of_kind = self.0.iter().enumerate().filter(|(_, server)| server.kind == kind);
        let mut found: Vec<usize> = of_kind.map(|(at, _)| at).collect();
        if kind == Kind::Postgres {
            return Ok(found);
        }
        let leads = found.iter().find(|at| match kind {
            Kind::Etcd => leads_etcd(&net.local(self.0[**at].at)),
            _ => leads_stream(&net.local(self.0[**at].at), **at % 3),
        });
        let leader = *leads.with_context(|| format!("no {kind:?} says that it leads"))?;
        found.retain(|at| *at != leader);
        found.insert(0, leader);
        Ok(found)
    }
}

/// A server's answer over HTTP.
fn ask(url: &str, body: Option<&str>) -> Option<Value> {
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(2)));
    let agent = config.build().new_agent();
    let answer = match body {
        Some(body) => agent.post(url).send(body),
        None => agent.get(url).call(),
    };
    answer.ok()?.body_mut().read_json().ok()
}

fn leads_etcd(host: &str) -> bool {
    let status = ask(&format!("http://{host}:{ETCD}/v3/maintenance/status"), Some("{}"));
    status.is_some_and(|it| it["leader"].is_string() && it["leader"] == it["header"]["member_id"])
}

/// Whether server `n` leads the stream of the cluster.
fn leads_stream(host: &str, n: usize) -> bool {
    let url = format!("http://{host}:{NATS_WATCH}/jsz?accounts=true&streams=true");
    let told = ask(&url, None).unwrap_or_default();
    let accounts = told["account_details"].as_array().cloned().unwrap_or_default();
    let mut streams = accounts.iter().filter_map(|it| it["stream_detail"].as_array()).flatten();
    streams.any(|stream| stream["cluster"]["leader"] == format!("n{n}"))
}

impl Server {
    fn new(kind: Kind, net: &Net, at: usize, (folder, size): (PathBuf, &str)) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        unmount(&folder.join("disk"));
        let disk = net.disk(folder.join("disk"), size)?;
        Ok(Self { kind, at, folder, disk, process: None, arguments: Vec::new() })
    }

    fn postgres(net: &Net, folder: &Path, at: usize) -> Result<Self> {
        let mut server = Self::new(Kind::Postgres, net, at, (folder.join("postgres"), "160m"))?;
        let programs = programs().context("no initdb below /usr/lib/postgresql")?;
        let disk = server.folder.join("disk");
        let data = disk.join("data").display().to_string();
        let owned = crate::cmd::capture(crate::cmd::command("chown").arg("postgres").arg(&disk))?;
        ensure!(owned.ok, "{}", owned.output);
        let mut initdb = net.command(at, &AS_POSTGRES);
        initdb.arg(programs.join("initdb")).args(["--username=postgres", "--auth=trust"]);
        initdb.args(["--no-sync", "--encoding=UTF8", "-D", &data]).current_dir(&disk);
        let made = crate::cmd::capture(&mut initdb)?;
        ensure!(made.ok, "{}", made.output);
        let program = programs.join("postgres").display().to_string();
        let disk = disk.display().to_string();
        let port = POSTGRES.to_string();
        let listen = format!("listen_addresses={}", net.local(at));
        // Coordinators connect from addresses that PostgreSQL does not count as local.
        std::fs::write(Path::new(&data).join("pg_hba.conf"), "host all all 0.0.0.0/0 trust\n")?;
        let sizes: &[&str] = match net.is_apart() {
            true => &["-c", "min_wal_size=32MB", "-c", "max_wal_size=48MB"],
            false => &[],
        };
        let all = [&AS_POSTGRES[..], &[&program, "-D", &data, "-k", &disk, "-p", &port]].concat();
        let all = [&all[..], &["-c", &listen], sizes].concat();
        server.arguments = all.into_iter().map(str::to_owned).collect();
        Ok(server)
    }

    fn etcd(net: &Net, folder: &Path, first: usize, n: usize) -> Result<Self> {
        let mut server =
            Self::new(Kind::Etcd, net, first + n, (folder.join(format!("etcd{n}")), "400m"))?;
        let url = |n: usize, port: u16| format!("http://{}:{port}", net.local(first + n));
        let all: Vec<_> = (0..3).map(|n| format!("m{n}={}", url(n, ETCD_PEERS))).collect();
        let data = server.folder.join("disk/data").display().to_string();
        let (clients, peers) = (url(n, ETCD), url(n, ETCD_PEERS));
        let (name, all) = (format!("m{n}"), all.join(","));
        let given = [
            "etcd",
            "--name",
            &name,
            "--data-dir",
            &data,
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
            "--initial-cluster",
            &all,
        ];
        server.arguments = given.map(str::to_owned).to_vec();
        Ok(server)
    }

    fn nats(net: &Net, folder: &Path, first: usize, n: usize) -> Result<Self> {
        let mut server =
            Self::new(Kind::Nats, net, first + n, (folder.join(format!("nats{n}")), "128m"))?;
        let host = net.local(first + n);
        let routes = (0..3).map(|n| format!("nats://{}:{NATS_ROUTES}", net.local(first + n)));
        let routes = routes.collect::<Vec<_>>().join(", ");
        let config = format!(
            "listen: \"{host}:{NATS}\"\nhttp: \"{host}:{NATS_WATCH}\"\nserver_name: n{n}\n\
             jetstream {{ store_dir: {:?}, max_file_store: 1G }}\n\
             cluster {{ name: c, listen: \"{host}:{NATS_ROUTES}\", routes: [{routes}] }}\n",
            server.folder.join("disk/data").display().to_string(),
        );
        let path = server.folder.join("config");
        std::fs::write(&path, config)?;
        let path = path.display().to_string();
        server.arguments = ["/usr/sbin/nats-server", "-c", &path].map(str::to_owned).to_vec();
        Ok(server)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Starts it, without waiting for it.
    pub(super) fn begin(&mut self, net: &Net) -> Result<()> {
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        let mut command = net.command(self.at, &arguments);
        command.stdin(Stdio::null()).current_dir(&self.folder);
        self.process = Some(Process::spawn(command, &self.log())?);
        Ok(())
    }

    /// Waits until the server answers. A server that ended is started again: the remains of a
    /// killed one may keep it from starting for a moment.
    pub(super) fn wait(&mut self, net: &Net) -> Result<()> {
        let end = Instant::now() + STARTING;
        loop {
            if self.answers(net) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{:?} at {} does not answer within {STARTING:?}", self.kind, self.at);
            }
            std::thread::sleep(Duration::from_millis(50));
            self.revive(net)?;
        }
    }

    /// Starts the server if it has ended.
    pub(super) fn revive(&mut self, net: &Net) -> Result<bool> {
        let ended = match &mut self.process {
            Some(process) => process.ended()?.is_some(),
            None => true,
        };
        if ended {
            self.begin(net)?;
        }
        Ok(ended)
    }

    fn answers(&self, net: &Net) -> bool {
        let host = net.local(self.at);
        match self.kind {
            Kind::Postgres => std::net::TcpStream::connect((host.as_str(), POSTGRES)).is_ok(),
            Kind::Etcd => ask(&format!("http://{host}:{ETCD}/health"), None)
                .is_some_and(|it| it["health"] == "true"),
            Kind::Nats => ask(&format!("http://{host}:{NATS_WATCH}/healthz"), None)
                .is_some_and(|it| it["status"] == "ok"),
        }
    }

    /// Kills the server, as a crash would.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.take().map_or(Ok(()), |mut process| process.kill())
    }
}

/// PostgreSQL refuses to run as root.
const AS_POSTGRES: [&str; 5] =
    ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"];

/// The folder of PostgreSQL's programs, which Debian keeps out of the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let mut folders = versions.map(|version| version.path().join("bin"));
    folders.find(|folder| folder.join("initdb").exists())
}
