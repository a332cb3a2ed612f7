//! Runs the seeded simulation of the cluster's core and counts the faults it went through.
//!
//! ```text
//! cargo run --release -p lgp-distributed --example sim -- [--seeds N] [--seed FIRST]
//! ```
//!
//! A broken invariant ends the run with the seed that repeats it and what led to it.

use lgp_distributed::{SimReport, simulate};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match parse().and_then(|(first, count)| run(first, count)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<(u64, u64), String> {
    let (mut first, mut count) = (None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = arguments.next().and_then(|n| n.parse().ok());
        let number = number.ok_or(format!("{argument} needs a number"))?;
        match argument.as_str() {
            "--seed" => first = Some(number),
            "--seeds" => count = Some(number),
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    // A seed alone is a seed to repeat.
    let count = count.unwrap_or(if first.is_some() { 1 } else { 1_000 });
    Ok((first.unwrap_or(0), count))
}

fn run(first: u64, count: u64) -> Result<(), String> {
    let began = Instant::now();
    let mut sums = SimReport::default().figures();
    for seed in first..first.saturating_add(count) {
        let report = simulate(seed).map_err(|failure| failure.to_string())?;
        for ((_, sum), (_, figure)) in sums.iter_mut().zip(report.figures()) {
            *sum += figure;
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} seeds from {first}: every invariant held");
    println!("{seconds:.1} s, {:.0} seeds/s", count as f64 / seconds);
    for (name, sum) in sums {
        println!("{sum:>12} {name}");
    }
    Ok(())
}
