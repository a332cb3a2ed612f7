//! Measures an engine through its own client, with the load of a coordinator's log: two records of
//! each task, the second in place of the first once that is durable.
//!
//! ```text
//! cargo run --release -p lgp-distributed --features scale --example engine -- \
//!     PLACE CALLERS BATCH RECORD_BYTES SECONDS
//! ```
//!
//! The place is `postgres://…`, `nats://HOST:PORT`, or the path of a new redb file. Each of CALLERS
//! has one commit of BATCH records in flight. One record per commit is what an application would
//! write at first; one caller with a batch is what a log with group commit does. Prints one JSON
//! value.

mod jetstream;
mod postgres;
mod redb;

use serde_json::json;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Errors here are for people.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// The load on the engine.
#[derive(Clone, Copy)]
struct Load {
    callers: usize,
    /// Records per commit.
    batch: usize,
    record_bytes: usize,
    duration: Duration,
}

/// One caller's connection.
trait Engine: Send {
    /// Makes these records durable, replacing those with the same numbers.
    fn commit(&mut self, numbers: &[i64], bytes: &[u8], is_end: bool) -> Result<()>;
}

/// How long each commit took.
type Times = Vec<Duration>;

/// Commits until the time is over: each batch once, and then again in its own place.
fn call(mut engine: impl Engine, caller: usize, load: Load) -> Result<Times> {
    let bytes = vec![7; load.record_bytes];
    let mut times = Vec::new();
    let began = Instant::now();
    let mut next = i64::try_from(caller)? << 40;
    while began.elapsed() < load.duration {
        let numbers: Vec<i64> = (next..).take(load.batch).collect();
        next += i64::try_from(load.batch)?;
        for is_end in [false, true] {
            let asked = Instant::now();
            engine.commit(&numbers, &bytes, is_end)?;
            times.push(asked.elapsed());
        }
    }
    Ok(times)
}

/// Lets every caller commit with what `connect` makes; returns all times and the total time.
fn drive<E: Engine>(load: Load, connect: impl Fn() -> Result<E>) -> Result<(Times, Duration)> {
    let all = Arc::new(Mutex::new(Times::new()));
    let engines = (0..load.callers).map(|_| connect()).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    thread::scope(|scope| {
        let callers = engines.into_iter().enumerate();
        let callers: Vec<_> = callers
            .map(|(caller, engine)| {
                let all = Arc::clone(&all);
                scope.spawn(move || -> Result<()> {
                    let times = call(engine, caller, load)?;
                    all.lock().map_err(|_| "a caller panicked")?.extend(times);
                    Ok(())
                })
            })
            .collect();
        callers.into_iter().try_for_each(|it| it.join().map_err(|_| "a caller panicked")?)
    })?;
    let times = std::mem::take(&mut *all.lock().map_err(|_| "a caller panicked")?);
    Ok((times, began.elapsed()))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [place, callers, batch, record_bytes, seconds] = arguments.as_slice() else {
        return Err("expected: PLACE CALLERS BATCH RECORD_BYTES SECONDS".into());
    };
    let load = Load {
        callers: callers.parse()?,
        batch: batch.parse()?,
        record_bytes: record_bytes.parse()?,
        duration: Duration::from_secs_f64(seconds.parse()?),
    };
    let (mut times, elapsed) = if place.starts_with("postgres://") {
        postgres::run(place, load)?
    } else if let Some(host) = place.strip_prefix("nats://") {
        jetstream::run(host, load)?
    } else {
        redb::run(place.as_ref(), load)?
    };
    let seconds = elapsed.as_secs_f64();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, Duration::as_secs_f64);
    let commits = times.len() as f64;
    println!(
        "{}",
        json!({
            "records_per_s": commits * load.batch as f64 / seconds,
            "commits_per_s": commits / seconds,
            "batch": load.batch,
            "p50_ms": at(50) * 1e3,
            "p99_ms": at(99) * 1e3,
        })
    );
    Ok(())
}
