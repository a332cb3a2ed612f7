//! Times the allocator of device memory over a simulated device of 8 GiB: ranges of random sizes
//! from 4 KiB to 64 MiB, as many at once as an occupancy allows. Prints a JSON object a trace.
//! `cargo xtask bench memory` runs it; an argument is the number of seeds.

use lgp_memory::{Error, RangeId, SegmentLimits, Segments, SimulatedDevice};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const ARENA_BYTES: usize = 8 << 30;
const BYTES_MIN: f64 = 4096.;
const BYTES_MAX: f64 = 67_108_864.;
const STEPS: usize = 400_000;

/// What goes when the next range does not fit below the occupancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Freed {
    /// Random ranges, until half of the occupancy is left.
    Half,
    /// The oldest range, until there is room.
    Oldest,
    /// A random range, until there is room: no allocator that does not move ranges bears this.
    Random,
    /// The same, and what then finds no place has the ranges moved together first.
    RandomDefragmented,
}

/// What one trace showed.
#[derive(Serialize)]
struct Trace {
    freed: Freed,
    segment_mib: usize,
    occupancy_percent: usize,
    seed: u64,
    /// An allocation, and giving a range back: the middle of rows of either, so that rows during
    /// which another process ran do not count. Where a row is one range, so is reading the clock.
    allocation_ns: f64,
    free_ns: f64,
    /// Requests for which no place was found.
    failures_percent: f64,
    /// The middle of the external fragmentation after every 1,000th step.
    fragmentation_percent: f64,
    /// Bytes that were moved, of those that were allocated.
    moved_percent: f64,
    /// Whether each segment was one free range when all had been freed.
    coalesced: bool,
}

fn main() -> Result<(), Error> {
    let seeds = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    for freed in [Freed::Half, Freed::Oldest, Freed::Random, Freed::RandomDefragmented] {
        for segment_bytes in [ARENA_BYTES, ARENA_BYTES / 4] {
            for occupancy_percent in [90, 95] {
                for seed in 0..seeds {
                    let trace = Runner::new(segment_bytes, freed, seed)?.run(occupancy_percent)?;
                    println!("{}", serde_json::to_string(&trace).unwrap_or_default());
                }
            }
        }
    }
    Ok(())
}

struct Runner {
    freed: Freed,
    seed: u64,
    random: SmallRng,
    segment_bytes: usize,
    segments: Segments<SimulatedDevice>,
    live: VecDeque<(RangeId, usize)>,
    in_use: usize,
    failures: usize,
    allocated_bytes: usize,
    moved_bytes: usize,
    /// Nanoseconds of an allocation, and of giving a range back, in each row.
    allocating: Vec<f64>,
    freeing: Vec<f64>,
    /// When the present row of allocations began, and how many they are.
    begin: Instant,
    row: usize,
}

impl Runner {
    fn new(segment_bytes: usize, freed: Freed, seed: u64) -> Result<Self, Error> {
        let limits = SegmentLimits {
            segment_bytes,
            idle_bytes_max: ARENA_BYTES,
            ..SegmentLimits::new(ARENA_BYTES, segment_bytes)
        };
        let device = SimulatedDevice::new(ARENA_BYTES, segment_bytes);
        Ok(Self {
            freed,
            seed,
            random: SmallRng::seed_from_u64(seed),
            segment_bytes,
            segments: Segments::new(limits, device)?,
            live: VecDeque::new(),
            in_use: 0,
            failures: 0,
            allocated_bytes: 0,
            moved_bytes: 0,
            allocating: Vec::new(),
            freeing: Vec::new(),
            begin: Instant::now(),
            row: 0,
        })
    }

    fn run(mut self, occupancy_percent: usize) -> Result<Trace, Error> {
        let most = ARENA_BYTES / 100 * occupancy_percent;
        let mut fragmentation = Vec::new();
        let logs = BYTES_MIN.ln()..BYTES_MAX.ln();
        let sizes: Vec<usize> =
            (0..STEPS).map(|_| self.random.random_range(logs.clone()).exp() as usize).collect();
        self.begin = Instant::now();
        for (step, bytes) in sizes.into_iter().enumerate() {
            if self.in_use + bytes > most {
                let left = if self.freed == Freed::Half { most / 2 } else { most - bytes };
                self.free_down_to(left)?;
            }
            self.allocate(bytes)?;
            if step % 1000 == 0 {
                fragmentation.push(self.segments.stats().fragmentation());
            }
        }
        self.free_down_to(0)?;
        // All segments have one size. Each is one free range if as many ranges of that size can
        // be taken without a further one.
        let segments = self.segments.stats().segments;
        let whole = |_| self.segments.allocate(self.segment_bytes, "whole").is_ok();
        let coalesced = (0..segments).all(whole) && self.segments.stats().segments == segments;
        Ok(Trace {
            freed: self.freed,
            segment_mib: self.segment_bytes >> 20,
            occupancy_percent,
            seed: self.seed,
            allocation_ns: middle(self.allocating),
            free_ns: middle(self.freeing),
            failures_percent: 100. * self.failures as f64 / STEPS as f64,
            fragmentation_percent: 100. * middle(fragmentation),
            moved_percent: 100. * self.moved_bytes as f64 / self.allocated_bytes as f64,
            coalesced,
        })
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), Error> {
        self.row += 1;
        let mut id = self.segments.allocate(bytes, "trace");
        if id.is_err() && self.freed == Freed::RandomDefragmented {
            let begin = Instant::now();
            self.moved_bytes += self.segments.defragment(|_| true, |_| Ok(()))?.copied_bytes;
            // The time of copies is the device's.
            self.begin += begin.elapsed();
            id = self.segments.allocate(bytes, "trace");
        }
        match id {
            Ok(id) => {
                self.live.push_back((id, bytes));
                self.in_use += bytes;
                self.allocated_bytes += bytes;
            }
            Err(_) => self.failures += 1,
        }
        Ok(())
    }

    fn free_down_to(&mut self, left: usize) -> Result<(), Error> {
        let begin = Instant::now();
        if self.row > 0 {
            self.allocating.push(ns(begin - self.begin, self.row));
        }
        let before = self.live.len();
        while self.in_use > left {
            if self.freed != Freed::Oldest {
                let which = self.random.random_range(0..self.live.len());
                self.live.swap(0, which);
            }
            let Some((id, bytes)) = self.live.pop_front() else { break };
            self.segments.free(id)?;
            self.in_use -= bytes;
        }
        self.begin = Instant::now();
        self.row = 0;
        if before > self.live.len() {
            self.freeing.push(ns(self.begin - begin, before - self.live.len()));
        }
        Ok(())
    }
}

fn ns(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() * 1e9 / count as f64
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
