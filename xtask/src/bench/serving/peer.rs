//! Other servers that run the same model with ONNX Runtime, each in its own process.

use super::load::Net;
use crate::{cmd, python};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The folder of the scripts.
const SCRIPTS: &str = "xtask/src/bench/serving";
/// How long a server may take until its first answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a server may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// The compared servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    MlServer,
    RayServe,
    BentoMl,
}

impl System {
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::MlServer => "MLServer",
            Self::RayServe => "Ray Serve",
            Self::BentoMl => "BentoML",
        }
    }

    fn python(self) -> Result<PathBuf> {
        match self {
            Self::MlServer => python::mlserver(),
            Self::RayServe => python::ray_serve(),
            Self::BentoMl => python::bentoml(),
        }
    }

    /// The path for inferences in JSON.
    fn path(self, net: &Net) -> String {
        match self {
            Self::MlServer => format!("/v2/models/{}/infer", net.name),
            Self::RayServe => "/".to_owned(),
            Self::BentoMl => "/infer".to_owned(),
        }
    }

    /// The HTTP path for inferences with binary tensors. MLServer takes those over gRPC only.
    fn binary_path(self) -> &'static str {
        match self {
            Self::MlServer | Self::RayServe => "/",
            Self::BentoMl => "/raw/infer",
        }
    }

    /// The command that starts the server on the given ports.
    fn command(self, net: &Net, model: &Path, ports: &[u16; 3]) -> Result<Command> {
        let python = self.python()?;
        let mut command = cmd::command(&python);
        match self {
            Self::MlServer => {
                let folder = cmd::root().join("target/xtask/serving/mlserver");
                std::fs::create_dir_all(&folder)?;
                let [http, grpc, metrics] = ports;
                let settings = json!({
                    "host": "127.0.0.1", "http_port": http, "grpc_port": grpc,
                    "metrics_port": metrics, "parallel_workers": 0, "debug": false,
                });
                let model = json!({
                    "name": net.name, "implementation": "mlserver_model.OnnxModel",
                    "parameters": { "uri": model },
                });
                std::fs::write(folder.join("settings.json"), settings.to_string())?;
                std::fs::write(folder.join("model-settings.json"), model.to_string())?;
                command = beside(&python, "mlserver");
                command.arg("start").arg(folder);
            }
            Self::RayServe => {
                command.arg(format!("{SCRIPTS}/ray_app.py")).arg(model).arg(ports[0].to_string());
            }
            Self::BentoMl => {
                command = beside(&python, "bentoml");
                command.args(["serve", "bento_app:Onnx", "--working-dir", SCRIPTS, "--port"]);
                command.arg(ports[0].to_string()).args(["--host", "127.0.0.1"]);
                command.env("MODEL", model).env("BENTOML_DO_NOT_TRACK", "True");
            }
        }
        command.env("PYTHONPATH", cmd::root().join(SCRIPTS)).env("RAY_USAGE_STATS_ENABLED", "0");
        Ok(command)
    }

    /// The time of a run of the model alone, in microseconds.
    pub(super) fn alone_us(self, model: &Path, input: &str) -> Result<f64> {
        let mut command = cmd::command(self.python()?);
        command.arg(format!("{SCRIPTS}/oip.py")).arg(model).arg(input);
        let finished = cmd::stdout(&mut command)?;
        let answer: Value = serde_json::from_str(finished.output.trim())?;
        answer["p50_us"].as_f64().context("no time of the model alone")
    }
}

/// A program of an environment.
fn beside(python: &Path, name: &str) -> Command {
    cmd::command(python.with_file_name(name))
}

/// A running server; it and its children end when this is dropped.
pub(super) struct Peer {
    child: Child,
    /// The URL for inferences in JSON.
    pub(super) http: String,
    /// The URL for inferences with binary tensors.
    pub(super) binary: String,
    /// The gRPC address, if the server has one.
    pub(super) grpc: String,
}

impl Peer {
    /// Starts the server and waits until it has answered `body`.
    pub(super) fn start(system: System, net: &Net, model: &Path, body: &str) -> Result<Self> {
        let ports = free_ports()?;
        let mut command = system.command(net, model, &ports)?;
        let folder = cmd::root().join("target/xtask/serving");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.log", system.title()));
        let log = File::create(&path)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("no {}", cmd::line(&command)))?;
        let http = format!("http://127.0.0.1:{}{}", ports[0], system.path(net));
        let binary = format!("http://127.0.0.1:{}{}", ports[0], system.binary_path());
        let grpc = format!("http://127.0.0.1:{}", ports[1]);
        let mut peer = Self { child, http, binary, grpc };
        let until = Instant::now() + PATIENCE;
        loop {
            let sent = ureq::post(&peer.http).content_type("application/json").send(body);
            if sent.is_ok() {
                return Ok(peer);
            }
            if let Some(status) = peer.child.try_wait()? {
                bail!("{} ended with {status}; see {}", system.title(), path.display());
            }
            ensure!(Instant::now() < until, "{} does not answer: {sent:?}", system.title());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        // Some servers have workers in other process groups, which end only if the server is asked to end.
        for signal in ["-TERM", "-KILL"] {
            // The server and its children may have ended already.
            let _ = Command::new("kill").args([signal, "--", &group]).status();
            let until = Instant::now() + ENDS_WITHIN;
            while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let _ = self.child.wait();
    }
}

fn free_ports() -> Result<[u16; 3]> {
    let mut listeners = Vec::new();
    for _ in 0..3 {
        listeners.push(TcpListener::bind("127.0.0.1:0")?);
    }
    let port = |at: usize| anyhow::Ok(listeners[at].local_addr()?.port());
    Ok([port(0)?, port(1)?, port(2)?])
}
