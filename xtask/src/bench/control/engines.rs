//! The log of durable tasks by itself, beside the bare client of the engine that keeps it.

use super::Bench;
use crate::bench::program::json;
use crate::cmd;
use anyhow::{Context, Result};
use serde_json::{Value, json as value};

/// About as many bytes as the record of such a task has.
pub(super) const RECORD_BYTES: usize = 256;

/// Ours and the bare client in turn on what was just started: where it is to the log and to the client.
pub(super) fn measure(bench: &Bench, control: Option<&str>, bare: Option<&str>) -> Result<Value> {
    let folder = bench.folder("log")?;
    let callers = bench.load.callers.to_string();
    let (bytes, seconds) = (RECORD_BYTES.to_string(), bench.seconds.to_string());
    let mut log = cmd::command(&bench.log);
    log.arg(&folder).args([&callers, &bytes, &seconds]).args(control);
    let ours = json(&mut log)?;
    let batch = number(&ours, "batch")?.round().max(1.0);
    let one_by_one = |callers: &str, batch: &str, name: &str| {
        let file = folder.join(name).display().to_string();
        let mut engine = cmd::command(&bench.engine);
        engine.arg(bare.unwrap_or(&file)).args([callers, batch, &bytes, &seconds]);
        json(&mut engine)
    };
    let each = one_by_one(&callers, "1", "each")?;
    let batched = one_by_one("1", &batch.to_string(), "batched")?;
    let rate = |of: &Value| number(of, "records_per_s");
    let shares = value!({
        "each": rate(&ours)? / rate(&each)?,
        "batched": rate(&ours)? / rate(&batched)?,
    });
    Ok(value!({ "ours": ours, "each": each, "batched": batched, "shares": shares }))
}

fn number(of: &Value, name: &str) -> Result<f64> {
    of[name].as_f64().with_context(|| format!("no {name} in {of}"))
}
