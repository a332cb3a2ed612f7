//! Models in less memory than their weights take, and memory that runs out at any request.

use crate::passes::tests::f32_type;
use crate::{DeviceMemoryReport, Error, GraphBuilder, Model, Result, Session, SessionOptions};
use lgp_compute::device::{Accelerator, Traffic};
use lgp_hal::Device;
use lgp_hal::testing::RefusingDevice;
use lgp_memory::{NamedTensor, SegmentLimits, Shape, Tensor};
use std::sync::Arc;

lgp_hal::on_backends!([opencl vulkan] {
    a_model_larger_than_its_memory_runs_bit_for_bit_and_moves_what_was_said
    other_shapes_and_other_models_take_turns_in_the_same_memory
    threads_share_memory_that_has_room_for_one_run
    memory_that_is_out_at_any_request_leaves_a_usable_session
    weights_beyond_the_hosts_limit_lie_on_disk_and_come_from_there
});

const LAYERS: usize = 6;
const WIDTH: usize = 160;

/// Numbers that look random, and are the same each time.
fn noise(seed: usize, count: usize) -> Vec<f32> {
    let mix = |i: usize| (i + 7919 * seed + 1).wrapping_mul(2_654_435_761) % 1_000_003;
    (0..count).map(|i| mix(i) as f32 / 1_000_003. - 0.5).collect()
}

/// Layers of 100 KiB each. The last layer reads the first one's weights again, and each layer's
/// result is also added to that of the next but one.
fn model() -> Result<Model> {
    let mut g = GraphBuilder::new("layers");
    let mut x = g.input("x", f32_type(&[None, Some(WIDTH)]));
    let mut weights = Vec::new();
    let mut before = x;
    for layer in 0..LAYERS {
        let matrix = Tensor::from_slice([WIDTH, WIDTH], &noise(layer, WIDTH * WIDTH))?;
        let bias = Tensor::from_slice([WIDTH], &noise(layer + 100, WIDTH))?;
        weights.push(g.initializer(format!("w{layer}"), matrix));
        let bias = g.initializer(format!("b{layer}"), bias);
        let weight = weights[if layer + 1 == LAYERS { 0 } else { layer }];
        let product = g.node("MatMul", &[x, weight], []);
        let sum = g.node("Add", &[product, bias], []);
        let sum = g.node("Add", &[sum, before], []);
        before = x;
        x = g.node("Tanh", &[sum], []);
    }
    let y = g.node("Softmax", &[x], []);
    g.output("y", y, f32_type(&[None, Some(WIDTH)]));
    g.finish()
}

fn session(accelerator: &Accelerator) -> Result<Session> {
    Session::on_device(model()?, SessionOptions::with_threads(1), accelerator.clone())
}

fn input(rows: usize) -> Result<Tensor> {
    Ok(Tensor::from_slice([rows, WIDTH], &noise(rows + 1000, rows * WIDTH))?)
}

fn run(session: &Session, rows: usize) -> Result<Vec<NamedTensor>> {
    session.run(&[("x", input(rows)?.view())])
}

fn report(session: &Session, rows: usize) -> Result<DeviceMemoryReport> {
    let report = session.device_memory(&[("x", Shape::from([rows, WIDTH]))])?;
    Ok(report.expect("it is on a device"))
}

/// The bytes that `f` moves over the link.
fn moved<T>(accelerator: &Accelerator, f: impl FnOnce() -> Result<T>) -> Result<(T, Traffic)> {
    let before = accelerator.traffic();
    let value = f()?;
    let after = accelerator.traffic();
    let to_device_bytes = after.to_device_bytes - before.to_device_bytes;
    let to_host_bytes = after.to_host_bytes - before.to_host_bytes;
    Ok((value, Traffic { to_device_bytes, to_host_bytes }))
}

fn a_model_larger_than_its_memory_runs_bit_for_bit_and_moves_what_was_said(
    device: Arc<dyn Device>,
) -> Result<()> {
    let free = Accelerator::new(Arc::clone(&device))?;
    let whole = session(&free)?;
    let wanted = run(&whole, 3)?;
    let all = report(&whole, 3)?;
    assert_eq!((all.fits, all.streamed_bytes), (true, 0));
    assert!(all.resident_bytes > 5 * WIDTH * WIDTH * 4, "{all:?}");
    assert!(all.smallest_bytes * 3 < all.resident_bytes, "{all:?}");
    let full = all.resident_bytes + all.arena_bytes;
    let mut streamed = Vec::new();
    for limit in [all.smallest_bytes, full / 3, full / 2, full * 2 / 3, full * 9 / 10, 2 * full] {
        let accelerator = Accelerator::with_memory(Arc::clone(&device), limit)?;
        let session = session(&accelerator)?;
        let said = report(&session, 3)?;
        assert!(said.fits && said.limit_bytes <= limit, "{said:?}");
        let (first, loaded) = moved(&accelerator, || run(&session, 3))?;
        assert_eq!(first, wanted, "within {limit}");
        let load = loaded.to_device_bytes - said.to_device_bytes as u64;
        assert_eq!(load, said.resident_bytes as u64, "within {limit}");
        for _ in 0..3 {
            let (again, each) = moved(&accelerator, || run(&session, 3))?;
            assert_eq!(again, wanted, "within {limit}");
            assert_eq!(each.to_device_bytes, said.to_device_bytes as u64, "within {limit}");
            assert_eq!(each.to_host_bytes, said.to_host_bytes as u64, "within {limit}");
        }
        let stats = accelerator.pool().stats();
        assert!(stats.reserved_high_water_bytes <= limit, "{stats:?}");
        assert_eq!(stats.failures, 0, "{stats:?}");
        streamed.push(said.streamed_bytes);
    }
    assert!(streamed.is_sorted_by(|a, b| a >= b), "more room, less to move: {streamed:?}");
    assert!(streamed[0] > 0 && streamed[3] > 0 && streamed[5] == 0, "{streamed:?}");

    let accelerator = Accelerator::with_memory(device, all.smallest_bytes - 512)?;
    let session = session(&accelerator)?;
    assert!(!report(&session, 3)?.fits);
    match run(&session, 3) {
        Err(error @ Error::DeviceTooSmall { smallest_bytes, .. }) => {
            assert_eq!(smallest_bytes, all.smallest_bytes);
            let text = error.to_string();
            assert!(text.contains("bytes for weights") && text.contains("bytes for values"));
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn other_shapes_and_other_models_take_turns_in_the_same_memory(
    device: Arc<dyn Device>,
) -> Result<()> {
    let free = Accelerator::new(Arc::clone(&device))?;
    let whole = session(&free)?;
    let said = report(&whole, 1)?;
    // Room for one of the models, but not with a batch of 150 rows.
    let limit = said.resident_bytes + said.arena_bytes + 200_000;
    let accelerator = Accelerator::with_memory(device, limit)?;
    let sessions = [session(&accelerator)?, session(&accelerator)?];
    for (turn, rows) in [1usize, 150, 2, 1, 150, 1].into_iter().enumerate() {
        let session = &sessions[turn % 2];
        assert_eq!(run(session, rows)?, run(&whole, rows)?, "{rows} rows");
    }
    assert_eq!(report(&sessions[0], 1)?.streamed_bytes, 0);
    assert!(report(&sessions[0], 150)?.streamed_bytes > 0);
    Ok(())
}

fn threads_share_memory_that_has_room_for_one_run(device: Arc<dyn Device>) -> Result<()> {
    let whole = session(&Accelerator::new(Arc::clone(&device))?)?;
    let said = report(&whole, 64)?;
    for limit in [said.smallest_bytes, said.resident_bytes + said.arena_bytes + 16_384] {
        let accelerator = Accelerator::with_memory(Arc::clone(&device), limit)?;
        let session = session(&accelerator)?;
        let wanted = run(&whole, 64)?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..4).map(|_| run(&session, 64)).collect::<Vec<_>>()))
                .collect();
            for outputs in threads.into_iter().flat_map(|thread| thread.join().expect("no panic")) {
                assert_eq!(outputs.expect("it waits for its turn"), wanted);
            }
        });
    }
    Ok(())
}

/// Each request for memory is refused, alone or with all later ones. A run then fails with a table
/// or succeeds without the memory, and the next run is right.
fn memory_that_is_out_at_any_request_leaves_a_usable_session(
    device: Arc<dyn Device>,
) -> Result<()> {
    let whole = session(&Accelerator::new(Arc::clone(&device))?)?;
    let (wanted, said) = (run(&whole, 3)?, report(&whole, 3)?);
    let mut tables = 0;
    for limit in [said.smallest_bytes + 200_000, 4 << 20] {
        let refusing = Arc::new(RefusingDevice::new(Arc::clone(&device)));
        // Each range is a buffer of its own that returns at once, so the device gets every request.
        let limits = SegmentLimits::of_device(refusing.caps(), limit);
        let limits = SegmentLimits { segment_bytes: 4096, idle_bytes_max: 0, ..limits };
        let fresh = || Accelerator::with_limits(Arc::clone(&refusing) as _, limits);
        let shared = fresh()?;
        run(&session(&fresh()?)?, 3)?;
        let asked = refusing.asked();
        assert!(asked > 10, "{asked} requests");
        for from in 0..asked {
            for until in [from + 1, usize::MAX] {
                // Only a fresh accelerator asks for pinned memory, but it has no kernels yet.
                let once = until < usize::MAX && limit < 4 << 20;
                let session = session(&if once { fresh()? } else { shared.clone() })?;
                refusing.refuse(from..until);
                match run(&session, 3) {
                    Ok(outputs) => assert_eq!(outputs, wanted, "request {from}"),
                    Err(error) => {
                        let text = error.to_string();
                        assert!(text.contains("out of memory"), "request {from}: {text}");
                        tables += usize::from(text.contains("held by"));
                    }
                }
                refusing.refuse(0..0);
                assert_eq!(run(&session, 3)?, wanted, "after request {from}");
            }
        }
    }
    assert!(tables > 0);
    Ok(())
}

fn weights_beyond_the_hosts_limit_lie_on_disk_and_come_from_there(
    device: Arc<dyn Device>,
) -> Result<()> {
    let whole = session(&Accelerator::new(Arc::clone(&device))?)?;
    let (wanted, said) = (run(&whole, 3)?, report(&whole, 3)?);
    assert_eq!((said.disk_bytes, said.from_disk_bytes), (0, 0));
    let folder = tempfile::tempdir().expect("there is room");
    for limit in [said.smallest_bytes, 4 << 20] {
        let accelerator = Accelerator::with_memory(Arc::clone(&device), limit)?;
        accelerator.limit_host(150_000, folder.path())?;
        let session = session(&accelerator)?;
        let spilled = report(&session, 3)?;
        assert!(spilled.host_bytes <= 150_000, "{spilled:?}");
        assert_eq!(spilled.host_bytes + spilled.disk_bytes, said.host_bytes);
        let from_disk = spilled.weights.iter().filter(|w| w.on_disk && !w.stays);
        let from_disk: usize = from_disk.map(|weight| weight.bytes).sum();
        assert!(spilled.from_disk_bytes >= from_disk, "a weight may come twice: {spilled:?}");
        assert_eq!(spilled.from_disk_bytes > 0, limit < 4 << 20);
        for _ in 0..2 {
            assert_eq!(run(&session, 3)?, wanted);
        }
    }
    Ok(())
}
