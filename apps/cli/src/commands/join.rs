//! `join`: this machine becomes a worker of a cluster elsewhere, for as long as the command runs.

use crate::cluster::{Signals, member, runtime, survey};
use crate::device;
use crate::failure::{Failure, NEW_TOKEN, Result};
use crate::output::Output;
use crate::secret;
use crate::settings::{self, Flags, Limits, Settings};
use lgp_common::parse_size;
use lgp_distributed::{Coordinators, Discovery, Executor, JoinRefusal};
use lgp_sdk::cluster::{
    Error as ClusterError, Identity, JoinToken, ModelExecutor, MultiExecutor, WorkerConfig,
    run_worker,
};
use lgp_sdk::model::{Repository, SessionOptions};
use serde::Serialize;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::sync::oneshot;

/// How long a coordinator is searched on the local network.
const SEARCH: Duration = Duration::from_secs(20);
/// A revocation reported this soon was made before the machine began to work.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Failure codes after which the search tries the next announced coordinator.
const ELSEWHERE: [&str; 3] = ["wrong_cluster", "coordinator_unreachable", "cluster_failed"];

/// Flags of `join`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster join 192.168.1.10 LGP1.5f70….9c41…\n\n\
    Stays in the foreground; ctrl-C finishes what runs here and leaves. A lost connection is made\n\
    anew. The machine keeps its identity: joining again needs no token, unless it was away for more\n\
    than 30 days (quic.absence_max_s) or was revoked.\n\n\
    Other accounts see command lines: one with a token is replaced at once by one without, and - (for\n\
    stdin), --token-file and RADEON_JOIN_TOKEN never show it.")]
pub(crate) struct Args {
    /// The coordinator's address, or several with commas between; without a port, 8443
    #[arg(
        value_name = "HOST[:PORT]",
        required_unless_present = "discover",
        conflicts_with = "discover"
    )]
    host: Option<Coordinators>,
    /// What radeon-cluster token create has printed; - reads it from stdin. RADEON_JOIN_TOKEN may hold it
    /// too
    #[arg(conflicts_with = "token_file")]
    token: Option<String>,
    /// Find the coordinator on the local network by the token, here or from elsewhere
    #[arg(long, value_name = "TOKEN", num_args = 0..=1, default_missing_value = "")]
    discover: Option<String>,
    /// A file that holds the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The worker's name in the cluster [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// The device to compute on: auto, cpu, vulkan:0, opencl:0, cuda:0 …; several, as in vulkan:0,vulkan:1, take
    /// tasks side by side [default: auto]
    #[arg(short, long)]
    device: Option<String>,
    /// Where the identity and fetched models live [default: ~/.local/share/radeon-cluster/joined]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What fetched models may take of the disk
    #[arg(long, value_name = "SIZE", default_value = "32GiB", value_parser = parse_size)]
    cache: u64,
}

/// The command's output once the machine belongs to the cluster.
#[derive(Debug, Serialize)]
struct Joined {
    name: String,
    coordinator: String,
    data: PathBuf,
    device: String,
    /// Whether a token was used; false where the machine came back with its kept identity. If that identity turns out
    /// to be revoked or expired for too long, the token is used after all.
    enrolled: bool,
    /// When the identity expires unless renewed, in seconds since 1970. After an absence this may be past: the identity
    /// is renewed as soon as the coordinator is reached.
    expires_s: u64,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let token = token(args)?;
    let parsed = token.as_ref().map(|text| text.parse::<JoinToken>()).transpose();
    let parsed = parsed.map_err(|error| {
        Failure::usage(error.to_string()).hint("make one with: radeon-cluster token create")
    })?;
    let wanted = member::Wanted::new(parsed, args.name.as_deref())?;
    let flags = Flags { device: args.device.as_deref(), ..Flags::default() };
    let settings = settings::resolve(&flags, settings::environment)?;
    if let Some(token) = token.as_deref().filter(|token| is_shown(token)) {
        return Err(start_anew(Some(token)));
    }
    crate::logging::init("info", settings.log_format);
    let data = args.data.clone().unwrap_or_else(|| settings.data.join("joined"));
    let data = std::path::absolute(&data).map_err(|e| Failure::file("resolve", &data, &e))?;
    let _ownership = member::own(&data)?;
    runtime()?.block_on(async {
        // Listen before a driver is loaded: some drivers handle signals too, and then end the process.
        let mut signals = Signals::listen()?;
        let executor = executor(&settings, &data, args.cache)?;
        let limits = settings.limits();
        let mut machine = Machine { data, executor, wanted, token, limits, out };
        match &args.host {
            Some(host) => {
                let identity = tokio::select! {
                    identity = machine.wanted.identity(host, &machine.data) => identity?,
                    () = signals.next() => return Err(Failure::interrupted()),
                };
                Ok(machine.belong(host, identity, &mut signals).await??)
            }
            None => machine.search(&mut signals).await,
        }
    })
}

fn executor(settings: &Settings, data: &std::path::Path, cache: u64) -> Result<Arc<MultiExecutor>> {
    // A device that computes wrongly must not join.
    let devices = device::resolve_each(&settings.device)?;
    let repository = Repository::open(data.join("models"))?;
    // The folder is ours alone.
    repository.sweep()?;
    let options = SessionOptions { isa: settings.simd.isa(), ..SessionOptions::default() };
    let used = devices.iter().map(|device| device::id(device.as_ref())).collect();
    let executor = device::executors(devices, |accelerator| {
        let executor = ModelExecutor::new(repository.clone(), accelerator, options);
        Ok(executor.within(settings.model_memory()).fetching(cache))
    })?;
    survey::begin(&executor, used);
    Ok(executor)
}

fn is_refused(ended: &Result<(), ClusterError>, refusal: &JoinRefusal) -> bool {
    matches!(ended, Err(ClusterError::JoinRefused { refusal: given, .. }) if given == refusal)
}

/// The environment variable that may hold a token.
const TOKEN: &str = "RADEON_JOIN_TOKEN";

/// The token, from the command line, stdin, a file or the environment.
fn token(args: &Args) -> Result<Option<String>> {
    let given = args.token.as_ref().or(args.discover.as_ref()).filter(|text| !text.is_empty());
    let found = match (given.map(String::as_str), &args.token_file) {
        (Some("-"), _) => Some(piped(secret::from_stdin()?)?),
        (Some(text), _) => Some(text.to_owned()),
        (None, Some(path)) => Some(secret::from_file("read", path)?),
        (None, None) => settings::environment(TOKEN),
    };
    Ok(found.filter(|text| !text.is_empty()))
}

/// The token from stdin, which must hold one.
fn piped(text: String) -> Result<String> {
    match text.is_empty() {
        true => {
            Err(Failure::usage("stdin holds no token, expected one line such as LGP1.HASH.SECRET")
                .hint(NEW_TOKEN))
        }
        false => Ok(text),
    }
}

/// Whether this process's command line shows the token to other accounts.
fn is_shown(token: &str) -> bool {
    std::env::args().any(|arg| arg.contains(token))
}

/// Replaces this process by the same command with the token on stdin, so that the command line no longer shows it. The
/// replacement also ends threads that hang in a run. Answers only why it failed.
fn start_anew(token: Option<&str>) -> Failure {
    let run = || -> std::io::Result<std::io::Error> {
        let (reader, mut writer) = std::io::pipe()?;
        // A token is shorter than a pipe's buffer.
        writer.write_all(token.unwrap_or_default().as_bytes())?;
        drop(writer);
        let args = std::env::args_os().skip(1).map(|arg| match (arg.to_str(), token) {
            (Some(text), Some(token)) => text.replace(token, "-").into(),
            _ => arg,
        });
        Ok(Command::new(std::env::current_exe()?).args(args).stdin(reader).exec())
    };
    Failure::internal(run().unwrap_or_else(|error| error))
}

/// This machine, about to work for a cluster.
struct Machine {
    data: PathBuf,
    executor: Arc<MultiExecutor>,
    wanted: member::Wanted,
    /// The token as it was given.
    token: Option<String>,
    limits: Limits,
    out: Output,
}

impl Machine {
    /// As [`Machine::work`]. A machine that was revoked or away for too long while it was off joins anew, once, if it
    /// has a token.
    async fn belong(
        &mut self,
        at: &Coordinators,
        identity: (Identity, bool),
        signals: &mut Signals,
    ) -> Result<Result<(), ClusterError>> {
        let (began, kept) = (Instant::now(), !identity.1);
        let ended = self.work(at, identity, signals).await?;
        // A machine that is revoked while it works must not come back by itself.
        let revoked = is_refused(&ended, &JoinRefusal::CertificateRevoked);
        let lapsed = is_refused(&ended, &JoinRefusal::CertificateLapsed);
        if !(kept && (lapsed || revoked && began.elapsed() < AT_ONCE)) {
            return Ok(ended);
        }
        let identity = tokio::select! {
            identity = self.wanted.replaced(at, &self.data) => identity?,
            () = signals.next() => return Err(Failure::interrupted()),
        };
        let Some(identity) = identity else { return Ok(ended) };
        tracing::warn!(revoked, "this machine was revoked or off for too long, and joined anew");
        // The first output stays true except for the token, and its reader may be gone.
        self.stay(at, identity, signals).await
    }

    /// Works until a signal or the coordinator ends it. The inner result is the cluster's.
    async fn work(
        &mut self,
        at: &Coordinators,
        (identity, enrolled): (Identity, bool),
        signals: &mut Signals,
    ) -> Result<Result<(), ClusterError>> {
        let until = identity.validity()?.1;
        let devices = self.executor.status().devices.into_iter().map(|d| d.device);
        let devices: Vec<String> = devices.collect();
        let joined = Joined {
            name: identity.name.to_string(),
            coordinator: at.to_string(),
            data: self.data.clone(),
            device: devices.join(","),
            enrolled,
            expires_s: until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        self.out.emit(&joined, |joined| {
            format!("{} works for {}; ctrl-C leaves\n", joined.name, joined.coordinator)
        })?;
        self.stay(at, identity, signals).await
    }

    /// Works without printing.
    async fn stay(
        &mut self,
        at: &Coordinators,
        identity: Identity,
        signals: &mut Signals,
    ) -> Result<Result<(), ClusterError>> {
        // One task for each thread: small models do not fill the threads otherwise.
        let slots = u32::try_from(SessionOptions::default().threads).map_err(Failure::internal)?;
        let config = WorkerConfig {
            keep_in: Some(member::identity_folder(&self.data)),
            ..self.limits.apply(WorkerConfig::new(at.clone(), identity, slots))
        };
        let (leave, left) = oneshot::channel::<()>();
        let mut leave = Some(leave);
        let executor: Arc<dyn Executor> = Arc::clone(&self.executor) as _;
        let worker = run_worker(config, executor, async {
            // The sender is dropped only after it has sent.
            let _ = left.await;
        });
        let mut worker = std::pin::pin!(worker);
        loop {
            tokio::select! {
                ended = &mut worker => {
                    if let Err(error @ ClusterError::MustRestart) = &ended {
                        tracing::error!(%error, "starting anew");
                        return Err(start_anew(self.token.as_deref()));
                    }
                    if is_refused(&ended, &JoinRefusal::CertificateRevoked) {
                        // With a new token the machine must not come back under its revoked identity.
                        member::forget(&self.data)?;
                    }
                    return Ok(ended);
                }
                () = signals.next() => match leave.take() {
                    Some(leave) => {
                        self.out.note("finishing what runs here; ctrl-C again does not wait");
                        // A worker that has ended needs no telling.
                        let _ = leave.send(());
                    }
                    None => return Err(Failure::interrupted()),
                }
            }
        }
    }

    /// Tries the coordinators announced on the local network until one is the token's.
    async fn search(&mut self, signals: &mut Signals) -> Result<()> {
        let mut discovery = Discovery::start(self.wanted.authority()?)?;
        let seconds = SEARCH.as_secs();
        self.out.note(format!("looking for the coordinator on the local network, for {seconds} s"));
        let mut last = None;
        loop {
            let found = tokio::select! {
                found = tokio::time::timeout(SEARCH, discovery.next()) => found.ok().flatten(),
                () = signals.next() => return Err(Failure::interrupted()),
            };
            let Some(addr) = found else {
                if self.wanted.has_joined(&self.data) {
                    tracing::warn!("the coordinator is not on the local network yet; searching on");
                    continue;
                }
                let message = format!(
                    "no coordinator of the token's cluster was found on the local network within \
                     {} s",
                    SEARCH.as_secs()
                );
                return Err(last.unwrap_or_else(|| {
                    Failure::new("coordinator_not_found", message)
                        .hint("name it: radeon-cluster join HOST TOKEN")
                }));
            };
            tracing::info!(%addr, "found a coordinator that may be meant");
            let at = Coordinators::from(addr);
            let identity = match self.wanted.identity(&at, &self.data).await {
                Ok(identity) => identity,
                // It belongs to another cluster, or is not reachable at this address.
                Err(failure) if ELSEWHERE.contains(&&*failure.code) => {
                    last = Some(failure);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            match self.belong(&at, identity, signals).await? {
                // The announcement claimed to be another coordinator.
                Err(error @ ClusterError::Refused { .. }) => last = Some(error.into()),
                ended => return Ok(ended?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_was_empty_is_told_from_a_machine_that_has_not_joined() {
        let refused = piped(String::new()).expect_err("no token");
        assert!(refused.message.starts_with("stdin holds no token"), "{refused}");
        assert_eq!(piped("LGP1.x.y".to_owned()).expect("a text"), "LGP1.x.y");
    }
}
