//! Laws about events: completion, waiting on the host and on queues, and the time between two.

use super::{Lawful, ensure, pattern, refused, same};
use lgp_hal::{Buffer, Device, DeviceId, Error, NullDevice, Queue, Result};
use std::sync::Arc;

const SIZE: usize = 4 << 20;

/// Takes some time: copies the lower half of `buffer` to the upper half, many times.
fn work(queue: &mut dyn Queue, buffer: &dyn Buffer) -> Result<()> {
    (0..16).try_for_each(|_| queue.copy(buffer, 0, buffer, SIZE / 2, SIZE / 2))
}

pub(super) fn done(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    queue.record()?.wait()?;
    let buffer = device.allocate(SIZE)?;
    queue.write(&*buffer, 0, &pattern(SIZE, 41))?;
    work(&mut *queue, &*buffer)?;
    let first = queue.record()?;
    work(&mut *queue, &*buffer)?;
    let second = queue.record()?;
    first.is_done()?;
    second.wait()?;
    ensure(second.is_done()?, || "an event is not done after its wait".to_owned())?;
    ensure(first.is_done()?, || "an event is done before an earlier one".to_owned())?;
    let third = queue.record()?;
    queue.finish()?;
    ensure(third.is_done()?, || "an event is not done after its queue has finished".to_owned())?;
    let last = queue.record()?;
    drop(queue);
    last.wait()?;
    ensure(last.is_done()?, || "an event does not outlive its queue".to_owned())
}

pub(super) fn across(device: &dyn Device) -> Lawful {
    let (mut one, mut two) = (device.queue()?, device.queue()?);
    let (buffer, target) = (device.allocate(SIZE)?, device.allocate(SIZE / 2)?);
    for round in 0..4 {
        let data = pattern(SIZE / 2, 42 + round);
        one.write(&*buffer, 0, &data)?;
        work(&mut *one, &*buffer)?;
        let event = one.record()?;
        // The host does not wait between the queues.
        two.wait_for(&*event)?;
        two.copy(&*buffer, SIZE / 2, &*target, 0, SIZE / 2)?;
        one.wait_for(&*two.record()?)?;
        one.copy(&*target, 0, &*buffer, SIZE / 2, SIZE / 2)?;
        let mut back = vec![0; SIZE / 2];
        one.read(&*buffer, SIZE / 2, &mut back)?;
        same(&format!("round {round}"), &back, &data)?;
    }
    let stranger: Arc<dyn Device> = match device.id() {
        DeviceId::NULL => lgp_hal::open(DeviceId::CPU)?,
        _ => Arc::new(NullDevice::new(None)),
    };
    let foreign = stranger.queue()?.record()?;
    let wanted = |error: &Error| matches!(error, Error::Foreign { .. });
    refused("to wait for another device", one.wait_for(&*foreign), wanted)?;
    refused("the time since another device", one.record()?.since(&*foreign), wanted)
}

pub(super) fn times(device: &dyn Device) -> Lawful {
    let mut queue = device.timed_queue()?;
    let buffer = device.allocate(SIZE)?;
    queue.write(&*buffer, 0, &pattern(SIZE, 43))?;
    let first = queue.record()?;
    work(&mut *queue, &*buffer)?;
    let second = queue.record()?;
    work(&mut *queue, &*buffer)?;
    let third = queue.record()?;
    let Some((one, both)) = second.since(&*first)?.zip(third.since(&*first)?) else {
        return ensure(false, || "a timed queue tells no time".to_owned());
    };
    ensure(!one.is_zero(), || "work took no time".to_owned())?;
    ensure(both > one, || format!("twice the work took {both:?}, the half {one:?}"))?;
    let backwards = first.since(&*third)?;
    ensure(backwards.is_some_and(|it| it.is_zero()), || format!("time went back: {backwards:?}"))?;
    // An untimed queue may tell no time, but must not fail.
    let mut plain = device.queue()?;
    let (first, second) = (plain.record()?, plain.record()?);
    second.since(&*first)?;
    Ok(())
}
