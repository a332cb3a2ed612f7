//! Processes of the real program: a coordinator and machines that join it, on one machine.

use crate::cmd;
use crate::relay::Random;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Ports to choose from. Systems assign ephemeral ports above these, so that no other process takes
/// a coordinator's port while it is down.
const PORTS: std::ops::Range<u64> = 12_000..30_000;

/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(60);

/// Sends a signal, unless the process has ended.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = pid.map(|pid| kill_process(pid, signal));
}

/// A process of ours, killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// Held open, because writing to a closed pipe would end the process.
    stdout: Option<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Process {
    pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Self> {
        let said = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
        let mut child = command.spawn().with_context(|| cmd::line(&command))?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Self { child, stdout, log: log.to_owned() })
    }

    /// The first line that the process prints, which says it is ready. A process that neither
    /// prints nor ends in time is killed.
    pub(crate) fn said(&mut self) -> Result<Value> {
        let mut stdout = self.stdout.take().context("it was listened to before")?;
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = stdout.read_line(&mut line).map(|_| (line, stdout));
            // The receiver is gone if this took too long.
            let _ = sender.send(read);
        });
        let Ok(read) = receiver.recv_timeout(READY) else {
            self.kill()?;
            bail!("a process said nothing within {READY:?}");
        };
        let (line, stdout) = read?;
        self.stdout = Some(stdout);
        serde_json::from_str(&line).ok().with_context(|| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            format!("a process did not get ready: {}", log.lines().last().unwrap_or_default())
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, kind: Signal) {
        signal(self.pid(), kind);
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for the process to end by itself.
    pub(super) fn wait(&mut self, most: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + most;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("process {} did not end within {most:?}", self.pid());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended before.
        self.signal(Signal::CONT);
        let _ = self.kill();
    }
}

/// A coordinator's program, data and addresses, the same for each of its lives.
pub(super) struct Site {
    binary: PathBuf,
    /// The folder of everything; the coordinator's data are below.
    pub(super) folder: PathBuf,
    pub(super) http: SocketAddr,
    pub(super) quic: SocketAddr,
    /// Local workers.
    pub(super) workers: usize,
    /// Further environment variables for the coordinator, and for machines that join.
    pub(super) environment: Vec<(String, String)>,
    pub(super) joined_environment: Vec<(String, String)>,
}

impl Site {
    /// A new site in an empty folder, with workers to be reached at `ip`.
    pub(super) fn new(binary: &Path, folder: PathBuf, ip: IpAddr, workers: usize) -> Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder)?;
        let mut random = Random::new(u64::from(std::process::id()));
        let local = IpAddr::from([127, 0, 0, 1]);
        let http = free(&mut random, local, |addr| TcpListener::bind(addr).is_ok())?;
        let quic = free(&mut random, ip, |addr| UdpSocket::bind(addr).is_ok())?;
        let binary = binary.to_owned();
        let (environment, joined_environment) = (Vec::new(), Vec::new());
        Ok(Self { binary, folder, http, quic, workers, environment, joined_environment })
    }

    /// The coordinator's data folder within a site's folder.
    pub(super) fn data_in(folder: &Path) -> PathBuf {
        folder.join("data")
    }

    /// The coordinator's data folder.
    pub(super) fn data(&self) -> PathBuf {
        Self::data_in(&self.folder)
    }

    /// The address for local workers.
    pub(super) fn near(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.quic.port()))
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.http)
    }

    /// The program in a clean environment, run through another program unless `through` is empty.
    fn command(&self, through: &[String]) -> Command {
        let mut command = match through.split_first() {
            Some((first, rest)) => {
                let mut command = cmd::command(first);
                command.args(rest).arg(&self.binary);
                command
            }
            None => cmd::command(&self.binary),
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RADEON_") {
                command.env_remove(name);
            }
        }
        command.env("RADEON_QUIC__ADVERTISE", "never").env_remove("RUST_LOG");
        command.env("XDG_DATA_HOME", &self.folder).env("XDG_CACHE_HOME", &self.folder);
        command
    }

    /// Starts the coordinator; [`Process::said`] tells when it is ready.
    pub(super) fn begin(&self) -> Result<Process> {
        let mut start = self.command(&[]);
        start.envs(self.environment.iter().map(|(name, value)| (name, value)));
        start.args(["start", "--foreground", "--json", "--device", "cpu"]);
        start.arg("--workers").arg(self.workers.to_string()).arg("--data").arg(self.data());
        start.arg("--http").arg(self.http.to_string()).arg("--quic").arg(self.quic.to_string());
        start.args(["--grpc", "127.0.0.1:0"]);
        Process::spawn(start, &self.folder.join("coordinator.log"))
    }

    /// A coordinator that is ready.
    pub(super) fn start(&self) -> Result<Process> {
        let mut process = self.begin()?;
        process.said().context("the coordinator")?;
        Ok(process)
    }

    /// Starts a machine that joins at `addr`, through other programs if wanted; the first time
    /// needs a token.
    pub(super) fn join(
        &self,
        through: &[String],
        addr: SocketAddr,
        name: &str,
        token: Option<&str>,
    ) -> Result<Process> {
        let mut join = self.command(through);
        join.envs(self.joined_environment.iter().map(|(name, value)| (name, value)));
        join.arg("join").arg(addr.to_string()).args(token);
        join.args(["--json", "--device", "cpu", "--name", name]);
        join.arg("--data").arg(self.folder.join(name));
        let mut process = Process::spawn(join, &self.folder.join(format!("{name}.log")))?;
        process.said().with_context(|| format!("machine {name}"))?;
        Ok(process)
    }

    /// Runs a command of the program to its end.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<cmd::Finished> {
        cmd::capture(self.command(&[]).args(arguments))
    }
}

fn free(random: &mut Random, ip: IpAddr, fits: impl Fn(SocketAddr) -> bool) -> Result<SocketAddr> {
    for _ in 0..100 {
        let port = PORTS.start + random.below(PORTS.end - PORTS.start);
        let addr = SocketAddr::new(ip, u16::try_from(port)?);
        if fits(addr) {
            return Ok(addr);
        }
    }
    bail!("no free port on {ip}")
}
