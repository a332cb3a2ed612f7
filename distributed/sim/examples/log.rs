//! Measures the speed of the log of durable tasks, in any place.
//!
//! ```text
//! cargo run --release -p lgp-distributed-sim --example log -- \
//!     FOLDER CALLERS RECORD_BYTES SECONDS [CONTROL]
//! ```
//!
//! The log is kept in a file of the folder, or on the engine at `postgres://…` or
//! `etcd://…,nats://…`. Prints one JSON value.

use lgp_distributed::Control;
use lgp_distributed::inside::log_in;
use lgp_distributed_sim::{LogLoad, log_speed};
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// The log's own name on the engine, beside real clusters.
const NAME: &str = "bench_log";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, callers, record_bytes, seconds, control @ ..] = arguments.as_slice() else {
        return Err("expected: FOLDER CALLERS RECORD_BYTES SECONDS [CONTROL]".into());
    };
    let control = control.first().map(|address| Control::new(address, NAME)).transpose()?;
    let place = log_in(control.as_ref(), &Path::new(folder).join("log.journal"))?;
    let load = LogLoad {
        callers: callers.parse()?,
        record_bytes: record_bytes.parse()?,
        duration: Duration::from_secs_f64(seconds.parse()?),
    };
    let speed = log_speed(&*place, load)?;
    let records = speed.latencies.len();
    let at = |share: usize| {
        speed.latencies.get(records * share / 100).map_or(0.0, Duration::as_secs_f64)
    };
    let seconds = speed.elapsed.as_secs_f64();
    println!(
        "{}",
        json!({
            "records_per_s": records as f64 / seconds,
            "commits_per_s": speed.commits as f64 / seconds,
            "batch": records as f64 / speed.commits.max(1) as f64,
            "p50_ms": at(50) * 1e3,
            "p99_ms": at(99) * 1e3,
        })
    );
    Ok(())
}
