//! Laws about several devices in one process.

use super::{Lawful, Verdict, pattern, refused, same, told};
use lgp_hal::{Arg, Device, DeviceId, Error, Launch};
use std::sync::Arc;

const SIZE: usize = 256 << 10;

/// Another device of the same backend.
fn neighbour(device: &dyn Device) -> Result<Arc<dyn Device>, Error> {
    let id = device.id();
    let next = lgp_hal::open(DeviceId::new(id.backend, id.ordinal + 1));
    next.or_else(|error| match id.ordinal {
        0 => Err(error),
        _ => lgp_hal::open(DeviceId::new(id.backend, 0)),
    })
}

pub(super) fn law(device: &dyn Device) -> Verdict {
    match neighbour(device) {
        Ok(other) => told(apart(device, &*other).and_then(|()| foreign(device, &*other))),
        Err(Error::NoDevice { reason, .. }) => Verdict::Skipped(reason),
        Err(error) => Verdict::Broken(error.to_string()),
    }
}

/// Both devices work at once, independently; then bytes go from one to the other.
fn apart(device: &dyn Device, other: &dyn Device) -> Lawful {
    let work = |device: &dyn Device, seed: u32| -> Lawful {
        let mut queue = device.queue()?;
        let (front, back) = (device.allocate(SIZE)?, device.allocate(SIZE)?);
        for round in 0..20 {
            let data = pattern(SIZE, seed + round);
            queue.write(&*front, 0, &data)?;
            queue.copy(&*front, 0, &*back, 0, SIZE)?;
            let mut bytes = vec![0; SIZE];
            queue.read(&*back, 0, &mut bytes)?;
            same(&format!("{}, round {round}", device.id()), &bytes, &data)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| work(other, 1000));
        let here = work(device, 2000);
        here.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let (from, to) = (device.allocate(SIZE)?, other.allocate(SIZE)?);
    let (mut one, mut two) = (device.queue()?, other.queue()?);
    let data = pattern(SIZE, 3000);
    one.write(&*from, 0, &data)?;
    let block = one.read_async(&*from, 0, device.pinned(SIZE)?, SIZE)?.wait()?;
    two.write_async(&*to, 0, block, SIZE)?.wait()?;
    let mut bytes = vec![0; SIZE];
    two.read(&*to, 0, &mut bytes)?;
    same("what went from one device to the other", &bytes, &data)
}

/// A device refuses buffers, events and programs of another device.
fn foreign(device: &dyn Device, other: &dyn Device) -> Lawful {
    let wanted = |error: &Error| matches!(error, Error::Foreign { .. });
    let (own, stranger) = (device.allocate(64)?, other.allocate(64)?);
    let mut queue = device.queue()?;
    refused("write", queue.write(&*stranger, 0, &[0; 8]), wanted)?;
    refused("read", queue.read(&*stranger, 0, &mut [0; 8]), wanted)?;
    refused("copy from", queue.copy(&*stranger, 0, &*own, 0, 8), wanted)?;
    refused("copy to", queue.copy(&*own, 0, &*stranger, 0, 8), wanted)?;
    let transfer = queue.write_async(&*stranger, 0, device.pinned(8)?, 8);
    refused("transfer", transfer, wanted)?;
    let event = other.queue()?.record()?;
    refused("event", queue.wait_for(&*event), wanted)?;
    if !(device.caps().programs && other.caps().programs) {
        return Ok(());
    }
    let source = "KERNEL void clear(GLOBAL u32 *out) { out[GLOBAL_ID(0)] = 0; }";
    let (program, args) = (device.compile(source, "")?, [Arg::Buffer(&*stranger)]);
    let (global, local) = ([16, 1, 1], None);
    let launch = Launch { program: &*program, kernel: "clear", global, local, args: &args };
    // SAFETY: one element per work-item, and the buffer has 16; the launch must be refused anyway.
    refused("argument", unsafe { queue.launch(&launch) }, wanted)?;
    let (program, args) = (other.compile(source, "")?, [Arg::Buffer(&*own)]);
    let launch = Launch { program: &*program, args: &args, ..launch };
    // SAFETY: as above.
    refused("program", unsafe { queue.launch(&launch) }, wanted)
}
