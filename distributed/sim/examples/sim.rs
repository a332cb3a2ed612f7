//! Runs the seeded simulation of the cluster's core, of its network code, or of several
//! coordinators, and counts the faults.
//!
//! ```text
//! cargo run --release -p lgp-distributed-sim --example sim -- [--seeds N] [--seed FIRST]
//! cargo run --release -p lgp-distributed-sim --example sim -- --mutants N
//! cargo run --release -p lgp-distributed-sim --example sim -- glue [--seeds N | …]
//! cargo run --release -p lgp-distributed-sim --example sim -- among [--seeds N | …]
//! ```
//!
//! A broken invariant ends the run with the seed that repeats it and a trace of events. With
//! `--mutants`, faults are planted in the code, one after another, and each must be detected within
//! N seeds.

use lgp_distributed_sim::{
    AmongReport, GlueReport, SimFailure, SimReport, among_mutants, glue_mutants, simulate,
    simulate_among, simulate_glue, simulate_mutants,
};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The simulated part.
#[derive(Clone, Copy)]
enum Part {
    Core,
    Glue,
    Among,
}

struct Options {
    part: Part,
    first: u64,
    count: u64,
    mutants: Option<u64>,
}

fn main() -> ExitCode {
    let done = parse().and_then(|options| match options {
        Options { mutants: Some(seeds), part, .. } => mutants(part, seeds),
        Options { part: Part::Glue, first, count, .. } => {
            let sum = run(first, count, simulate_glue, GlueReport::add)?;
            table(&sum.figures(), count);
            Ok(())
        }
        Options { part: Part::Among, first, count, .. } => {
            let sum = run(first, count, simulate_among, AmongReport::add)?;
            table(&sum.figures(), count);
            Ok(())
        }
        Options { part: Part::Core, first, count, .. } => {
            let sum = run(first, count, simulate, SimReport::add)?;
            table(&sum.figures(), count);
            let faults = ("faults", sum.faults());
            table(&[faults], count);
            Ok(())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Options, String> {
    let (mut first, mut count, mut mutants) = (None, None, None);
    let mut arguments = std::env::args().skip(1).peekable();
    let part = match arguments.peek().map(String::as_str) {
        Some("glue") => Part::Glue,
        Some("among") => Part::Among,
        _ => Part::Core,
    };
    let _ = arguments.next_if(|_| !matches!(part, Part::Core));
    while let Some(argument) = arguments.next() {
        let number = arguments.next().and_then(|n| n.parse().ok());
        let number = number.ok_or(format!("{argument} needs a number"))?;
        match argument.as_str() {
            "--seed" => first = Some(number),
            "--seeds" => count = Some(number),
            "--mutants" => mutants = Some(number),
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    // A single seed without a count is repeated once.
    let count = count.unwrap_or(if first.is_some() { 1 } else { 1_000 });
    Ok(Options { part, first: first.unwrap_or(0), count, mutants })
}

/// Runs the seeds on all processors; each thread takes the next one.
fn run<R: Default + Send>(
    first: u64,
    count: u64,
    simulate: impl Fn(u64) -> Result<R, SimFailure> + Sync,
    add: impl Fn(&mut R, &R) + Sync,
) -> Result<R, String> {
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let end = first.saturating_add(count);
    let worker = || {
        let mut sum = R::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return Ok(sum);
            }
            match simulate(seed) {
                Ok(report) => add(&mut sum, &report),
                Err(failure) => {
                    // The other threads stop.
                    next.store(end, Ordering::Relaxed);
                    return Err(failure.to_string());
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let results: Vec<Result<R, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let panicked = |_| Err("a run panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let mut sum = R::default();
    for result in results {
        add(&mut sum, &result?);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{count} seeds from {first}: every invariant held");
    println!("{seconds:.1} s, {:.1} seeds/s on {threads} threads", count as f64 / seconds);
    println!("       total     a seed");
    Ok(sum)
}

fn table(figures: &[(&str, u64)], count: u64) {
    for (name, figure) in figures {
        println!("{figure:>12} {:>10.2} {name}", *figure as f64 / count.max(1) as f64);
    }
}

fn mutants(part: Part, seeds: u64) -> Result<(), String> {
    let mut missed = Vec::new();
    let caught = match part {
        Part::Core => simulate_mutants(seeds),
        Part::Glue => glue_mutants(seeds),
        Part::Among => among_mutants(seeds),
    };
    for (name, caught) in caught {
        match caught {
            Some(failure) => println!("ok {name}: seed {}: {}", failure.seed, failure.what),
            None => missed.push(name),
        }
    }
    if missed.is_empty() {
        return Ok(());
    }
    Err(format!("not noticed in {seeds} seeds: {}", missed.join(", ")))
}
