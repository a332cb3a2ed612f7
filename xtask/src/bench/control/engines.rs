//! The log of durable tasks alone, beside the bare client of its engine.

use super::Bench;
use crate::bench::program::json;
use crate::cmd;
use anyhow::{Context, Result};
use serde_json::{Map, Value};
use std::path::Path;

/// About the size of a task's record.
pub(super) const RECORD_BYTES: usize = 256;
/// The number of turns: a shared disk is not always equally fast.
const TURNS: usize = 3;

/// Measures our log and the bare client in turns on a fresh engine, given the address for each. Each figure is a list
/// with a number for each turn.
pub(super) fn measure(bench: &Bench, control: Option<&str>, bare: Option<&str>) -> Result<Value> {
    let mut all = Map::new();
    for _ in 0..TURNS {
        let folder = bench.folder("log")?;
        for (way, figures) in turn(bench, &folder, control, bare)? {
            let lists = all.entry(way).or_insert_with(|| Value::Object(Map::new()));
            for (name, figure) in figures.as_object().into_iter().flatten() {
                match &mut lists[name] {
                    Value::Array(list) => list.push(figure.clone()),
                    first => *first = Value::Array(vec![figure.clone()]),
                }
            }
        }
    }
    Ok(Value::Object(all))
}

/// One turn of each way, and our log's share of the client's rates.
fn turn(
    bench: &Bench,
    folder: &Path,
    control: Option<&str>,
    bare: Option<&str>,
) -> Result<[(&'static str, Value); 4]> {
    let callers = bench.load.callers.to_string();
    let (bytes, seconds) = (RECORD_BYTES.to_string(), bench.seconds.to_string());
    let mut log = cmd::command(&bench.log);
    log.arg(folder).args([&callers, &bytes, &seconds]).args(control);
    let ours = json(&mut log)?;
    let batch = number(&ours, "batch")?.round().max(1.0);
    let of_engine = |callers: &str, batch: &str, name: &str| {
        let file = folder.join(name).display().to_string();
        let mut engine = cmd::command(&bench.engine);
        engine.arg(bare.unwrap_or(&file)).args([callers, batch, &bytes, &seconds]);
        json(&mut engine)
    };
    let each = of_engine(&callers, "1", "each")?;
    let batched = of_engine("1", &batch.to_string(), "batched")?;
    let rate = |of: &Value| number(of, "records_per_s");
    let shares = serde_json::json!({
        "each": rate(&ours)? / rate(&each)?,
        "batched": rate(&ours)? / rate(&batched)?,
    });
    Ok([("ours", ours), ("each", each), ("batched", batched), ("shares", shares)])
}

fn number(of: &Value, name: &str) -> Result<f64> {
    of[name].as_f64().with_context(|| format!("no {name} in {of}"))
}
