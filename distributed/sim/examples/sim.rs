//! Runs the seeded simulation of the cluster's core, or of its network code, and counts the faults it
//! went through.
//!
//! ```text
//! cargo run --release -p lgp-distributed-sim --example sim -- [--seeds N] [--seed FIRST]
//! cargo run --release -p lgp-distributed-sim --example sim -- --mutants N
//! cargo run --release -p lgp-distributed-sim --example sim -- glue [--seeds N | …]
//! ```
//!
//! A broken invariant ends the run with the seed that repeats it and what led to it. With
//! `--mutants`, faults are planted in the code, one after another, and each has to be noticed
//! within so many seeds.

use lgp_distributed_sim::{
    GlueReport, SimFailure, SimReport, glue_mutants, simulate, simulate_glue, simulate_mutants,
};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

struct Options {
    glue: bool,
    first: u64,
    count: u64,
    mutants: Option<u64>,
}

fn main() -> ExitCode {
    let done = parse().and_then(|options| match options {
        Options { mutants: Some(seeds), glue, .. } => mutants(glue, seeds),
        Options { glue: true, first, count, .. } => run_glue(first, count),
        Options { first, count, .. } => {
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
    let glue = arguments.next_if(|argument| argument == "glue").is_some();
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
    // A seed alone is a seed to repeat.
    let count = count.unwrap_or(if first.is_some() { 1 } else { 1_000 });
    Ok(Options { glue, first: first.unwrap_or(0), count, mutants })
}

/// Runs the seeds on every core; each thread takes the next one.
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
                    // The others need not go on.
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

fn run_glue(first: u64, count: u64) -> Result<(), String> {
    let sum = run(first, count, simulate_glue, GlueReport::add)?;
    table(&sum.figures(), count);
    Ok(())
}

fn mutants(glue: bool, seeds: u64) -> Result<(), String> {
    let mut missed = Vec::new();
    let caught = match glue {
        true => glue_mutants(seeds),
        false => simulate_mutants(seeds),
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
