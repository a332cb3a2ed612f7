//! The models for tasks of every length and size: `work` takes a given time, and `big` has inputs
//! and outputs of given sizes.

use super::onnx::{BOOL, F32, I64, Message, graph, integer, model, node, subgraph};
use super::process::Site;
use super::rest::Rest;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Duration;

/// The factor of an iteration of `work`, and the prime modulus.
pub(super) const FACTOR: u64 = 48_271;
pub(super) const PRIME: u64 = 2_147_483_647;
/// The number of iterations that measures the machine's pace.
const TRIED: u64 = 60_000;

/// Takes `n` and values `x`. Their sum goes through `n` iterations of a number generator, and the
/// result is added to each value. Iterations depend on each other, so one thread does them.
pub(crate) fn work() -> Vec<u8> {
    let body = graph(
        &[
            node("Mul", &["seen", "factor"], &["product"], &[]),
            node("Add", &["product", "iteration"], &["moved"], &[]),
            node("Mod", &["moved", "prime"], &["next"], &[]),
            node("Identity", &["goes_on"], &["still"], &[]),
        ],
        &[("factor", FACTOR), ("prime", PRIME)],
        &[("iteration", I64, &[]), ("goes_on", BOOL, &[]), ("seen", I64, &[Some(1)])],
        &[("still", BOOL, &[]), ("next", I64, &[Some(1)])],
    );
    model(&graph(
        &[
            node("Cast", &["x"], &["whole"], &[integer("to", I64)]),
            sum("whole", "first"),
            node("Loop", &["n", "", "first"], &["last"], &[subgraph("body", &body)]),
            node("Add", &["whole", "last"], &["y"], &[]),
        ],
        &[],
        &[("n", I64, &[Some(1)]), ("x", F32, &[None])],
        &[("y", I64, &[None])],
    ))
}

/// Takes `x`, repeats it `times` times and answers the first `most` elements, and the sum of `x`.
pub(super) fn big() -> Vec<u8> {
    model(&graph(
        &[
            node("Tile", &["x", "times"], &["all"], &[]),
            node("Slice", &["all", "zero", "most"], &["y"], &[]),
            sum("x", "sum"),
        ],
        &[("zero", 0)],
        &[("x", I64, &[None]), ("times", I64, &[Some(1)]), ("most", I64, &[Some(1)])],
        &[("y", I64, &[None]), ("sum", I64, &[Some(1)])],
    ))
}

fn sum(input: &str, output: &str) -> Message {
    node("ReduceSum", &[input], &[output], &[integer("keepdims", 1)])
}

/// Adds both to a cluster.
pub(super) fn add(rest: &Rest) -> Result<()> {
    for (name, bytes) in [("work", work()), ("big", big())] {
        let answer = rest.upload(name, &bytes);
        ensure!(answer.status() == Some(201), "model {name} was met with {answer:?}");
    }
    Ok(())
}

/// Iterations of `work` that one thread of this machine does in a second.
pub(super) fn pace(site: &Site) -> Result<f64> {
    let [file, n, x] = ["work.onnx", "n.npy", "x.npy"].map(|name| site.folder.join(name));
    std::fs::write(&file, work())?;
    std::fs::write(&n, npy("<i8", &TRIED.to_le_bytes(), 1))?;
    std::fs::write(&x, npy("<f4", &1f32.to_le_bytes(), 1))?;
    let input = |name: &str, file: &std::path::Path| format!("{name}={}", file.display());
    let (n, x) = (input("n", &n), input("x", &x));
    let (file, folder) = (file.display().to_string(), site.folder.display().to_string());
    let run = ["run", &file, "--input", &n, "--input", &x, "--output-dir", &folder];
    let finished = site.run(&[&run[..], &["--device", "cpu", "--json"]].concat())?;
    ensure!(finished.ok, "the model cannot be run: {}", finished.output);
    let report: Value = serde_json::from_str(&finished.output)?;
    let took = Duration::from_secs_f64(report["run_ms"].as_f64().context("no run_ms")? / 1e3);
    Ok(f64::from(u32::try_from(TRIED)?) / took.as_secs_f64().max(1e-6))
}

/// A `.npy` file of one dimension.
fn npy(descr: &str, body: &[u8], count: usize) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},)}}");
    let length = u16::try_from(header.len()).unwrap_or_default().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), body].concat()
}
