//! Damages the journal of durable tasks in every way, or measures its speed.
//!
//! ```text
//! cargo run --release -p lgp-distributed-sim --example journal -- damage [--all | --every BYTES]
//! cargo run --release -p lgp-distributed-sim --example journal -- speed FOLDER [--seconds N]
//! ```
//!
//! `damage` flips each bit and cuts at each length, and fails when a damaged journal is neither
//! refused nor recovered exactly. In pages that are never read it flips bits of one byte in 97;
//! `--all` flips all of them, which takes hours. `--every` tries one byte or length in BYTES.
//! `speed` writes to a folder of the measured disk.

use lgp_distributed_sim::{DamageReport, DamagedImage, journal_speed};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "expected: damage [--all | --every BYTES] | speed FOLDER [--seconds N]";
const RECORD_BYTES: usize = 512;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["damage"] => damage(1, 97),
        ["damage", "--all"] => damage(1, 1),
        ["damage", "--every", every] => number(every).and_then(|every| damage(every, every)),
        ["speed", folder] => speed(folder, 5),
        ["speed", folder, "--seconds", seconds] => number(seconds).and_then(|n| speed(folder, n)),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("{text:?} is not a number from 1; {USAGE}"))
}

/// Damages one byte in `every`, or in `every_unread` in pages that are never read.
fn damage(every: usize, every_unread: usize) -> Result<(), String> {
    let mut wrong = 0;
    for (name, crashed) in [("closed", false), ("crashed", true)] {
        let image = DamagedImage::new(crashed).map_err(|error| error.to_string())?;
        for (kind, flips) in [("bits flipped", true), ("cut", false)] {
            let began = Instant::now();
            let mut report = DamageReport::default();
            for position in (0..image.len()).step_by(every) {
                match flips {
                    true if position % every_unread != 0 && !image.reads(position) => {}
                    true => (0..8).for_each(|bit| image.flip(position, bit, &mut report)),
                    false => image.cut(position, &mut report),
                }
            }
            let DamageReport { refused, recovered, wrong: cases, .. } = &report;
            println!(
                "{name}, {} bytes, {kind}: {refused} refused, {recovered} recovered, wrong={} ({:.0} s)",
                image.len(),
                cases.len(),
                began.elapsed().as_secs_f64()
            );
            cases.iter().take(20).for_each(|case| println!("  {case}"));
            wrong += cases.len();
        }
    }
    if wrong > 0 { Err(format!("{wrong} damaged journals were opened wrongly")) } else { Ok(()) }
}

fn speed(folder: &str, seconds: usize) -> Result<(), String> {
    let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
    println!("records of {RECORD_BYTES} bytes, two a task");
    for in_flight in [1, 16, 64, 256] {
        let path = Path::new(folder).join("speed.journal");
        let speed = journal_speed(&path, in_flight, RECORD_BYTES, duration);
        // Removed before an error is returned, so that the next run finds no journal.
        let size = path.metadata().map_or(0, |metadata| metadata.len());
        let _ = std::fs::remove_file(&path);
        let speed = speed.map_err(|error| error.to_string())?;
        let at = |percent: usize| speed.latencies.get(speed.latencies.len() * percent / 100);
        let ms = |percent| {
            at(percent).map_or(f64::NAN, |latency: &Duration| latency.as_secs_f64() * 1e3)
        };
        println!(
            "{in_flight:>4} in flight: {:>8.0} records/s, latency p50 {:.2} ms, p99 {:.2} ms, file {} KiB",
            speed.records as f64 / speed.elapsed.as_secs_f64(),
            ms(50),
            ms(99),
            size >> 10,
        );
    }
    Ok(())
}
