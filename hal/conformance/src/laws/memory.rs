//! Laws about buffers: reads return the written bytes, and no other bytes change.

use super::{Lawful, ensure, pattern, refused, same};
use lgp_hal::{Device, Error, NullDevice};
use std::sync::Arc;

fn is_out_of_bounds(error: &Error) -> bool {
    matches!(error, Error::OutOfBounds { .. })
}

pub(super) fn capabilities(device: &dyn Device) -> Lawful {
    let caps = device.caps();
    ensure(!device.name().is_empty(), || "the name is empty".to_owned())?;
    let (most, largest) = (caps.memory_bytes, caps.allocation_bytes_max);
    ensure(most.is_none_or(|bytes| bytes > 0), || "it has a memory of 0 bytes".to_owned())?;
    ensure(most.is_none() || largest <= most, || {
        format!("its largest buffer of {largest:?} exceeds its memory of {most:?}")
    })?;
    ensure(!caps.programs || (caps.work_group_max > 0 && caps.compute_units > 0), || {
        "it has programs but no work-groups or no compute units".to_owned()
    })?;
    ensure(!caps.programs || caps.wave > 0, || "it has programs but no wave".to_owned())
}

pub(super) fn round_trip(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    for (length, seed) in [(1, 1), (3, 2), (4096, 3), (65_537, 4), (4 << 20, 5)] {
        let buffer = device.allocate(length)?;
        ensure(buffer.bytes() == length, || format!("{length} bytes became {}", buffer.bytes()))?;
        let data = pattern(length, seed);
        queue.write(&*buffer, 0, &data)?;
        let mut back = vec![0; length];
        queue.read(&*buffer, 0, &mut back)?;
        same(&format!("{length} bytes"), &back, &data)?;
    }
    Ok(())
}

pub(super) fn partial_write(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let buffer = device.allocate(1000)?;
    let mut expected = pattern(1000, 7);
    queue.write(&*buffer, 0, &expected)?;
    for (offset, length) in [(0, 1), (999, 1), (3, 5), (511, 2), (128, 256)] {
        let data = pattern(length, 8);
        queue.write(&*buffer, offset, &data)?;
        expected[offset..offset + length].copy_from_slice(&data);
        let mut part = vec![0; length];
        queue.read(&*buffer, offset, &mut part)?;
        same("the part written", &part, &data)?;
    }
    let mut all = vec![0; 1000];
    queue.read(&*buffer, 0, &mut all)?;
    same("the whole buffer", &all, &expected)
}

pub(super) fn slices(device: &dyn Device) -> Lawful {
    let step = (device.caps().alignment_bytes as usize).max(1);
    let mut queue = device.queue()?;
    let whole = device.allocate(4 * step)?;
    let mut expected = pattern(4 * step, 21);
    queue.write(&*whole, 0, &expected)?;
    let upper = Arc::clone(&whole).slice(2 * step, 2 * step)?;
    let last = Arc::clone(&upper).slice(step, step)?;
    drop(whole);
    let data = pattern(step, 22);
    queue.write(&*last, 0, &data)?;
    expected[3 * step..].copy_from_slice(&data);
    queue.copy(&*last, 0, &*upper, 0, step)?;
    expected.copy_within(3 * step.., 2 * step);
    let mut back = vec![0; 2 * step];
    queue.read(&*upper, 0, &mut back)?;
    same("the slice", &back, &expected[2 * step..])?;
    ensure(Arc::clone(&upper).slice(2 * step, 0)?.bytes() == 0, || "an end has bytes".to_owned())?;
    let beyond = Arc::clone(&upper).slice(step, step + 1);
    refused("a slice beyond the end", beyond, is_out_of_bounds)?;
    refused("a write beyond a slice", queue.write(&*last, 1, &data), is_out_of_bounds)?;
    let overlap = queue.copy(&*upper, step / 2, &*last, 0, step);
    refused("a copy onto itself", overlap, |error| matches!(error, Error::Overlap { .. }))?;
    if step > 1 {
        let wanted = |error: &Error| matches!(error, Error::Unaligned { .. });
        refused("an offset between", upper.slice(1, 1), wanted)?;
    }
    Ok(())
}

pub(super) fn bounds(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let (buffer, other) = (device.allocate(64)?, device.allocate(32)?);
    let data = pattern(64, 9);
    queue.write(&*buffer, 0, &data)?;
    queue.write(&*other, 0, &data[..32])?;
    for (offset, length) in [(0, 65), (1, 64), (64, 1), (65, 0), (usize::MAX, 2)] {
        let mut bytes = vec![0; length];
        let what = format!("{length} bytes at {offset} of 64");
        refused(&what, queue.write(&*buffer, offset, &bytes), is_out_of_bounds)?;
        refused(&what, queue.read(&*buffer, offset, &mut bytes), is_out_of_bounds)?;
        let copy = queue.copy(&*buffer, offset, &*other, 0, length);
        refused(&format!("copy of {what}"), copy, is_out_of_bounds)?;
    }
    for (to, length) in [(0, 33), (32, 1), (usize::MAX, 1)] {
        let what = format!("copy of {length} bytes to {to} of 32");
        refused(&what, queue.copy(&*buffer, 0, &*other, to, length), is_out_of_bounds)?;
    }
    let mut back = vec![0; 64];
    queue.read(&*buffer, 0, &mut back)?;
    same("after the refusals", &back, &data)
}

pub(super) fn copies(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let (from, to) = (device.allocate(5000)?, device.allocate(5000)?);
    let (data, mut expected) = (pattern(5000, 10), pattern(5000, 11));
    queue.write(&*from, 0, &data)?;
    queue.write(&*to, 0, &expected)?;
    for (source, target, length) in [(0, 0, 1), (17, 4000, 1000), (4999, 3, 1), (100, 100, 333)] {
        queue.copy(&*from, source, &*to, target, length)?;
        expected[target..target + length].copy_from_slice(&data[source..source + length]);
    }
    queue.copy(&*to, 0, &*to, 2000, 1000)?;
    expected.copy_within(0..1000, 2000);
    let mut back = vec![0; 5000];
    queue.read(&*to, 0, &mut back)?;
    same("the target", &back, &expected)?;
    queue.read(&*from, 0, &mut back)?;
    same("the source", &back, &data)?;
    for (source, target) in [(0, 999), (999, 0), (5, 5)] {
        let what = format!("1000 bytes from {source} to {target} of one buffer");
        let copy = queue.copy(&*to, source, &*to, target, 1000);
        refused(&what, copy, |error| matches!(error, Error::Overlap { .. }))?;
    }
    Ok(())
}

pub(super) fn nothing(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let (empty, full) = (device.allocate(0)?, device.allocate(8)?);
    ensure(empty.bytes() == 0, || format!("0 bytes became {}", empty.bytes()))?;
    queue.write(&*empty, 0, &[])?;
    queue.read(&*empty, 0, &mut [])?;
    queue.copy(&*empty, 0, &*full, 8, 0)?;
    queue.copy(&*full, 3, &*full, 3, 0)?;
    queue.write(&*full, 8, &[])?;
    queue.submit()?;
    queue.finish()?;
    refused("a byte into nothing", queue.write(&*empty, 0, &[1]), is_out_of_bounds)
}

pub(super) fn out_of_memory(device: &dyn Device) -> Lawful {
    let largest = device.caps().allocation_bytes_max;
    let beyond = largest.and_then(|bytes| usize::try_from(bytes).ok()?.checked_add(1));
    for bytes in [Some(usize::MAX), Some(usize::MAX / 2), beyond].into_iter().flatten() {
        let wanted = |error: &Error| matches!(error, Error::OutOfMemory { .. });
        refused(&format!("{bytes} bytes"), device.allocate(bytes), wanted)?;
    }
    let buffer = device.allocate(64)?;
    ensure(buffer.bytes() == 64, || "no allocation works after a refusal".to_owned())
}

pub(super) fn foreign(device: &dyn Device) -> Lawful {
    let wanted = |error: &Error| matches!(error, Error::Foreign { .. });
    // Host memory of one device must not be accepted as memory of the other.
    let stranger = match device.id() {
        lgp_hal::DeviceId::NULL => lgp_hal::open(lgp_hal::DeviceId::CPU)?.allocate(8)?,
        _ => NullDevice::new(None).allocate(8)?,
    };
    let own = device.allocate(8)?;
    let mut queue = device.queue()?;
    refused("write", queue.write(&*stranger, 0, &[0; 8]), wanted)?;
    refused("read", queue.read(&*stranger, 0, &mut [0; 8]), wanted)?;
    refused("copy from", queue.copy(&*stranger, 0, &*own, 0, 8), wanted)?;
    refused("copy to", queue.copy(&*own, 0, &*stranger, 0, 8), wanted)
}
