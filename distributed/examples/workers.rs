//! Many workers that do nothing, in one process, each with a connection to every coordinator.
//!
//! ```text
//! cargo run --release -p lgp-distributed --example workers -- HOST:PORT,… AUTHORITY.PEM WORKERS
//! ```
//!
//! The authority's file lets this program issue identities without tokens, as fast as it can. It
//! prints a line once all workers have started, and exits when its input ends.

use lgp_distributed::{
    Coordinators, DeviceStatus, ExecError, Executor, ExecutorStatus, ModelRef, Pki, Stop,
    WorkerConfig, run_worker,
};
use lgp_memory::NamedTensor;
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The pause between two starts: a handshake with each coordinator takes milliseconds of processor
/// time.
const PACE: Duration = Duration::from_millis(20);

/// Has every model, and returns no outputs.
struct Noop;

impl Executor for Noop {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        _: &[NamedTensor],
        _: &Stop,
    ) -> Result<Vec<NamedTensor>, ExecError> {
        Ok(Vec::new())
    }
    fn status(&self) -> ExecutorStatus {
        let (device, backend) = ("cpu:0".into(), "cpu".into());
        ExecutorStatus::of(DeviceStatus { device, backend, ..DeviceStatus::default() })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [coordinators, authority, workers] = arguments.as_slice() else {
        return Err("expected: HOST:PORT,… AUTHORITY.PEM WORKERS".into());
    };
    let coordinators: Coordinators = coordinators.parse()?;
    let pki = Pki::open(Path::new(authority).parent().ok_or("no folder")?)?;
    let executor = Arc::new(Noop);
    for number in 0..workers.parse()? {
        let identity = pki.issue_worker(&format!("crowd-{number}"))?;
        let mut config = WorkerConfig::new(coordinators.clone(), identity, 1);
        config.shared_memory_bytes_max = 0;
        tokio::spawn(run_worker(config, Arc::clone(&executor) as _, std::future::pending()));
        tokio::time::sleep(PACE).await;
    }
    println!("{{\"begun\": {workers}}}");
    let rest = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(rest).await??;
    Ok(())
}
