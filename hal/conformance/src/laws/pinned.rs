//! Laws about pinned blocks, and about the transfers that own them while they run.

use super::{Lawful, ensure, pattern, refused, same};
use lgp_hal::{Device, Error};

const SIZE: usize = 1 << 20;

pub(super) fn both_ways(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    for (length, seed) in [(0, 50), (1, 51), (4097, 52), (SIZE, 53)] {
        let (mut out, back) = (device.pinned(length)?, device.pinned(length)?);
        ensure(out.len() == length, || format!("{length} bytes became {}", out.len()))?;
        same("a new block", &out, &vec![0; length])?;
        let data = pattern(length, seed);
        out.copy_from_slice(&data);
        let buffer = device.allocate(length)?;
        let written = queue.write_async(&*buffer, 0, out, length)?;
        let read = queue.read_async(&*buffer, 0, back, length)?;
        let back = read.wait()?;
        ensure(written.done().is_done()?, || "a transfer overtook another".to_owned())?;
        same(&format!("{length} bytes"), &back, &data)?;
        same("the block that was written", &written.wait()?, &data)?;
    }
    // Another device can transfer from the block of this one, as from any host memory.
    let mut block = lgp_hal::open(lgp_hal::DeviceId::CPU)?.pinned(64)?;
    block.fill(7);
    let buffer = device.allocate(64)?;
    queue.write_async(&*buffer, 0, block, 64)?.wait()?;
    let mut back = [0; 64];
    queue.read(&*buffer, 0, &mut back)?;
    same("a block of another device", &back, &[7; 64])
}

pub(super) fn order(device: &dyn Device) -> Lawful {
    let (mut one, mut two) = (device.queue()?, device.queue()?);
    let (front, back) = (device.allocate(SIZE)?, device.allocate(SIZE)?);
    let (mut block, mut other) = (device.pinned(SIZE)?, device.pinned(SIZE)?);
    for round in 0..8 {
        let (first, second) = (pattern(SIZE, 60 + round), pattern(SIZE / 2, 80 + round));
        block.copy_from_slice(&first);
        other[..SIZE / 2].copy_from_slice(&second);
        let whole = one.write_async(&*front, 0, block, SIZE)?;
        let half = one.write_async(&*front, SIZE / 4, other, SIZE / 2)?;
        two.wait_for(&**half.done())?;
        two.copy(&*front, 0, &*back, 0, SIZE)?;
        block = whole.wait()?;
        other = two.read_async(&*back, 0, half.wait()?, SIZE)?.wait()?;
        let mut expected = first;
        expected[SIZE / 4..SIZE / 4 * 3].copy_from_slice(&second);
        same(&format!("round {round}"), &other, &expected)?;
    }
    Ok(())
}

pub(super) fn drops(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let buffer = device.allocate(SIZE)?;
    for round in 0..8 {
        let mut block = device.pinned(SIZE)?;
        block.copy_from_slice(&pattern(SIZE, 90 + round));
        drop(queue.write_async(&*buffer, 0, block, SIZE)?);
        // The next owner of the memory must not change the written bytes.
        drop(vec![0xee_u8; SIZE]);
        drop(queue.read_async(&*buffer, 0, device.pinned(SIZE)?, SIZE)?);
        let mut back = vec![0; SIZE];
        queue.read(&*buffer, 0, &mut back)?;
        same(&format!("round {round}"), &back, &pattern(SIZE, 90 + round))?;
    }
    // A block may outlive its queue and the device's handle.
    let block = device.pinned(16)?;
    let transfer = queue.write_async(&*buffer, 0, block, 16)?;
    drop(queue);
    same("a block without its queue", &transfer.wait()?, &[0; 16])
}

pub(super) fn bounds(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let buffer = device.allocate(64)?;
    let wanted = |error: &Error| matches!(error, Error::OutOfBounds { .. });
    for (offset, bytes, block) in
        [(0, 65, 128), (1, 64, 128), (65, 0, 8), (0, 9, 8), (usize::MAX, 2, 8)]
    {
        let what = format!("{bytes} bytes of a block of {block} at {offset} of 64");
        let written = queue.write_async(&*buffer, offset, device.pinned(block)?, bytes);
        refused(&format!("write of {what}"), written, wanted)?;
        let read = queue.read_async(&*buffer, offset, device.pinned(block)?, bytes);
        refused(&format!("read of {what}"), read, wanted)?;
    }
    let wanted = |error: &Error| matches!(error, Error::OutOfMemory { .. });
    refused("a block beyond all memory", device.pinned(usize::MAX), wanted)?;
    queue.read_async(&*buffer, 0, device.pinned(64)?, 64)?.wait()?;
    Ok(())
}
