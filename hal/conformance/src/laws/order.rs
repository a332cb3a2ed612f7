//! Laws about queues and lifetimes: when a command's effect is visible, and how long objects live.

use super::{Lawful, ensure, pattern, same};
use lgp_hal::Device;

pub(super) fn in_order(device: &dyn Device) -> Lawful {
    let mut queue = device.queue()?;
    let (front, back) = (device.allocate(4096)?, device.allocate(4096)?);
    for round in 0..50 {
        // The first copy must see the first pattern although the second follows at once.
        let (first, second) = (pattern(2048, round), pattern(2048, round + 1000));
        queue.write(&*front, 0, &first)?;
        queue.copy(&*front, 0, &*back, 0, 2048)?;
        queue.write(&*front, 0, &second)?;
        queue.copy(&*front, 0, &*back, 2048, 2048)?;
        let mut bytes = vec![0; 4096];
        queue.read(&*back, 0, &mut bytes)?;
        same(&format!("round {round}, first copy"), &bytes[..2048], &first)?;
        same(&format!("round {round}, second copy"), &bytes[2048..], &second)?;
    }
    Ok(())
}

pub(super) fn two_queues(device: &dyn Device) -> Lawful {
    let (mut one, mut two) = (device.queue()?, device.queue()?);
    let (left, right) = (device.allocate(8192)?, device.allocate(8192)?);
    for round in 0..20 {
        let (for_left, for_right) = (pattern(4096, round), pattern(4096, round + 500));
        one.write(&*left, 0, &for_left)?;
        two.write(&*right, 0, &for_right)?;
        one.copy(&*left, 0, &*left, 4096, 4096)?;
        two.copy(&*right, 0, &*right, 4096, 4096)?;
        one.submit()?;
        two.submit()?;
        one.finish()?;
        two.finish()?;
        // Each queue reads bytes whose copy the other queue has finished.
        let mut bytes = vec![0; 4096];
        two.read(&*left, 4096, &mut bytes)?;
        same(&format!("round {round}, left"), &bytes, &for_left)?;
        one.read(&*right, 4096, &mut bytes)?;
        same(&format!("round {round}, right"), &bytes, &for_right)?;
    }
    Ok(())
}

pub(super) fn threads(device: &dyn Device) -> Lawful {
    const THREADS: usize = 4;
    const SHARE: usize = 1024;
    let buffer = device.allocate(THREADS * SHARE)?;
    std::thread::scope(|scope| {
        let work = |at: usize| -> Lawful {
            let mut queue = device.queue()?;
            for seed in (0..50).map(|round| round * 10 + at as u32) {
                let data = pattern(SHARE, seed);
                queue.write(&*buffer, at * SHARE, &data)?;
                let mut back = vec![0; SHARE];
                queue.read(&*buffer, at * SHARE, &mut back)?;
                same(&format!("thread {at}"), &back, &data)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|at| scope.spawn(move || work(at))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => ensure(false, || "a thread panicked".to_owned()),
        })
    })
}

pub(super) fn drops(device: &dyn Device) -> Lawful {
    let data = pattern(1 << 20, 12);
    let survivor = device.allocate(1 << 20)?;
    for _ in 0..8 {
        let mut queue = device.queue()?;
        let passing = device.allocate(1 << 20)?;
        queue.write(&*passing, 0, &data)?;
        queue.copy(&*passing, 0, &*survivor, 0, 1 << 20)?;
        // The copy may still run while its source and its queue are dropped.
        drop(passing);
        queue.submit()?;
        queue.finish()?;
    }
    // A buffer may outlive the device's handle and every queue; opening again makes another device.
    if let Ok(second) = lgp_hal::open(device.id()) {
        let buffer = second.allocate(16)?;
        let mut queue = second.queue()?;
        drop(second);
        queue.write(&*buffer, 0, &data[..16])?;
        let mut back = [0; 16];
        queue.read(&*buffer, 0, &mut back)?;
        drop(queue);
        same("after the device's handle went", &back, &data[..16])?;
    }
    let mut back = vec![0; 1 << 20];
    device.queue()?.read(&*survivor, 0, &mut back)?;
    same("the survivor", &back, &data)
}

pub(super) fn self_test(device: &dyn Device) -> Lawful {
    Ok(lgp_hal::self_test(device)?)
}
