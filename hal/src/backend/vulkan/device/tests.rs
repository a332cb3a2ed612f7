//! What one opened device promises, tried on the first device of the host.

use super::*;
use crate::backend::BackendKind;
use crate::backend::vulkan::event::{Timeline, VkEvent};
use crate::error::Error;
use crate::event::Event;
use crate::program::{Arg, Launch};
use ash::vk;

const ID: DeviceId = DeviceId { backend: BackendKind::Vulkan, ordinal: 0 };

pub(super) fn open() -> Option<VkDevice> {
    let (instance, mut entries) = crate::backend::vulkan::enumerate().ok()?;
    entries.retain(|entry| entry.unfit.is_none());
    let entry = (!entries.is_empty()).then(|| entries.swap_remove(0))?;
    Some(VkDevice::open(ID, instance, entry).expect("opens"))
}

#[test]
fn memory_that_the_host_does_not_see_is_staged() {
    let Some(mut device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    Arc::get_mut(&mut device.shared).expect("not shared yet").hide_memory();
    let mut queue = device.queue().expect("is there");
    // Some parts and a rest, several times around the ring.
    let data: Vec<u8> = (0..(21usize << 20) + 5).map(|at| (at % 251) as u8).collect();
    let buffers = [0, 1].map(|_| device.allocate(data.len() + 9).expect("fits"));
    let mut back = vec![0; data.len()];
    for round in 0..3 {
        queue.write(&*buffers[0], 9, &data[round..]).expect("works");
        let bytes = data.len() - round;
        queue.copy(&*buffers[0], 9, &*buffers[1], round, bytes).expect("works");
        // The copy must not see this write.
        queue.write(&*buffers[0], 0, &vec![0xee; 1 << 20]).expect("works");
        queue.read(&*buffers[1], round, &mut back[..bytes]).expect("works");
        assert!(back[..bytes] == data[round..], "round {round}");
    }
    let mut small = [0; 3];
    for at in 0..5000usize {
        let value = at.to_le_bytes();
        queue.write(&*buffers[0], 3 * at, &value[..3]).expect("works");
    }
    queue.read(&*buffers[0], 3 * 4999, &mut small).expect("works");
    assert_eq!(small, [0x87, 0x13, 0]);
    crate::self_test::self_test(&device).expect("calculates");
}

#[test]
fn a_device_that_does_not_answer_is_lost_and_opens_anew() {
    let Some(mut device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let shared = Arc::get_mut(&mut device.shared).expect("not shared yet");
    shared.patience = std::time::Duration::from_millis(10);
    // No submission ever reaches this value.
    let timeline = Timeline::new(&device.shared).expect("is made");
    let event = VkEvent { timeline, value: 1, stamp: None };
    let end = event.wait().expect_err("nothing happens");
    assert!(matches!(end, Error::DeviceLost { call: "vkWaitSemaphores", .. }), "{end}");
    assert_eq!(device.allocate(1).map(drop), Err(end.clone()));
    assert_eq!(event.is_done(), Err(end));
    let again = open().expect("was there before");
    crate::self_test::self_test(&again).expect("works");
}

#[test]
fn many_launches_keep_their_order_over_many_submissions() {
    let Some(device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let source = "KERNEL void step(GLOBAL u32 *to, GLOBAL const u32 *from, u32 factor) {
        u32 i = GLOBAL_ID(0);
        to[i] = from[i] * factor + i;
    }";
    let program = device.compile(source, "").expect("compiles");
    let mut queue = device.queue().expect("is there");
    let buffers = [0, 1].map(|_| device.allocate(4 * 64).expect("fits"));
    queue.write(&*buffers[0], 0, &[0; 256]).expect("works");
    let mut expected = [0u32; 64];
    for round in 0..501usize {
        let (from, to) = (&*buffers[round % 2], &*buffers[(round + 1) % 2]);
        let args = [Arg::Buffer(to), Arg::Buffer(from), Arg::U32(3)];
        let (global, local) = ([64, 1, 1], None);
        let launch = Launch { program: &*program, kernel: "step", global, local, args: &args };
        // SAFETY: one element of each buffer per work-item, and each has 64.
        unsafe { queue.launch(&launch) }.expect("fits");
        for (i, value) in (0u32..).zip(&mut expected) {
            *value = value.wrapping_mul(3).wrapping_add(i);
        }
    }
    let mut back = [0u32; 64];
    queue.read(&*buffers[1], 0, bytemuck::cast_slice_mut(&mut back)).expect("works");
    assert_eq!(back, expected);
}

#[test]
fn a_kernel_beyond_the_device_s_limits_is_a_typed_error() {
    let Some(device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let most = device.shared.facts.limits.max_push_constants_size;
    let scalars: String = (0..=most / 8).map(|at| format!(", u64 s{at}")).collect();
    let wide = format!("KERNEL void wide(GLOBAL u32 *out{scalars}) {{ out[0] = (u32)s0; }}");
    match device.compile(&wide, "") {
        Err(Error::Unsupported { what: "room for the scalars", reason, .. }) => {
            assert!(reason.contains(&format!("the device has {most}")), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grid_beyond_the_device_s_limits_is_dispatched_in_pieces() {
    let Some(mut device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let shared = Arc::get_mut(&mut device.shared).expect("not shared yet");
    shared.facts.limits.max_compute_work_group_count = [7, 2, 3];
    let source = "
        KERNEL void open(GLOBAL u32 *to, GLOBAL const u32 *from) {
            u32 at = (GLOBAL_ID(2) * 10 + GLOBAL_ID(1)) * 40 + GLOBAL_ID(0);
            to[at] = from[at] + ((GROUP_ID(2) * 16 + GROUP_ID(1)) * 16 + GROUP_ID(0));
        }
        KERNEL GROUP_SIZE(2, 1, 2) void fixed(GLOBAL u32 *to, GLOBAL const u32 *from) {
            u32 at = (GLOBAL_ID(2) * 10 + GLOBAL_ID(1)) * 40 + GLOBAL_ID(0);
            to[at] = from[at] + ((GROUP_ID(2) * 16 + GROUP_ID(1)) * 16 + GROUP_ID(0));
        }
        KERNEL void counting(GLOBAL u32 *to, GLOBAL const u32 *from) {
            to[0] = from[0] + GROUPS(0);
        }";
    let program = device.compile(source, "").expect("compiles");
    let mut queue = device.queue().expect("is there");
    let global = [40, 10, 8];
    let buffers = [0, 1].map(|_| device.allocate(4 * 3200).expect("fits"));
    queue.write(&*buffers[0], 0, &[0; 4 * 3200]).expect("works");
    let mut expected = vec![0u32; 3200];
    // Each round is of 180 and then 120 pieces, more than one submission takes.
    let rounds =
        ["open", "fixed", "open", "fixed"].iter().zip([[2, 1, 1], [2, 1, 2]].iter().cycle());
    for (round, (kernel, local)) in rounds.enumerate() {
        let args = [&buffers[(round + 1) % 2], &buffers[round % 2]].map(|it| Arg::Buffer(&**it));
        let launch =
            Launch { program: &*program, kernel, global, local: Some(*local), args: &args };
        // SAFETY: one element of each buffer per work-item, and each has 3200.
        unsafe { queue.launch(&launch) }.expect("fits");
        for (at, value) in expected.iter_mut().enumerate() {
            let [x, y, z] = [at % 40 / local[0], at / 40 % 10 / local[1], at / 400 / local[2]];
            *value += ((z * 16 + y) * 16 + x) as u32;
        }
    }
    let mut back = vec![0u32; 3200];
    queue.read(&*buffers[0], 0, bytemuck::cast_slice_mut(&mut back)).expect("works");
    assert_eq!(back, expected);
    let args = [&buffers[0], &buffers[1]].map(|it| Arg::Buffer(&**it));
    let (global, local) = ([16, 1, 1], Some([2, 1, 1]));
    let launch = Launch { program: &*program, kernel: "counting", global, local, args: &args };
    // SAFETY: it is refused.
    match unsafe { queue.launch(&launch) } {
        Err(Error::Launch { reason, .. }) => assert!(reason.contains("asks for their"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn small_buffers_share_segments_and_give_their_places_back() {
    let Some(device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    // More buffers than a driver bears allocations.
    let mut buffers: Vec<_> =
        (0..6000).map(|at| device.allocate(at % 700).expect("fits")).collect();
    let mut queue = device.queue().expect("is there");
    for (at, buffer) in buffers.iter().enumerate() {
        queue.write(&**buffer, 0, &vec![at as u8; at % 700]).expect("works");
    }
    for (at, buffer) in buffers.iter().enumerate() {
        let mut back = vec![0; at % 700];
        queue.read(&**buffer, 0, &mut back).expect("works");
        assert!(back.iter().all(|byte| *byte == at as u8), "buffer {at}");
    }
    buffers.clear();
    drop(queue);
    assert!(device.allocate(1 << 20).is_ok());
}

#[test]
fn a_lost_device_answers_each_call_with_its_loss_and_opens_anew() {
    let Some(device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let buffer = device.allocate(16).expect("fits");
    let (mut queue, blocks) =
        (device.queue().expect("is there"), [16, 16].map(|bytes| device.pinned(bytes)));
    let event = queue.record().expect("is there");
    let [one, two] = blocks.map(|block| block.expect("fits"));
    queue.write(&*buffer, 0, &[1; 16]).expect("works");
    queue.copy(&*buffer, 0, &*buffer, 8, 8).expect("is recorded and never submitted");
    let end = device.shared.failed("vkQueueSubmit")(vk::Result::ERROR_DEVICE_LOST);
    assert!(matches!(end, Error::DeviceLost { call: "vkQueueSubmit", .. }), "{end}");
    let answers = [
        device.allocate(1).map(drop),
        device.pinned(1).map(drop),
        device.queue().map(drop),
        device.compile("KERNEL void f(void) {}", "").map(drop),
        queue.write(&*buffer, 0, &[0]),
        queue.read(&*buffer, 0, &mut [0]),
        queue.write_async(&*buffer, 0, one, 16).map(drop),
        queue.read_async(&*buffer, 0, two, 16).map(drop),
        queue.copy(&*buffer, 0, &*buffer, 8, 8),
        queue.record().map(drop),
        queue.wait_for(&*event),
        event.wait(),
        event.is_done().map(drop),
        queue.submit(),
        queue.finish(),
    ];
    for (at, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(end.clone()), "call {at}");
    }
    drop((queue, event, buffer, device));
    let again = open().expect("was there before");
    let (buffer, mut queue, mut back) =
        (again.allocate(4).expect("fits"), again.queue().expect("is there"), [0; 4]);
    queue.write(&*buffer, 0, &[1, 2, 3, 4]).expect("works");
    queue.read(&*buffer, 0, &mut back).expect("works");
    assert_eq!(back, [1, 2, 3, 4]);
}
