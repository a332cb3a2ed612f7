//! Worker processes with one or many workers each, which do nothing or sleep.

use crate::Result;
use lgp_distributed::{
    Coordinator, CoordinatorConfig, DeviceStatus, ExecError, Executor, ExecutorStatus, Identity,
    ModelRef, Pki, Stop, TaskSpec, WorkerConfig, run_worker,
};
use lgp_memory::{DType, NamedTensor, Tensor};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Sleeps for a while, or does nothing at all.
struct Noop(Duration);

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
        if !self.0.is_zero() {
            std::thread::sleep(self.0);
        }
        Ok(Vec::new())
    }
    fn status(&self) -> ExecutorStatus {
        let (device, backend) = ("cpu:0".into(), "cpu".into());
        ExecutorStatus::of(DeviceStatus { device, backend, ..DeviceStatus::default() })
    }
}

/// The configuration of a worker process.
#[derive(Serialize, Deserialize)]
struct Bootstrap {
    coordinator: SocketAddr,
    identities: Vec<Identity>,
    slots: u32,
    sleep_ms: u64,
}

/// The workers of one process.
#[derive(Clone, Copy)]
pub(crate) struct Crew {
    pub(crate) workers: usize,
    pub(crate) slots: u32,
    pub(crate) sleep_ms: u64,
}

impl Crew {
    /// One worker with four slots that does nothing.
    pub(crate) const ONE: Self = Self { workers: 1, slots: 4, sleep_ms: 0 };

    /// Starts a process of workers whose names begin with `name`.
    pub(crate) fn start(self, at: SocketAddr, pki: &Pki, name: &str) -> Result<Process> {
        let identities = (0..self.workers).map(|n| pki.issue_worker(&format!("{name}-{n}")));
        let bootstrap = Bootstrap {
            coordinator: at,
            identities: identities.collect::<Result<_, _>>()?,
            slots: self.slots,
            sleep_ms: self.sleep_ms,
        };
        Process::start("--worker", &serde_json::to_string(&bootstrap)?)
    }
}

/// A process of this program, which is killed when the handle is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts this program in a role and sends it `line`. Its output is piped.
    pub(crate) fn start(role: &str, line: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map(Self)?;
        writeln!(process.0.stdin.as_mut().ok_or("no stdin")?, "{line}")?;
        Ok(process)
    }

    /// Kills it at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads the first line that a process gets. The process exits with its parent, because stdin
/// closes when the parent ends for any reason.
pub(crate) fn told<T: for<'a> Deserialize<'a>>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let told = serde_json::from_str(&line)?;
    std::thread::spawn(|| {
        let mut rest = [0; 64];
        while std::io::stdin().read(&mut rest).is_ok_and(|n| n > 0) {}
        std::process::exit(0);
    });
    Ok(told)
}

/// The worker process.
pub(crate) async fn serve() -> Result<()> {
    let Bootstrap { coordinator, identities, slots, sleep_ms } = told()?;
    let executor = Arc::new(Noop(Duration::from_millis(sleep_ms)));
    let workers: Vec<_> = identities
        .into_iter()
        .map(|identity| {
            let config = WorkerConfig::new(coordinator, identity, slots);
            tokio::spawn(run_worker(config, Arc::clone(&executor) as _, std::future::pending()))
        })
        .collect();
    for worker in workers {
        worker.await??;
    }
    Ok(())
}

/// A coordinator on a free port, with ready workers.
pub(crate) async fn cluster(
    config: CoordinatorConfig,
    crew: Crew,
) -> Result<(Coordinator, Pki, Process)> {
    let pki = Pki::generate()?;
    let config = CoordinatorConfig { quic_addr: "127.0.0.1:0".parse()?, ..config };
    let coordinator = Coordinator::start(config, &pki).await?;
    let process = crew.start(coordinator.quic_addr(), &pki, "worker")?;
    coordinator.wait_for_workers(crew.workers).await?;
    Ok((coordinator, pki, process))
}

/// A task with an input of `payload` bytes, at least four.
pub(crate) fn spec(payload: usize) -> Result<TaskSpec> {
    let model = ModelRef { name: "noop".into(), version: 1, sha256: String::new() };
    let input = Tensor::zeros(DType::F32, [payload.div_ceil(4)])?;
    Ok(TaskSpec::new(model, vec![NamedTensor::new("x", input)]))
}

/// Resident memory of this process in bytes.
pub(crate) fn rss_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib = line.split_whitespace().nth(1).ok_or("no figure in VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// Processor time of the main thread so far in seconds, including the kernel's. The runtime has no
/// other thread, but a journal does.
pub(crate) fn cpu_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let main: f64 = stat.split_whitespace().next().ok_or("no figure in schedstat")?.parse()?;
    Ok(main / 1e9)
}
