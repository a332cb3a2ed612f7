//! `worker`, hidden: a local worker process, started by a coordinator.

use crate::cluster::bootstrap::Bootstrap;
use crate::cluster::{runtime, survey};
use crate::device;
use crate::failure::{Failure, Result};
use lgp_sdk::cluster::{Error as ClusterError, ModelExecutor, WorkerConfig};
use lgp_sdk::model::{Repository, SessionOptions};
use std::io::{BufRead, Read};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a worker may finish its tasks after its coordinator has gone.
const FINISH: Duration = Duration::from_secs(2);

/// Runs the command.
pub(crate) fn run() -> Result<()> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::new("io", format!("cannot read stdin: {error}")))?;
    let bootstrap: Bootstrap = serde_json::from_str(&line).map_err(|_| {
        Failure::usage("a worker process is started by its coordinator")
            .hint("start a cluster with: radeon-cluster start")
    })?;
    crate::logging::init("info", bootstrap.log_format);
    // A device that computes wrongly must not join.
    let names: Vec<String> = bootstrap.devices.iter().map(ToString::to_string).collect();
    let devices = device::resolve_each(&names.join(","))?;
    let repository = Repository::open(&bootstrap.models)?;
    let threads = SessionOptions::with_threads(bootstrap.threads);
    let options = SessionOptions { isa: bootstrap.simd.isa(), ..threads };
    let executor = device::executors(devices, |accelerator| {
        let executor = ModelExecutor::new(repository.clone(), accelerator, options);
        Ok(executor.within(bootstrap.model_memory))
    })?;
    if bootstrap.surveys {
        survey::begin(&executor, bootstrap.devices);
    }
    // One task for each thread: small models do not fill the threads otherwise.
    let slots = u32::try_from(bootstrap.threads).map_err(Failure::internal)?;
    let config = WorkerConfig::new(bootstrap.coordinator, bootstrap.identity, slots);
    let config = bootstrap.limits.apply(config);
    let orphaned = watch_stdin();
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let shutdown = async {
            // A dropped sender means the same.
            let _ = orphaned.await;
        };
        lgp_sdk::cluster::run_worker(config, executor, shutdown).await
    });
    if let Err(error @ ClusterError::MustRestart) = ended {
        tracing::error!(%error, "the process ends, and its place is filled again");
        // A run that hangs holds a thread of the runtime, whose drop would wait for it.
        lgp_hal::exit(1);
    }
    Ok(ended?)
}

/// Resolves when stdin closes, which happens however the coordinator ends.
fn watch_stdin() -> oneshot::Receiver<()> {
    let (closed, watched) = oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = Vec::new();
        // An error counts as the end.
        let _ = std::io::stdin().lock().read_to_end(&mut rest);
        // The receiver is gone if the worker ends by itself.
        let _ = closed.send(());
        std::thread::sleep(FINISH);
        lgp_hal::exit(0);
    });
    watched
}
