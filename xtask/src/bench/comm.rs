//! Transfers and collectives between OpenCL devices; PoCL provides two.

use super::run::{Better, Run};
use crate::{apt, cmd};
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fmt::Write;

/// How often each is timed.
const ROUNDS: usize = 20;

/// The output of `lgp-compute`'s example `comm` for a collective.
#[derive(Deserialize)]
struct Timed {
    name: String,
    devices: usize,
    bytes: usize,
    us: Vec<f64>,
}

/// The share of a collective's bytes that each link carries (bus bandwidth). It makes figures
/// comparable to a link's speed, for any collective and number of devices.
fn on_each_link(name: &str, devices: usize) -> f64 {
    let n = devices as f64;
    match name {
        "all_reduce" => 2. * (n - 1.) / n,
        "reduce_scatter" | "all_gather" => (n - 1.) / n,
        _ => 1.,
    }
}

/// Measures them, and answers a table.
pub(super) fn run(run: &mut Run) -> Result<String> {
    apt::opencl()?;
    let mut cargo = cmd::cargo();
    cargo.args(["run", "--release", "--quiet", "-p", "lgp-compute", "--example", "comm", "--"]);
    cargo.args(["opencl:0,opencl:1", &ROUNDS.to_string()]).env("POCL_DEVICES", "pthread pthread");
    let finished = cmd::stdout(&mut cargo)?;
    ensure!(finished.ok, "the collectives ended with a failure");
    let mut table = format!(
        "Two devices of OpenCL, {ROUNDS} rounds. Bandwidth of the algorithm is bytes over the median \
         time; that of the bus is what each link carries of them: for an all-reduce 2(n - 1)/n, for a \
         reduce-scatter and an all-gather (n - 1)/n.\n\n\
         | collective | bytes | least, µs | median, µs | algorithm, GB/s | bus, GB/s |\n\
         |---|---|---|---|---|---|\n"
    );
    for line in finished.output.lines() {
        let timed: Timed = serde_json::from_str(line).context("a line is no JSON")?;
        let mut us = timed.us.clone();
        us.sort_by(f64::total_cmp);
        ensure!(!us.is_empty(), "{} was not timed", timed.name);
        let (least, median) = (us[0], us[us.len() / 2]);
        let algorithm = timed.bytes as f64 / median / 1e3;
        let bus = algorithm * on_each_link(&timed.name, timed.devices);
        let Timed { name, bytes, .. } = &timed;
        let _ = writeln!(
            table,
            "| {name} | {bytes} | {least:.0} | {median:.0} | {algorithm:.2} | {bus:.2} |"
        );
        run.value(&format!("{name}/{bytes}"), "µs", Better::Lower, timed.us);
    }
    Ok(table)
}
