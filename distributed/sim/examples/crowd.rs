//! Measures the core's time per event, in microseconds, with a growing number of workers and
//! waiting tasks. Prints one JSON value.
//!
//! ```text
//! cargo run --release -p lgp-distributed-sim --example crowd -- [EVENTS]
//! ```

use lgp_distributed_sim::Crowd;
use serde_json::{Map, Value, json};
use std::error::Error;
use std::time::Duration;

const WORKERS: [usize; 3] = [50, 500, 5_000];
const WAITING: [usize; 3] = [1_000, 30_000, 1_000_000];
const KINDS: [&str; 6] = ["join", "leave", "heartbeat", "submit", "end", "cancel"];

fn main() -> Result<(), Box<dyn Error>> {
    let events = std::env::args().nth(1).map_or(Ok(1_000), |n| n.parse())?;
    let mut sizes = Vec::new();
    for waiting in WAITING {
        for workers in WORKERS {
            let mut size = measure(workers, waiting, events)?;
            size.insert("workers".into(), json!(workers));
            size.insert("waiting".into(), json!(waiting));
            sizes.push(size);
        }
    }
    println!("{}", json!({ "sizes": sizes }));
    Ok(())
}

fn measure(
    workers: usize,
    waiting: usize,
    events: usize,
) -> Result<Map<String, Value>, Box<dyn Error>> {
    let mut crowd = Crowd::new(workers, waiting, "least_loaded")?;
    let mut times: [Vec<Duration>; 6] = Default::default();
    let nothing = "no task is under way";
    // Pairs of opposite events, so that the numbers of workers and tasks stay constant.
    for _ in 0..events {
        times[0].push(crowd.join()?);
        times[1].push(crowd.leave().ok_or(nothing)?);
        times[2].push(crowd.beat().ok_or(nothing)?);
        times[3].push(crowd.submit()?);
        times[4].push(crowd.end().ok_or(nothing)?);
        crowd.submit()?;
        times[5].push(crowd.cancel().ok_or("the last task does not wait")?);
    }
    let percentiles = |times: &mut Vec<Duration>| {
        times.sort();
        let us = |at: usize| times.get(at).map(|time| time.as_secs_f64() * 1e6);
        json!({ "p50": us(times.len() / 2), "p99": us(times.len() * 99 / 100) })
    };
    Ok(KINDS.iter().zip(&mut times).map(|(kind, t)| ((*kind).to_owned(), percentiles(t))).collect())
}
