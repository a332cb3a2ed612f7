//! What holds when the driver refuses a call, or is slow: on the first device of the host.

use super::tests::open;
use super::*;
use crate::backend::vulkan::event::{Timeline, VkEvent};
use crate::backend::vulkan::memory::Block;
use crate::backend::vulkan::pool::Home;
use crate::backend::vulkan::record::{PART_BYTES, Recorder};
use crate::error::Error;
use crate::event::Event;
use crate::program::{Arg, Launch};
use ash::vk;
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The driver's own functions, and whether this thread's calls of them are refused.
    static SUBMIT: Cell<Option<vk::PFN_vkQueueSubmit>> = const { Cell::new(None) };
    static BEGIN: Cell<Option<vk::PFN_vkBeginCommandBuffer>> = const { Cell::new(None) };
    static REFUSES: Cell<bool> = const { Cell::new(false) };
    static BUILD: Cell<Option<vk::PFN_vkCreateComputePipelines>> = const { Cell::new(None) };
    /// The pipelines that this thread made.
    static BUILT: Cell<u32> = const { Cell::new(0) };
}

/// `vkCreateComputePipelines`, counted.
unsafe extern "system" fn build(
    device: vk::Device,
    cache: vk::PipelineCache,
    count: u32,
    infos: *const vk::ComputePipelineCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    pipelines: *mut vk::Pipeline,
) -> vk::Result {
    BUILT.set(BUILT.get() + count);
    match BUILD.get() {
        // SAFETY: the arguments are the caller's.
        Some(own) => unsafe { own(device, cache, count, infos, callbacks, pipelines) },
        None => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
    }
}

/// `vkQueueSubmit`, or its refusal.
unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    match SUBMIT.get().filter(|_| !REFUSES.get()) {
        // SAFETY: the arguments are the caller's.
        Some(own) => unsafe { own(queue, count, infos, fence) },
        None => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
    }
}

/// `vkBeginCommandBuffer`, or its refusal.
unsafe extern "system" fn begin(
    commands: vk::CommandBuffer,
    info: *const vk::CommandBufferBeginInfo<'_>,
) -> vk::Result {
    match BEGIN.get().filter(|_| !REFUSES.get()) {
        // SAFETY: the arguments are the caller's.
        Some(own) => unsafe { own(commands, info) },
        None => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
    }
}

/// A device whose driver refuses submissions and recordings of this thread while [`REFUSES`] is set,
/// and counts pipelines.
fn refusing() -> Option<VkDevice> {
    let mut device = open()?;
    let shared = Arc::get_mut(&mut device.shared).expect("not shared yet");
    let own = &shared.device;
    let mut core = own.fp_v1_0().clone();
    SUBMIT.set(Some(core.queue_submit));
    BEGIN.set(Some(core.begin_command_buffer));
    BUILD.set(Some(core.create_compute_pipelines));
    (core.queue_submit, core.begin_command_buffer) = (submit, begin);
    core.create_compute_pipelines = build;
    let (one, two, three) = (own.fp_v1_1().clone(), own.fp_v1_2().clone(), own.fp_v1_3().clone());
    shared.device = ash::Device::from_parts_1_3(own.handle(), core, one, two, three);
    Some(device)
}

#[test]
fn a_refused_submission_leaves_no_earlier_one_in_flight() {
    let Some(device) = refusing() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let source = "KERNEL void slow(GLOBAL u32 *to, u32 rounds) {
        u32 value = GLOBAL_ID(0);
        for (u32 i = 0; i < rounds; i++) { value = value * 1664525 + to[(value >> 8) & 63]; }
        to[GLOBAL_ID(0)] = value;
    }";
    let program = device.compile(source, "").expect("compiles");
    let buffer = device.allocate(4 * 64).expect("fits");
    let mut queue = device.queue().expect("is there");
    queue.write(&*buffer, 0, &[1; 256]).expect("works");
    let args = [Arg::Buffer(&*buffer), Arg::U32(3_000_000)];
    let (global, local) = ([64, 1, 1], None);
    let launch = Launch { program: &*program, kernel: "slow", global, local, args: &args };
    // SAFETY: one element per work-item, and the buffer has 64.
    unsafe { queue.launch(&launch) }.expect("fits");
    let event = queue.record().expect("is submitted");
    queue.copy(&*buffer, 0, &*buffer, 128, 64).expect("is recorded");
    REFUSES.set(true);
    let refusal = queue.finish().expect_err("is refused");
    assert!(matches!(refusal, Error::Driver { call: "vkQueueSubmit", .. }), "{refusal}");
    assert_eq!(event.is_done(), Ok(true), "the first submission");
    assert_eq!(queue.finish(), Err(refusal), "the copy is missing");
}

#[test]
fn refused_recordings_leave_no_staging_memory_in_use() {
    let Some(mut device) = refusing() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    Arc::get_mut(&mut device.shared).expect("not shared yet").hide_memory();
    let (buffer, mut queue) =
        (device.allocate(PART_BYTES).expect("fits"), device.queue().expect("is there"));
    let data = vec![7; PART_BYTES];
    REFUSES.set(true);
    for _ in 0..9 {
        let refusal = queue.write(&*buffer, 0, &data).expect_err("is refused");
        assert!(matches!(refusal, Error::Driver { call: "vkBeginCommandBuffer", .. }), "{refusal}");
    }
    REFUSES.set(false);
    let mut back = vec![0; PART_BYTES];
    queue.write(&*buffer, 0, &data).expect("works again");
    queue.read(&*buffer, 0, &mut back).expect("works");
    assert!(back == data);
}

#[test]
fn a_grid_in_pieces_needs_one_pipeline_however_many_they_are() {
    let Some(mut device) = refusing() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let shared = Arc::get_mut(&mut device.shared).expect("not shared yet");
    shared.facts.limits.max_compute_work_group_count = [3; 3];
    let source = "KERNEL void number(GLOBAL u32 *to) { to[GLOBAL_ID(0)] = GROUP_ID(0); }";
    let program = device.compile(source, "").expect("compiles");
    let buffer = device.allocate(4 * 600).expect("fits");
    let mut queue = device.queue().expect("is there");
    for items in [600usize, 300, 6] {
        let args = [Arg::Buffer(&*buffer)];
        let (global, local) = ([items, 1, 1], Some([2, 1, 1]));
        let launch = Launch { program: &*program, kernel: "number", global, local, args: &args };
        // SAFETY: one element per work-item, and the buffer has 600.
        unsafe { queue.launch(&launch) }.expect("fits");
    }
    let mut back = [0u32; 600];
    queue.read(&*buffer, 0, bytemuck::cast_slice_mut(&mut back)).expect("works");
    assert!((0..).zip(back).all(|(at, value)| value == at / 2), "{back:?}");
    assert_eq!(BUILT.get(), 2, "one for pieces, and one for the grid that needs none");
}

#[test]
fn a_part_of_staging_memory_is_of_its_command_s_submission() {
    let Some(device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let mut recorder = Recorder::new(&device.shared).expect("is made");
    let block = Block::new(&device.shared, Home::Device, 4096).expect("fits");
    // Some of these fill a submission.
    for at in 0..300 {
        let (from, place) = recorder.stage(16).expect("has room");
        let before = recorder.submitted();
        recorder.copy((&from, place), (&block, 0), 16).expect("is recorded");
        assert_eq!(recorder.submitted(), before, "copy {at}");
    }
    assert!(recorder.submitted() > 1);
}

#[test]
fn a_queue_is_patient_while_another_s_submissions_are_done() {
    let Some(mut device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let shared = Arc::get_mut(&mut device.shared).expect("not shared yet");
    shared.patience = Duration::from_secs(1);
    let [busy, behind] = [(); 2].map(|()| Timeline::new(&device.shared).expect("is made"));
    let signal = |timeline: &Timeline, value| {
        let info = vk::SemaphoreSignalInfo::default().semaphore(timeline.semaphore).value(value);
        // SAFETY: no submission signals the timeline.
        unsafe { device.shared.device.signal_semaphore(&info) }.expect("counts");
    };
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for value in 1..=25 {
                std::thread::sleep(Duration::from_millis(100));
                signal(&busy, value);
            }
            signal(&behind, 1);
        });
        let event = VkEvent { timeline: Arc::clone(&behind), value: 1, stamp: None };
        assert_eq!(event.wait(), Ok(()));
    });
}

#[test]
fn queues_that_waited_for_each_other_do_not_keep_a_lost_device() {
    let Some(device) = open() else {
        println!("skipped: vulkan: there is no device");
        return;
    };
    let shared = Arc::downgrade(&device.shared);
    let [mut one, mut two] = [(); 2].map(|()| device.queue().expect("is there"));
    let first = one.record().expect("is submitted");
    two.wait_for(&*first).expect("is of the device");
    let second = two.record().expect("is submitted");
    one.wait_for(&*second).expect("is of the device");
    one.submit().expect("is submitted");
    // SAFETY: no other thread uses the device.
    unsafe { device.shared.device.device_wait_idle() }.expect("ends");
    device.shared.failed("vkQueueSubmit")(vk::Result::ERROR_DEVICE_LOST);
    drop((one, two, first, second, device));
    assert!(shared.upgrade().is_none());
}
