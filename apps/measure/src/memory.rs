//! Measures how fast memory is allocated: by the allocator of device memory over a simulated
//! device, by the pool of host buffers, and by arenas.

use crate::random::Random;
use lgp_memory::{
    ALIGNMENT, Arena, Error, Pool, RangeId, SegmentLimits, Segments, SimulatedDevice,
};
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const ARENA_BYTES: usize = 8 << 30;
const BYTES_MIN: f32 = 4096.;
const BYTES_MAX: f32 = 67_108_864.;

/// Which ranges are freed when the next one would exceed the occupancy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freed {
    /// Random ranges, down to half of the occupancy.
    Half,
    /// The oldest ranges, until the next one fits.
    Oldest,
    /// Random ranges, until the next one fits; fragments any allocator that never moves ranges.
    Random,
    /// As `Random`, and a request that finds no place defragments the ranges first.
    RandomDefragmented,
}

impl Freed {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Half, Self::Oldest, Self::Random, Self::RandomDefragmented];
}

/// The results of one trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemoryTrace {
    /// Which ranges were freed.
    pub freed: Freed,
    /// Size of the segments, in MiB.
    pub segment_mib: usize,
    /// The share of the device that was used, in per cent.
    pub occupancy_percent: usize,
    /// The seed of the random numbers.
    pub seed: u64,
    /// Time of an allocation: the median of rows of allocations, so that rows interrupted by
    /// another process do not count. For rows of one range it includes reading the clock.
    pub allocation_ns: f64,
    /// Time of freeing a range, measured like `allocation_ns`.
    pub free_ns: f64,
    /// Requests that found no place, of all requests.
    pub failures_percent: f64,
    /// The median of the external fragmentation after every 1,000th step.
    pub fragmentation_percent: f64,
    /// Moved bytes, in per cent of the allocated bytes.
    pub moved_percent: f64,
    /// Whether each segment was one free range after everything was freed.
    pub coalesced: bool,
}

/// Measures the allocator of device memory over a simulated device of 8 GiB, in segments of
/// `segment_bytes`: `steps` ranges of random sizes from 4 KiB to 64 MiB, as many at once as
/// `occupancy_percent` of the device allow.
///
/// # Errors
/// [`Error::SegmentLimit`] for segment sizes that the device does not support.
pub fn trace_memory(
    freed: Freed,
    segment_bytes: usize,
    occupancy_percent: usize,
    steps: usize,
    seed: u64,
) -> Result<MemoryTrace, Error> {
    Runner::new(segment_bytes, freed, seed)?.run(occupancy_percent, steps)
}

/// Time that a pool of host buffers, and an arena, take for a buffer that is freed at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PoolTimes {
    /// Allocating from the pool and freeing, in nanoseconds.
    pub pool_ns: f64,
    /// The share of allocations that reused a block, 0 to 1.
    pub hit_rate: f64,
    /// Allocating a range of the arena and freeing it, in nanoseconds.
    pub arena_ns: f64,
}

/// Allocates `count` buffers of sizes that models have, 64 bytes to 1 MiB, from a pool with 16 of
/// them alive at any time, and as many ranges from an arena. `count` is at least 1.
///
/// # Errors
/// [`Error::OutOfMemory`].
///
/// ```
/// let times = lgp_measure::measure_pools(1_000, 0)?;
/// assert!(times.pool_ns > 0. && times.hit_rate > 0.5);
/// # Ok::<(), lgp_memory::Error>(())
/// ```
pub fn measure_pools(count: usize, seed: u64) -> Result<PoolTimes, Error> {
    const ALIVE: usize = 16;
    const LARGEST: usize = 1 << 20;
    let mut random = Random::seeded(seed);
    let mut one = || ((LARGEST as f32 / 64.).powf(random.uniform()) * 64.) as usize;
    let sizes: Vec<usize> = (0..count.max(1)).map(|_| one()).collect();
    let pool = Pool::new();
    let mut alive = VecDeque::with_capacity(ALIVE + 1);
    let begin = Instant::now();
    for &bytes in &sizes {
        alive.push_back(pool.alloc(bytes)?);
        if alive.len() > ALIVE {
            alive.pop_front();
        }
    }
    let pool_ns = ns(begin.elapsed(), sizes.len());
    drop(alive);
    let hit_rate = pool.stats().hit_rate();
    let place = LARGEST.next_multiple_of(ALIGNMENT);
    let arena = Arena::new(&pool, place * (ALIVE + 1))?;
    let mut alive = VecDeque::with_capacity(ALIVE + 1);
    let begin = Instant::now();
    for (turn, &bytes) in sizes.iter().enumerate() {
        alive.push_back(arena.take(turn % (ALIVE + 1) * place, bytes));
        if alive.len() > ALIVE {
            alive.pop_front();
        }
    }
    let arena_ns = ns(begin.elapsed(), sizes.len());
    Ok(PoolTimes { pool_ns, hit_rate, arena_ns })
}

struct Runner {
    freed: Freed,
    seed: u64,
    random: Random,
    segment_bytes: usize,
    segments: Segments<SimulatedDevice>,
    live: VecDeque<(RangeId, usize)>,
    in_use: usize,
    failures: usize,
    allocated_bytes: usize,
    moved_bytes: usize,
    /// Mean nanoseconds of an allocation, and of freeing a range, in each row.
    allocating: Vec<f64>,
    freeing: Vec<f64>,
    /// When the current row of allocations began, and its length.
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
            random: Random::seeded(seed),
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

    fn run(mut self, occupancy_percent: usize, steps: usize) -> Result<MemoryTrace, Error> {
        let most = ARENA_BYTES / 100 * occupancy_percent;
        let mut fragmentation = Vec::new();
        let mut one = || (BYTES_MIN * (BYTES_MAX / BYTES_MIN).powf(self.random.uniform())) as usize;
        let sizes: Vec<usize> = (0..steps).map(|_| one()).collect();
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
        Ok(MemoryTrace {
            freed: self.freed,
            segment_mib: self.segment_bytes >> 20,
            occupancy_percent,
            seed: self.seed,
            allocation_ns: middle(self.allocating),
            free_ns: middle(self.freeing),
            failures_percent: 100. * self.failures as f64 / steps.max(1) as f64,
            fragmentation_percent: 100. * middle(fragmentation),
            moved_percent: 100. * self.moved_bytes as f64 / self.allocated_bytes.max(1) as f64,
            coalesced,
        })
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), Error> {
        self.row += 1;
        let mut id = self.segments.allocate(bytes, "trace");
        if id.is_err() && self.freed == Freed::RandomDefragmented {
            let begin = Instant::now();
            self.moved_bytes += self.segments.defragment(|_| true, |_| Ok(()))?.copied_bytes;
            // Copying is the device's time, so it is not counted.
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
                let which = self.random.below(self.live.len());
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
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_end_with_all_memory_free() {
        for freed in Freed::ALL {
            let trace = trace_memory(freed, 2 << 30, 90, 3_000, 1).expect("sound limits");
            assert!(trace.coalesced && trace.allocation_ns > 0. && trace.free_ns > 0., "{trace:?}");
            assert!((0. ..=100.).contains(&trace.fragmentation_percent), "{trace:?}");
            let moves = freed == Freed::RandomDefragmented;
            assert!(moves || trace.moved_percent == 0., "{trace:?}");
        }
        assert!(trace_memory(Freed::Half, 0, 90, 10, 1).is_err());
    }

    #[test]
    fn pools_reuse_what_came_back() {
        let times = measure_pools(2_000, 3).expect("there is memory");
        assert!(times.hit_rate > 0.5 && times.hit_rate < 1., "{times:?}");
        assert!(times.arena_ns > 0.);
    }
}
