//! The allocator of device memory, over a simulated device.

use super::run::{Better, Run};
use crate::cmd;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The number of seeds for each trace.
const SEEDS: usize = 5;
/// The longest allocation time, and the highest share of failed requests at 95 % occupancy.
const ALLOCATION_NS_MAX: f64 = 300.;
const FAILURES_PERCENT_MAX: f64 = 0.05;

/// The output of `lgp-measure`'s example `memory_trace` for a trace.
#[derive(Deserialize)]
struct Trace {
    freed: String,
    segment_mib: usize,
    occupancy_percent: usize,
    allocation_ns: f64,
    free_ns: f64,
    failures_percent: f64,
    fragmentation_percent: f64,
    moved_percent: f64,
    coalesced: bool,
}

/// A quantity of a trace: its name, unit, and how to read it.
type Quantity = (&'static str, &'static str, fn(&Trace) -> f64);

const QUANTITIES: [Quantity; 5] = [
    ("allocation", "ns", |trace| trace.allocation_ns),
    ("free", "ns", |trace| trace.free_ns),
    ("failures", "%", |trace| trace.failures_percent),
    ("fragmentation", "%", |trace| trace.fragmentation_percent),
    ("moved", "%", |trace| trace.moved_percent),
];

/// Runs the traces, and answers a table of them.
pub(super) fn run(run: &mut Run) -> Result<String> {
    let mut cargo = cmd::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", "lgp-measure", "--example", "memory_trace"]);
    let finished = cmd::stdout(cargo.arg("--").arg(SEEDS.to_string()))?;
    ensure!(finished.ok, "the traces ended with a failure");
    let mut traces: BTreeMap<(String, usize, usize), Vec<Trace>> = BTreeMap::new();
    for line in finished.output.lines() {
        let trace: Trace = serde_json::from_str(line).context("a trace is no JSON")?;
        let key = (trace.freed.clone(), trace.segment_mib, trace.occupancy_percent);
        traces.entry(key).or_default().push(trace);
    }
    for ((freed, segment, occupancy), seeds) in &traces {
        ensure!(seeds.iter().all(|seed| seed.coalesced), "an empty arena is not one free range");
        for (name, unit, read) in QUANTITIES {
            let raw = seeds.iter().map(read).collect();
            let name = format!("{freed}/{occupancy}%/{segment}MiB/{name}");
            run.value(&name, unit, Better::Lower, raw);
        }
    }
    Ok(table(&traces))
}

fn table(traces: &BTreeMap<(String, usize, usize), Vec<Trace>>) -> String {
    let mut text = format!(
        "Least / median of {SEEDS} seeds. When the next range does not fit below the occupancy, \
         what is freed is half of all, the oldest range, or a random one; `random_defragmented` \
         moves ranges together when one finds no place. Goals: an allocation in \
         {ALLOCATION_NS_MAX} ns, {FAILURES_PERCENT_MAX} % failures. In every trace each segment \
         was one free range when all had been freed.\n\n\
         | freed | occupancy | segments | allocation, ns | free, ns | failures, % \
         | fragmentation, % | moved of allocated bytes, % | goals |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    for ((freed, segment, occupancy), seeds) in traces {
        let _ = write!(text, "| {freed} | {occupancy} % | {segment} MiB |");
        for (_, unit, read) in QUANTITIES {
            let mut raw: Vec<f64> = seeds.iter().map(read).collect();
            raw.sort_by(f64::total_cmp);
            let (least, median) = (raw[0], raw[raw.len() / 2]);
            let digits = if unit == "ns" { 0 } else { 4 };
            let _ = write!(text, " {least:.digits$} / {median:.digits$} |");
        }
        let mark = |good: bool| if good { "✓" } else { "✗" };
        let most = |read: fn(&Trace) -> f64| seeds.iter().map(read).fold(0., f64::max);
        let fast = seeds.iter().map(|t| t.allocation_ns).fold(f64::INFINITY, f64::min);
        let _ = writeln!(
            text,
            " time {}, failures {} |",
            mark(fast <= ALLOCATION_NS_MAX),
            mark(most(|t| t.failures_percent) <= FAILURES_PERCENT_MAX)
        );
    }
    text
}
