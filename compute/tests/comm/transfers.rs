//! Tests of transfers: priorities, the limit, cancellation, lost devices and random schedules.

use lgp_compute::comm::{Arrival, Place, TransferConfig, Transfers};
use lgp_compute::{Error, Result};
use lgp_hal::{BackendKind, Buffer, Device, DeviceId, NullDevice};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

const CHUNK: usize = 1000;

/// Devices without hardware, and transfers between them of so many bytes a second.
fn devices(count: usize, rate: u64) -> (Vec<Arc<NullDevice>>, Transfers) {
    let devices: Vec<Arc<NullDevice>> =
        (0..count).map(|_| Arc::new(NullDevice::new(None))).collect();
    let config = TransferConfig { chunk_bytes: CHUNK, bytes_per_second_max: NonZeroU64::new(rate) };
    let opened = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    (devices, Transfers::new(opened, config))
}

fn buffer(device: &dyn Device, data: &[u8]) -> Arc<dyn Buffer> {
    let buffer = device.allocate(data.len()).expect("there is memory");
    device.queue().expect("is there").write(&*buffer, 0, data).expect("it fits");
    buffer
}

fn content(device: &dyn Device, buffer: &dyn Buffer) -> Vec<u8> {
    let mut out = vec![0; buffer.bytes()];
    device.queue().expect("is there").read(buffer, 0, &mut out).expect("it fits");
    out
}

/// Sends all of `data` from device 0 to new memory of device 1.
fn send(
    devices: &[Arc<NullDevice>],
    transfers: &Transfers,
    data: &[u8],
    priority: u8,
) -> (Arc<dyn Buffer>, Arrival) {
    let from = Place::new(0, buffer(&*devices[0], data));
    let target = buffer(&*devices[1], &vec![0; data.len()]);
    let to = Place::new(1, Arc::clone(&target));
    (target, transfers.send(from, to, data.len(), priority).expect("the places are right"))
}

#[test]
fn a_higher_priority_overtakes() {
    // The first transfer takes 100 seconds.
    let (devices, transfers) = devices(2, 100_000);
    let (_, low) = send(&devices, &transfers, &[1; 10_000_000], 1);
    let data: Vec<u8> = (0..2500).map(|i| i as u8).collect();
    let (target, high) = send(&devices, &transfers, &data, 2);
    high.wait().expect("both devices work");
    assert_eq!(content(&*devices[1], &*target), data);
    assert!(!low.is_done());
    let link = transfers.stats()[0];
    assert_eq!((link.from, link.to, link.arrived, link.queued), (0, 1, 1, 1));
    assert!(link.queued_bytes > 9_000_000, "{link:?}");
}

#[test]
fn the_limit_is_kept() {
    let (devices, transfers) = devices(2, 100_000);
    let begin = Instant::now();
    let (_, arrival) = send(&devices, &transfers, &[1; 20_000], 0);
    arrival.wait().expect("both devices work");
    // Two chunks may run ahead.
    let least = Duration::from_millis(200 - 2 * 10);
    assert!(begin.elapsed() >= least, "{:?}", begin.elapsed());
    let link = transfers.stats()[0];
    assert_eq!((link.arrived, link.bytes, link.chunks), (1, 20_000, 20));
    assert!(link.busy < begin.elapsed() && link.bytes_per_second() > 100_000., "{link:?}");
}

#[test]
fn what_is_dropped_is_taken_back_and_writes_nothing_more() {
    let (devices, transfers) = devices(2, 100_000);
    let (target, first) = send(&devices, &transfers, &[1; 10_000_000], 0);
    let (untouched, second) = send(&devices, &transfers, &[2; 5000], 0);
    while transfers.stats()[0].chunks < 2 {
        std::thread::yield_now();
    }
    drop(second);
    drop(first);
    let (then, commands) = (content(&*devices[1], &*target), devices[1].commands().len());
    assert!(content(&*devices[1], &*untouched).iter().all(|&byte| byte == 0));
    let sent = then.iter().filter(|&&byte| byte == 1).count();
    assert!(sent >= 2 * CHUNK && sent.is_multiple_of(CHUNK) && sent < then.len(), "{sent}");
    // The link continues with other transfers.
    let (_, third) = send(&devices, &transfers, &[3; 10], 0);
    third.wait().expect("both devices work");
    assert_eq!(content(&*devices[1], &*target), then);
    let link = transfers.stats()[0];
    assert_eq!((link.arrived, link.cancelled, link.queued, link.queued_bytes), (1, 2, 0, 0));
    assert!(devices[1].commands().len() > commands);
}

#[test]
fn a_lost_device_ends_all_that_wait_for_it_and_no_other() {
    let (devices, transfers) = devices(3, 1_000_000);
    let lost: Vec<_> = (0..3).map(|i| send(&devices, &transfers, &[1; 10_000_000], i).1).collect();
    let from = Place::new(0, buffer(&*devices[0], &[7; 50_000]));
    let target = buffer(&*devices[2], &[0; 50_000]);
    let other = transfers.send(from, Place::new(2, Arc::clone(&target)), 50_000, 0);
    while transfers.stats()[0].chunks == 0 {
        std::thread::yield_now();
    }
    devices[1].lose();
    for arrival in lost {
        let error = arrival.wait().expect_err("the device is lost");
        let Error::Transfer { from: 0, to: 1, missing_bytes, source } = &error else {
            panic!("{error:?}");
        };
        assert!(matches!(**source, lgp_hal::Error::DeviceLost { .. }), "{error}");
        assert!((1..=10_000_000).contains(missing_bytes), "{error}");
    }
    other.expect("the places are right").wait().expect("both devices work");
    assert_eq!(content(&*devices[2], &*target), [7; 50_000]);
    assert_eq!(transfers.stats()[0].failed, 3);
}

#[test]
fn dropping_all_ends_all() {
    let (devices, transfers) = devices(2, 1000);
    let (_, arrival) = send(&devices, &transfers, &[1; 10_000_000], 0);
    drop(transfers);
    assert_eq!(arrival.wait(), Err(Error::Stopped(lgp_compute::Stopped::Cancelled)));
}

#[test]
fn wrong_places_are_refused() {
    let (devices, transfers) = devices(2, 0);
    let small = buffer(&*devices[0], &[0; 10]);
    let at = |device, offset| Place { offset, ..Place::new(device, Arc::clone(&small)) };
    let outside = transfers.send(at(0, 5), at(1, 0), 6, 0).map(drop);
    assert!(
        matches!(outside, Err(Error::Device(lgp_hal::Error::OutOfBounds { .. }))),
        "{outside:?}"
    );
    let nowhere = transfers.send(at(0, 0), at(2, 0), 1, 0).map(drop);
    assert!(matches!(nowhere, Err(Error::Invalid { .. })), "{nowhere:?}");
    let overlaps = transfers.send(at(0, 0), at(0, 2), 4, 0).expect("both are there").wait();
    let Err(Error::Transfer { source, .. }) = &overlaps else { panic!("{overlaps:?}") };
    assert!(matches!(**source, lgp_hal::Error::Overlap { .. }), "{overlaps:?}");
    transfers.send(at(0, 10), at(1, 10), 0, 0).expect("nothing fits").wait().expect("nothing");
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn an_arrival_is_a_future() {
    let (devices, transfers) = devices(2, 100_000);
    let (target, arrival) = send(&devices, &transfers, &[9; 5000], 0);
    let mut arrival = std::pin::pin!(arrival);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    assert!(arrival.as_mut().poll(&mut context).is_pending());
    let outcome = loop {
        std::thread::park();
        if let Poll::Ready(outcome) = arrival.as_mut().poll(&mut context) {
            break outcome;
        }
    };
    outcome.expect("both devices work");
    assert_eq!(content(&*devices[1], &*target), [9; 5000]);
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

/// Sends ranges of random sizes between random devices at random priorities, cancels some, and
/// compares the bytes of the others.
fn random_schedule(devices: &[Arc<dyn Device>], seed: u64) -> Result<()> {
    const BYTES: usize = 100_000;
    let config = TransferConfig { chunk_bytes: CHUNK, ..TransferConfig::default() };
    let transfers = Transfers::new(devices.to_vec(), config);
    let mut random = Random(seed);
    let mut noise = || -> Vec<u8> { (0..BYTES).map(|_| random.below(256) as u8).collect() };
    let sources: Vec<Vec<u8>> = devices.iter().map(|_| noise()).collect();
    let from: Vec<_> = devices.iter().zip(&sources).map(|(d, data)| buffer(&**d, data)).collect();
    let mut want: Vec<Vec<u8>> = devices.iter().map(|_| noise()).collect();
    let to: Vec<_> = devices.iter().zip(&want).map(|(d, data)| buffer(&**d, data)).collect();
    let mut unknown = vec![vec![false; BYTES]; devices.len()];
    let mut arrivals = Vec::new();
    for target in 0..devices.len() {
        let mut begin = 0;
        while begin < BYTES {
            let bytes = random.below(5000).min(BYTES - begin);
            let (source, offset) = (random.below(devices.len()), random.below(BYTES - bytes));
            let place = |device: usize, buffers: &[Arc<dyn Buffer>], offset| Place {
                offset,
                ..Place::new(device, Arc::clone(&buffers[device]))
            };
            let (here, there) = (place(source, &from, offset), place(target, &to, begin));
            let arrival = transfers.send(here, there, bytes, random.below(4) as u8)?;
            match random.below(8) {
                0 => {
                    drop(arrival);
                    unknown[target][begin..begin + bytes].fill(true);
                }
                _ => {
                    arrivals.push(arrival);
                    let data = &sources[source][offset..offset + bytes];
                    want[target][begin..begin + bytes].copy_from_slice(data);
                }
            }
            begin += bytes + random.below(3);
        }
    }
    arrivals.into_iter().try_for_each(Arrival::wait)?;
    for (target, device) in devices.iter().enumerate() {
        let given = content(&**device, &*to[target]);
        let wrong = (0..BYTES).find(|&i| given[i] != want[target][i] && !unknown[target][i]);
        assert_eq!(wrong, None, "seed {seed}, device {target}");
    }
    let ends = |link: &lgp_compute::comm::LinkStats| (link.failed, link.queued, link.queued_bytes);
    assert!(
        transfers.stats().iter().all(|link| ends(link) == (0, 0, 0)),
        "{:?}",
        transfers.stats()
    );
    Ok(())
}

#[test]
fn random_schedules_bring_the_right_bytes() -> Result<()> {
    let devices: Vec<Arc<dyn Device>> =
        (0..3).map(|_| Arc::new(NullDevice::new(None)) as Arc<dyn Device>).collect();
    (0..50).try_for_each(|seed| random_schedule(&devices, seed))
}

#[test]
fn random_schedules_bring_the_right_bytes_on_opencl() -> Result<()> {
    if !super::with_three_devices("transfers::random_schedules_bring_the_right_bytes_on_opencl") {
        return Ok(());
    }
    let open = |i| lgp_hal::open(DeviceId::new(BackendKind::OpenCl, i));
    match (0..3).map(open).collect::<lgp_hal::Result<Vec<_>>>() {
        Ok(devices) => (0..10).try_for_each(|seed| random_schedule(&devices, seed)),
        Err(reason) => {
            println!("skipped: opencl: {reason}");
            Ok(())
        }
    }
}
