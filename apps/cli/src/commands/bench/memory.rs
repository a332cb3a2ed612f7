//! `bench memory`: the speed and waste of memory allocators, and the RAM for loading and running a model.

use super::Common;
use super::frame::Run;
use super::sample::Better;
use crate::cluster::digits;
use crate::failure::{Failure, Result};
use crate::output::Output;
use lgp_measure::{Freed, measure_pools, trace_memory};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The size of a segment; the simulated device has four.
const SEGMENT_BYTES: usize = 2 << 30;
const OCCUPANCY_PERCENT: usize = 90;

/// Flags of `bench memory`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster bench memory resnet50.onnx --json\n\n\
    The allocator of device memory works on a simulated device of 8 GiB, 90 % of it taken; ranges go\n\
    as half of all at a time, the oldest first, or at random, and then also with defragmentation.\n\
    In each round a process of its own loads the model and runs it four times on the processor,\n\
    three of them to warm up.")]
pub(super) struct Args {
    /// The ONNX file whose memory is measured [default: the bundled model]
    model: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Measures memory.
pub(super) fn run(args: &Args, out: Output) -> Result<()> {
    let (rounds, steps) = if args.common.quick { (4, 4_000) } else { (10, 100_000) };
    let name = args.model.as_ref().and_then(|path| path.file_name());
    let name = name.map_or(digits::NAME.into(), |name| name.to_string_lossy());
    let config = json!({
        "model": name,
        "steps": steps,
        "segment_bytes": SEGMENT_BYTES,
        "occupancy_percent": OCCUPANCY_PERCENT,
    });
    let mut measured = Run::begin("memory", &args.common, config)?;
    let bar = out.progress(rounds, "rounds");
    for seed in 0..=rounds {
        // The first round warms up.
        traces(&mut measured, steps, seed, seed > 0)?;
        let loaded = load_and_run(args.model.as_deref())?;
        if seed > 0 {
            let number = |pointer: &str| loaded.pointer(pointer).and_then(Value::as_f64);
            measured.add(
                "load_and_run peak_rss",
                "bytes",
                Better::Lower,
                number("/peak_rss_bytes"),
            );
            measured.add("load_and_run load", "ms", Better::Lower, number("/load_ms"));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let text = measured.table();
    measured.finish(json!({ "simulated_device": true }), || text, out)
}

/// A round over the allocators.
fn traces(measured: &mut Run<'_>, steps: usize, seed: u64, is_counted: bool) -> Result<()> {
    let failed = |error: lgp_sdk::tensor::Error| Failure::from_error("memory", &error);
    let pools = measure_pools(steps, seed).map_err(failed)?;
    if is_counted {
        measured.add("pool allocation", "ns", Better::Lower, [pools.pool_ns]);
        measured.add("pool hits", "%", Better::Higher, [100. * pools.hit_rate]);
        measured.add("arena range", "ns", Better::Lower, [pools.arena_ns]);
    }
    for freed in Freed::ALL {
        let trace = trace_memory(freed, SEGMENT_BYTES, OCCUPANCY_PERCENT, steps, seed);
        let trace = trace.map_err(failed)?;
        if !is_counted {
            continue;
        }
        let freed = serde_json::to_value(freed).map_err(Failure::internal)?;
        let freed = freed.as_str().unwrap_or_default();
        for (what, unit, value) in [
            ("allocation", "ns", trace.allocation_ns),
            ("free", "ns", trace.free_ns),
            ("failures", "%", trace.failures_percent),
            ("fragmentation", "%", trace.fragmentation_percent),
            ("moved", "%", trace.moved_percent),
        ] {
            measured.add(format!("device {freed} {what}"), unit, Better::Lower, [value]);
        }
    }
    Ok(())
}

/// The figures of a separate process that loads a model and runs it: one measured run after warm-ups.
fn load_and_run(model: Option<&Path>) -> Result<Value> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new("process_failed", format!("a process that loads the model: {error}"))
    };
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.args(["bench", "local", "--json", "--runs", "1", "--device", "cpu"]);
    if let Some(model) = model {
        // A relative path that begins with a dash is no flag.
        command.arg("--").arg(model);
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| failed(&error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let error: Value = serde_json::from_str(said.trim()).unwrap_or_default();
        let message = error.pointer("/error/message").and_then(Value::as_str);
        return Err(failed(&message.unwrap_or("it failed without a reason")));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}
