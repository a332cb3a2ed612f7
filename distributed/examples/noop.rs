//! Measures what the cluster itself costs: tasks that do nothing, between two processes.
//!
//! The parent is coordinator and load generator; it starts itself again as the worker and hands
//! it the identity through stdin. `--json` prints one JSON value.
//!
//! ```text
//! cargo run --release -p lgp-distributed --example noop -- [--tasks N] [--in-flight N]
//!     [--slots N] [--payload BYTES] [--echo] [--quic] [--durable FOLDER] [--json]
//! ```
//!
//! With `--echo`, the worker answers with its input; with `--quic`, no memory is shared between the
//! two. With `--durable`, each task is accepted and ended through a journal in that folder.

use lgp_distributed::{
    Coordinator, CoordinatorConfig, DeviceStatus, ExecError, Executor, ExecutorStatus, Identity,
    ModelRef, Pki, TaskSpec, TaskState, Transport, WorkerConfig, run_worker,
};
use lgp_memory::{DType, NamedTensor, Tensor};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Does nothing, and says so; or answers with its inputs.
struct Noop {
    echo: bool,
}

impl Executor for Noop {
    fn load(&self, _: usize, _: &ModelRef) -> Result<(), ExecError> {
        Ok(())
    }
    fn unload(&self, _: usize, _: &ModelRef) {}
    fn execute(
        &self,
        _: usize,
        _: &ModelRef,
        inputs: &[NamedTensor],
    ) -> Result<Vec<NamedTensor>, ExecError> {
        Ok(if self.echo { inputs.to_vec() } else { Vec::new() })
    }
    fn status(&self) -> ExecutorStatus {
        let (device, backend) = ("cpu:0".into(), "cpu".into());
        ExecutorStatus::of(DeviceStatus { device, backend, ..DeviceStatus::default() })
    }
}

#[derive(Serialize, Deserialize)]
struct Bootstrap {
    coordinator: SocketAddr,
    identity: Identity,
    slots: u32,
    echo: bool,
}

struct Options {
    tasks: usize,
    in_flight: usize,
    slots: u32,
    /// Bytes of each task's input, four at least.
    payload: usize,
    echo: bool,
    quic: bool,
    durable: Option<PathBuf>,
    json: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "--worker") {
        return worker();
    }
    let options = parse(&arguments)?;
    // Coordinating is little work: more threads would only hand it to one another.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(coordinate(&options))
}

fn parse(arguments: &[String]) -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        tasks: 100_000,
        in_flight: 64,
        slots: 4,
        payload: 64,
        echo: false,
        quic: false,
        durable: None,
        json: false,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--tasks" => options.tasks = number()?.parse()?,
            "--in-flight" => options.in_flight = number()?.parse()?,
            "--slots" => options.slots = number()?.parse()?,
            "--payload" => options.payload = number()?.parse()?,
            "--durable" => options.durable = Some(number()?.into()),
            "--echo" => options.echo = true,
            "--quic" => options.quic = true,
            "--json" => options.json = true,
            other => return Err(format!("unknown argument {other:?}").into()),
        }
    }
    Ok(options)
}

fn worker() -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let Bootstrap { coordinator, identity, slots, echo } = serde_json::from_str(&line)?;
    // The parent's end closes stdin, whatever ended it.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = WorkerConfig::new(coordinator, identity, slots);
    Ok(runtime.block_on(run_worker(config, Arc::new(Noop { echo }), std::future::pending()))?)
}

/// The worker process, ended with its handle.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn coordinate(options: &Options) -> Result<(), Box<dyn Error>> {
    let pki = Pki::generate()?;
    let mut config = CoordinatorConfig {
        quic_addr: "127.0.0.1:0".parse()?,
        journal: options.durable.as_ref().map(|folder| folder.join("noop.journal")),
        ..Default::default()
    };
    if options.quic {
        config.shared_memory_bytes_max = 0;
    }
    let coordinator = Coordinator::start(config, &pki).await?;
    let bootstrap = Bootstrap {
        coordinator: coordinator.quic_addr(),
        identity: pki.issue_worker("bench")?,
        slots: options.slots,
        echo: options.echo,
    };
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--worker")
        .stdin(Stdio::piped())
        .spawn()
        .map(Process)?;
    let mut stdin = child.0.stdin.take().ok_or("no stdin")?;
    writeln!(stdin, "{}", serde_json::to_string(&bootstrap)?)?;
    coordinator.wait_for_workers(1).await?;
    // Memory is shared a moment later, and shown at the next heartbeat.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    let transport = coordinator.worker("bench")?.transport;
    let rss_before = rss_bytes()?;

    let spec = spec(options)?;
    measure(&coordinator, &spec, options.tasks / 10, options.in_flight).await?;
    let loaded = measure(&coordinator, &spec, options.tasks, options.in_flight).await?;
    let single = measure(&coordinator, &spec, options.tasks / 10, 1).await?;
    let report = Report {
        runs: vec![loaded, single],
        slots: options.slots,
        payload_bytes: options.payload,
        transport,
        rss_bytes_before: rss_before,
        rss_bytes: rss_bytes()?,
    };
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        report.print();
    }
    coordinator.drain().await;
    coordinator.stop().await;
    Ok(())
}

#[derive(Serialize)]
struct Report {
    /// With many tasks in flight, then with one at a time.
    runs: Vec<Run>,
    slots: u32,
    payload_bytes: usize,
    transport: Transport,
    /// Of the coordinator's process, which is also the load generator.
    rss_bytes_before: u64,
    rss_bytes: u64,
}

#[derive(Serialize)]
struct Run {
    in_flight: usize,
    tasks: usize,
    seconds: f64,
    tasks_per_s: f64,
    latency_us: Percentiles,
    queued_us: Percentiles,
    model_us: Percentiles,
    overhead_us: Percentiles,
}

#[derive(Serialize)]
struct Percentiles {
    min: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl Percentiles {
    fn of_ms(mut samples: Vec<f64>) -> Self {
        samples.sort_unstable_by(f64::total_cmp);
        // Nearest rank, as the coordinator's own statistics have it.
        let at = |per_mille: usize| {
            samples.get((samples.len() * per_mille).div_ceil(1000).saturating_sub(1)).copied()
        };
        let us = |per_mille| at(per_mille).unwrap_or_default() * 1e3;
        Self { min: us(0), p50: us(500), p95: us(950), p99: us(990), max: us(1000) }
    }
}

impl Report {
    fn print(&self) {
        println!("{} bytes of input, transport {:?}", self.payload_bytes, self.transport);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for run in &self.runs {
            println!(
                "{} tasks, {} in flight: {:.0} tasks/s",
                run.tasks, run.in_flight, run.tasks_per_s
            );
            for (name, p) in [
                ("latency", &run.latency_us),
                ("queued", &run.queued_us),
                ("model", &run.model_us),
                ("overhead", &run.overhead_us),
            ] {
                let Percentiles { min, p50, p95, p99, max } = p;
                println!(
                    "  {name:8} min {min:7.0}  p50 {p50:7.0}  p95 {p95:7.0}  p99 {p99:7.0}  max {max:7.0} us"
                );
            }
        }
        let (before, after) = (mib(self.rss_bytes_before), mib(self.rss_bytes));
        println!("coordinator RSS: {before:.1} MiB idle, {after:.1} MiB after the runs");
    }
}

fn spec(options: &Options) -> Result<TaskSpec, Box<dyn Error>> {
    let model = ModelRef { name: "noop".into(), version: 1, sha256: String::new() };
    let input = Tensor::zeros(DType::F32, [options.payload.div_ceil(4)])?;
    let mut spec = TaskSpec::new(model, vec![NamedTensor::new("x", input)]);
    spec.durable = options.durable.is_some();
    Ok(spec)
}

async fn measure(
    coordinator: &Coordinator,
    spec: &TaskSpec,
    tasks: usize,
    in_flight: usize,
) -> Result<Run, Box<dyn Error>> {
    let left = Arc::new(AtomicUsize::new(tasks));
    let began = Instant::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|_| {
            let (coordinator, left) = (coordinator.clone(), Arc::clone(&left));
            let spec = spec.clone();
            tokio::spawn(async move {
                let mut records = Vec::new();
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let record = coordinator.run(spec.clone()).await?;
                    assert_eq!(record.state, TaskState::Succeeded, "{:?}", record.error);
                    let ms = |part: Option<f64>| part.unwrap_or_default();
                    records.push((record.queued_ms, ms(record.model_ms), ms(record.overhead_ms)));
                }
                Ok::<_, lgp_distributed::Error>(records)
            })
        })
        .collect();
    let mut records = Vec::with_capacity(tasks);
    for caller in callers {
        records.extend(caller.await??);
    }
    let seconds = began.elapsed().as_secs_f64();
    let of =
        |part: fn(&(f64, f64, f64)) -> f64| Percentiles::of_ms(records.iter().map(part).collect());
    Ok(Run {
        in_flight,
        tasks,
        seconds,
        tasks_per_s: tasks as f64 / seconds,
        latency_us: of(|r| r.0 + r.1 + r.2),
        queued_us: of(|r| r.0),
        model_us: of(|r| r.1),
        overhead_us: of(|r| r.2),
    })
}

/// Resident memory of this process, which is the coordinator.
fn rss_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib = line.split_whitespace().nth(1).ok_or("no figure in VmRSS")?;
    Ok(kib.parse::<u64>()? * 1024)
}
