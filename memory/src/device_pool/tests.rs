//! Blocks on the recording device, which keeps bytes, and on one that refuses.

use super::*;
use crate::error::Error;
use crate::profile::{MemoryProfile, SpikeRule};
use crate::segments::Place;
use lgp_hal::NullDevice;
use lgp_hal::testing::RefusingDevice;
use std::time::Duration;

const MIB: usize = 1 << 20;

fn device() -> Arc<NullDevice> {
    Arc::new(NullDevice::new(Some(4 * MIB as u64)))
}

fn limits() -> SegmentLimits {
    SegmentLimits { segment_bytes: MIB, ..SegmentLimits::new(8 * MIB, 4 * MIB) }
}

fn pool() -> (DevicePool, Box<dyn Queue>) {
    let device = self::device();
    let queue = device.queue().unwrap();
    (DevicePool::new(device, limits()).unwrap(), queue)
}

fn fill(queue: &mut dyn Queue, block: &DeviceBlock, mark: u8) {
    queue.write(block.buffer(), 0, &vec![mark; block.bytes()]).unwrap();
}

fn has(queue: &mut dyn Queue, buffer: &dyn Buffer, mark: u8) -> bool {
    let mut out = vec![0; buffer.bytes()];
    queue.read(buffer, 0, &mut out).unwrap();
    out.iter().all(|&byte| byte == mark)
}

#[test]
fn a_block_is_a_buffer_of_its_own_and_goes_back() {
    let (pool, mut queue) = pool();
    let blocks: Vec<_> =
        [1000, 0, 700_000, 512].map(|bytes| pool.allocate(bytes, "x").unwrap()).into();
    for (block, mark) in blocks.iter().zip(1..) {
        assert_eq!(block.buffer().bytes(), block.bytes());
        fill(&mut *queue, block, mark);
    }
    for (block, mark) in blocks.iter().zip(1..) {
        assert!(has(&mut *queue, block.buffer(), mark));
    }
    assert_eq!(pool.stats().segments, 1);
    let clone = pool.clone();
    drop(pool);
    drop(blocks);
    assert_eq!((clone.stats().in_use_bytes, clone.stats().allocations), (0, 4));
    let last = clone.allocate(1, "x").unwrap();
    drop(clone);
    fill(&mut *queue, &last, 9);
}

#[test]
fn limits_follow_the_device() {
    let caps = |allocation_bytes_max, alignment_bytes| Caps {
        allocation_bytes_max,
        alignment_bytes,
        ..Caps::default()
    };
    for (largest, alignment, wanted) in [
        (Some(2 << 30), 512, (2 << 30, 512)),
        (None, 64, (8 << 30, 256)),
        (Some(u64::MAX), 0, (8 << 30, 256)),
        (Some(1 << 30), 4096, (1 << 30, 4096)),
    ] {
        let limits = SegmentLimits::of_device(&caps(largest, alignment), 8 << 30);
        assert_eq!((limits.segment_bytes_max, limits.alignment_bytes), wanted);
    }
    let odd = SegmentLimits::of_device(&caps(None, u32::MAX), 8 << 30);
    assert!(DevicePool::new(device(), odd).is_err());
}

/// Uses a pool with any failures: every block that was handed out keeps its content.
fn use_pool(pool: &DevicePool, queue: &mut dyn Queue) -> Vec<Error> {
    let (mut blocks, mut errors) = (Vec::new(), Vec::new());
    for (mark, bytes) in (0..).zip([100, 900_000, 3 * MIB, 600_000, 5000, 2 * MIB, 5 * MIB]) {
        match pool.allocate(bytes, "weights") {
            Ok(block) => {
                fill(queue, &block, mark);
                blocks.push((block, mark));
            }
            Err(error) => errors.push(error),
        }
        if mark == 3 {
            blocks.remove(0);
        }
    }
    assert!(blocks.iter().all(|(block, mark)| has(queue, block.buffer(), *mark)));
    errors
}

/// The device refuses each of its allocations once. Smaller segments are tried, or the request
/// fails with a table; the pool stays usable, and nothing is lost.
#[test]
fn a_refusal_at_any_allocation_leaves_a_usable_pool() {
    let device = Arc::new(RefusingDevice::new(device()));
    let mut queue = self::device().queue().unwrap();
    let whole = DevicePool::new(device.clone(), limits()).unwrap();
    let usual = use_pool(&whole, &mut *queue);
    assert!(matches!(usual[..], [Error::RangeTooLarge { .. }]), "{usual:?}");
    let asked = device.asked();
    assert!(asked >= 4, "{asked} segments");
    let mut shortages = 0;
    for refused in 0..asked {
        device.refuse(refused..refused + 1);
        let pool = DevicePool::new(device.clone(), limits()).unwrap();
        for error in use_pool(&pool, &mut *queue) {
            match &error {
                Error::Shortage { shortage, refusal: Some(refusal) } => {
                    assert!(matches!(**refusal, Error::Device(_)), "{refusal}");
                    let held: usize = shortage.holders.iter().map(|holder| holder.bytes).sum();
                    assert_eq!(held, shortage.stats.in_use_bytes);
                    shortages += 1;
                }
                other => assert!(matches!(other, Error::RangeTooLarge { .. }), "{other}"),
            }
        }
        assert_eq!(pool.stats().in_use_bytes, 0);
        assert_eq!(use_pool(&pool, &mut *queue).len(), 1, "all is well afterwards");
    }
    assert!(shortages > 0);
}

#[test]
fn a_lost_device_is_no_shortage() {
    let device = Arc::new(lgp_hal::NullDevice::new(None));
    let pool = DevicePool::new(device.clone(), limits()).unwrap();
    device.lose();
    let error = pool.allocate(1, "weights").unwrap_err();
    assert!(error.is_device_lost(), "{error}");
}

#[test]
fn a_block_is_kept_by_the_last_handle_of_its_buffer() {
    let (pool, mut queue) = pool();
    let buffer = pool.allocate(4096, "x").unwrap().into_buffer();
    let part = Arc::clone(&buffer).slice(1024, 512).unwrap();
    queue.write(&*buffer, 1024, &[7; 512]).unwrap();
    drop(buffer);
    assert!(has(&mut *queue, &*part, 7) && part.bytes() == 512);
    assert_eq!(pool.stats().in_use_bytes, 4096);
    drop(part);
    assert_eq!(pool.stats().in_use_bytes, 0);
}

#[test]
fn relocatable_blocks_move_unless_they_are_pinned() {
    let (pool, mut queue) = pool();
    let mut blocks: Vec<Option<RelocatableBlock>> = Vec::new();
    for mark in 0..8 {
        let block = pool.allocate(MIB / 8, "weights").unwrap();
        fill(&mut *queue, &block, mark);
        blocks.push(Some(block.relocatable()));
    }
    for hole in [0, 3] {
        blocks[hole] = None;
    }
    assert!((pool.stats().fragmentation() - 0.5).abs() < 1e-9);
    let pinned = blocks[1].as_ref().unwrap().pin().unwrap();
    let at = pinned.offset();
    let done = pool.defragment(&mut *queue).unwrap();
    assert!(done.copied_bytes > 0);
    assert_eq!(pinned.offset(), at);
    assert!(has(&mut *queue, pinned.buffer(), 1));
    drop(pinned);
    pool.defragment(&mut *queue).unwrap();
    assert!(pool.stats().fragmentation() < 1e-9, "{:?}", pool.stats());
    for (mark, block) in (0..).zip(&blocks) {
        if let Some(block) = block {
            assert!(has(&mut *queue, block.pin().unwrap().buffer(), mark));
        }
    }
    blocks.clear();
    assert_eq!(pool.stats().in_use_bytes, 0);
    assert!(pool.0.lock().relocatable.is_empty());
}

#[test]
fn a_log_replays_on_a_simulated_device() {
    let (pool, _) = pool();
    let early = pool.allocate(MIB, "weights").unwrap();
    assert!(pool.log().is_none());
    pool.start_log(100);
    let late = pool.allocate(MIB / 2, "arena").unwrap();
    drop(early);
    assert!(pool.allocate(9 * MIB, "cache").is_err());
    let log = pool.log().unwrap();
    let replay = log.replay(log.limits(), crate::SimulatedDevice::new(8 * MIB, 4 * MIB)).unwrap();
    assert_eq!(replay.stats.in_use_bytes, pool.stats().in_use_bytes);
    assert_eq!(replay.first_failure.unwrap().0, 2);
    drop(late);
}

#[test]
fn threads_share_a_pool() {
    let (pool, _) = pool();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let pool = &pool;
            scope.spawn(move || {
                let mut queue = device().queue().unwrap();
                for round in 0..200 {
                    let bytes = 1 + 977 * (round % 50) * usize::from(thread + 1);
                    let block = pool.allocate(bytes, "x").unwrap();
                    fill(&mut *queue, &block, thread);
                    let block = block.relocatable();
                    if round % 40 == 0 {
                        pool.defragment(&mut *queue).unwrap();
                    }
                    assert!(has(&mut *queue, block.pin().unwrap().buffer(), thread));
                }
            });
        }
    });
    let state = pool.0.lock();
    let places: Vec<Place> = state.segments.taken().map(|(_, place, _)| place).collect();
    assert_eq!(places, []);
}

#[test]
fn the_host_is_in_the_log() {
    let (pool, _) = pool();
    pool.start_log(100);
    pool.phase("load");
    let host = Pool::new();
    let buffer = host.alloc(MIB).unwrap();
    pool.note_host(&host);
    let rule = SpikeRule { bytes: MIB, within: Duration::from_secs(1) };
    let profile = MemoryProfile::new(&pool.log().unwrap(), rule);
    let peaks = &profile.phases.last().unwrap().host_peaks;
    assert_eq!(peaks.get("host pool"), Some(&MIB));
    let process = peaks.get("process");
    assert_eq!(process.is_some(), cfg!(target_os = "linux"));
    assert!(process.is_none_or(|&bytes| bytes > MIB));
    drop(buffer);
}
