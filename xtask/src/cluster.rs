//! A cluster of our own binary for a test or a measurement.

use crate::cmd;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// How the binary is built.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// As tests are.
    Dev,
    /// As it is shipped.
    Release,
}

/// The `radeon-cluster` binary, built on the first call.
pub(crate) fn binary(profile: Profile) -> Result<PathBuf> {
    let folder = match profile {
        Profile::Dev => cmd::programs()?,
        Profile::Release => {
            static BUILT: Mutex<bool> = Mutex::new(false);
            let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
            if !*built {
                let mut cargo = cmd::cargo();
                cmd::run(cargo.args(["build", "--quiet", "--bin", "radeon-cluster", "--release"]))?;
                *built = true;
            }
            cmd::root().join("target/release")
        }
    };
    Ok(folder.join("radeon-cluster"))
}

/// A running cluster, stopped when dropped.
pub(crate) struct Cluster {
    binary: PathBuf,
    data: PathBuf,
    /// The output of `start`.
    answer: Value,
    running: bool,
}

impl Cluster {
    /// Starts a coordinator with two workers on free ports; `name` names its data folder.
    pub(crate) fn start(profile: Profile, name: &str) -> Result<Self> {
        Self::start_with(profile, name, 2, &[], &[])
    }

    /// As [`Self::start`], with a number of workers, further flags and environment variables.
    pub(crate) fn start_with(
        profile: Profile,
        name: &str,
        workers: usize,
        flags: &[&str],
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let binary = binary(profile)?;
        let data = cmd::root().join("target/xtask").join(name);
        if data.exists() {
            std::fs::remove_dir_all(&data)?;
        }
        let mut start = cmd::command(&binary);
        start.args(["start", "--json", "--workers", &workers.to_string()]);
        start.args(["--http", "127.0.0.1:0"]);
        start.args(["--grpc", "127.0.0.1:0", "--quic", "127.0.0.1:0", "--data"]).arg(&data);
        start.args(flags).envs(settings.iter().copied());
        let finished = cmd::stdout(&mut start)?;
        ensure!(finished.ok, "`start` failed");
        let answer = serde_json::from_str(&finished.output).context("`start` printed no JSON")?;
        Ok(Self { binary, data, answer, running: true })
    }

    /// The URL of REST.
    pub(crate) fn http(&self) -> Result<String> {
        let address = self.answer["http"].as_str().context("`start` names no http address")?;
        let url =
            if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        Ok(url)
    }

    /// The owner's key file.
    pub(crate) fn key_file(&self) -> String {
        self.data.join("local.key").display().to_string()
    }

    /// The certificate of its authority.
    pub(crate) fn authority(&self) -> String {
        self.data.join("pki/authority.pem").display().to_string()
    }

    /// The address of gRPC, as `HOST:PORT`.
    pub(crate) fn grpc(&self) -> Result<String> {
        let address = self.answer["grpc"].as_str().context("`start` names no gRPC address")?;
        Ok(address.split("://").last().unwrap_or_default().to_owned())
    }

    /// The URL of Frigate's detector.
    pub(crate) fn frigate(&self) -> Result<&str> {
        self.answer["frigate"].as_str().context("`start` names no address for Frigate")
    }

    /// The coordinator's process id.
    pub(crate) fn pid(&self) -> Result<u64> {
        self.answer["pid"].as_u64().context("`start` names no pid")
    }

    /// The worker's process id.
    pub(crate) fn worker_pid(&self) -> Result<u64> {
        let mut workers = cmd::command(&self.binary);
        let listed = cmd::stdout(workers.args(["workers", "--json", "--data"]).arg(&self.data))?;
        let listed: Value =
            serde_json::from_str(&listed.output).context("`workers` printed no JSON")?;
        let ready = listed.as_array().and_then(|all| all.iter().find(|it| it["state"] == "ready"));
        ready.and_then(|worker| worker["pid"].as_u64()).context("no worker is ready")
    }

    /// Stops the cluster and waits for its end.
    pub(crate) fn stop(mut self) -> Result<()> {
        ensure!(self.ask_to_stop()?, "`stop` failed");
        Ok(())
    }

    fn ask_to_stop(&mut self) -> Result<bool> {
        self.running = false;
        let mut stop = cmd::command(&self.binary);
        Ok(cmd::stdout(stop.args(["stop", "--json", "--data"]).arg(&self.data))?.ok)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.running {
            // A test has failed already, so this error is not reported.
            let _ = self.ask_to_stop();
        }
    }
}
