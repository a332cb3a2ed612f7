//! Sessions on a device.

mod memory;
mod tune;

use crate::passes::tests::f32_type;
use crate::{
    Attr, GraphBuilder, Model, Profile, Result, RunOptions, Session, SessionOptions, Stop,
};
use lgp_compute::device::Accelerator;
use lgp_hal::Device;
use lgp_memory::{Shape, Tensor};
use std::sync::Arc;
use std::time::Instant;

lgp_hal::on_backends!([opencl vulkan] {
    what_has_no_kernels_runs_on_the_cpu_and_all_agrees
    a_profile_has_each_node
    weights_take_no_more_memory_on_a_device_than_they_need
    a_long_run_ends_soon_after_it_is_asked_to
});

/// `y = relu(x · 2 + [n])`, transposed; `z = hardmax(y) - mean(y)`. Hardmax has no kernel.
fn model() -> Result<Model> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", f32_type(&[None, Some(4)]));
    let two = g.initializer("two", Tensor::scalar(2f32)?);
    let axis = g.initializer("axis", Tensor::scalar(0i64)?);
    let a = g.node("Mul", &[x, two], []);
    let shape = g.node("Shape", &[x], []);
    let rows = g.node("Gather", &[shape, axis], []);
    let rows = g.node("Cast", &[rows], [("to", Attr::from(1))]);
    let a = g.node("Add", &[a, rows], []);
    let a = g.node("Relu", &[a], []);
    let y = g.node("Transpose", &[a], []);
    g.output("y", y, f32_type(&[Some(4), None]));
    let hard = g.node("Hardmax", &[y], [("axis", Attr::from(0))]);
    let mean = g.node("ReduceMean", &[y], [("axes", Attr::from([1]))]);
    let z = g.node("Sub", &[hard, mean], []);
    g.output("z", z, f32_type(&[Some(4), None]));
    g.finish()
}

fn what_has_no_kernels_runs_on_the_cpu_and_all_agrees(device: Arc<dyn Device>) -> Result<()> {
    let accelerator = Accelerator::new(device)?;
    let model = model()?;
    let cpu = Session::new(&model, SessionOptions::with_threads(1))?;
    let device = Session::on_device(&model, SessionOptions::with_threads(1), accelerator)?;
    for rows in [3usize, 5, 3] {
        let data: Vec<f32> = (0..rows * 4).map(|i| i as f32 - 7.).collect();
        let x = Tensor::from_slice([rows, 4], &data)?;
        assert_eq!(device.run(&[("x", x.view())])?, cpu.run(&[("x", x.view())])?);
    }
    let places = device.placement(&[("x", Shape::from([3, 4]))])?;
    let on_host: Vec<&str> =
        places.iter().filter(|p| p.device == "cpu").map(|p| p.op.as_str()).collect();
    assert_eq!(on_host, ["Hardmax"]);
    let reason = places.iter().find_map(|p| p.reason.as_deref());
    assert_eq!(reason, Some("no kernels for f32 [4,3]"));
    let names: Vec<&str> = places.iter().map(|p| p.op.as_str()).collect();
    assert!(!names.contains(&"Shape"), "{names:?}: what shapes make constant is computed once");
    Ok(())
}

fn a_profile_has_each_node(device: Arc<dyn Device>) -> Result<()> {
    let accelerator = Accelerator::new(device)?;
    let device = Session::on_device(model()?, SessionOptions::with_threads(1), accelerator)?;
    let x = Tensor::from_slice([1, 4], &[1f32; 4])?;
    let mut profile = Profile::default();
    device.run_with(&[("x", x.view())], RunOptions::new().profile(&mut profile))?;
    let places = device.placement(&[("x", Shape::from([1, 4]))])?;
    assert_eq!(profile.nodes.len(), places.len());
    Ok(())
}

/// Weights of bytes with a scale for each column, and weights of few elements.
fn weights_take_no_more_memory_on_a_device_than_they_need(device: Arc<dyn Device>) -> Result<()> {
    let accelerator = Accelerator::new(device)?;
    let bytes: Vec<i8> = (0..64 * 48).map(|i| i8::try_from(i % 200 - 100).unwrap_or(0)).collect();
    let scales: Vec<f32> = (1..=48u8).map(|i| f32::from(i) / 4096.).collect();
    let few: Vec<f32> = (0..48 * 40u16).map(|i| f32::from(u8::from(i % 23 == 0))).collect();
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", f32_type(&[None, Some(64)]));
    let w = g.initializer("w", Tensor::from_slice([64, 48], &bytes)?);
    let scale = g.initializer("scale", Tensor::from_slice([48], &scales)?);
    let few = g.initializer("few", Tensor::from_slice([48, 40], &few)?);
    let w = g.node("DequantizeLinear", &[w, scale], [("axis", Attr::from(1))]);
    let y = g.node("MatMul", &[x, w], []);
    let z = g.node("MatMul", &[y, few], []);
    g.output("z", z, f32_type(&[None, Some(40)]));
    let model = g.finish()?;
    let cpu = Session::new(&model, SessionOptions::with_threads(1))?;
    let device = Session::on_device(&model, SessionOptions::with_threads(1), accelerator)?;
    let data: Vec<f32> = (0..3 * 64).map(|i| i as f32 / 100. - 1.).collect();
    let x = Tensor::from_slice([3, 64], &data)?;
    let (given, want) = (device.run(&[("x", x.view())])?, cpu.run(&[("x", x.view())])?);
    let (given, want) = (given[0].tensor.as_slice::<f32>()?, want[0].tensor.as_slice::<f32>()?);
    for (given, want) in given.iter().zip(want) {
        assert!((given - want).abs() <= 1e-4 * want.abs().max(1.), "{given}, expected {want}");
    }
    let places = device.placement(&[("x", Shape::from([3, 64]))])?;
    let names: Vec<&str> = places.iter().map(|p| p.op.as_str()).collect();
    assert_eq!(names, ["MatMulStored", "MatMulSparse"]);
    assert!(places.iter().all(|p| p.device != "cpu"), "{places:?}");
    Ok(())
}

/// Queued work cannot be taken back, so a run that may be stopped does not queue all nodes.
fn a_long_run_ends_soon_after_it_is_asked_to(device: Arc<dyn Device>) -> Result<()> {
    let accelerator = Accelerator::new(device)?;
    let mut g = GraphBuilder::new("chain");
    let ty = f32_type(&[Some(1), Some(16), Some(64), Some(64)]);
    let mut x = g.input("x", ty.clone());
    let weights = g.initializer("w", Tensor::from_slice([16, 16, 3, 3], &[0.01f32; 2304])?);
    for _ in 0..150 {
        x = g.node("Conv", &[x, weights], [("pads", Attr::from([1, 1, 1, 1]))]);
    }
    g.output("y", x, ty);
    let session = Session::on_device(g.finish()?, SessionOptions::with_threads(1), accelerator)?;
    let x = Tensor::zeros(lgp_memory::DType::F32, [1, 16, 64, 64])?;
    let inputs = [("x", x.view())];
    // The first run compiles kernels.
    session.run_with(&inputs, RunOptions::new().until(&Stop::new()))?;
    let start = Instant::now();
    session.run_with(&inputs, RunOptions::new().until(&Stop::new()))?;
    let whole = start.elapsed();
    let stop = Stop::new();
    let stopped = std::thread::scope(|scope| {
        let run = scope.spawn(|| session.run_with(&inputs, RunOptions::new().until(&stop)));
        std::thread::sleep(whole / 20);
        stop.stop();
        let asked = Instant::now();
        let stopped = run.join().expect("the run does not panic");
        // The device is idle too, not only the host.
        session.accelerator().map(Accelerator::finish).transpose()?;
        println!("of {whole:?} it ran on for {:?}", asked.elapsed());
        assert!(asked.elapsed() < whole / 2, "{:?} of {whole:?}", asked.elapsed());
        Ok::<_, crate::Error>(stopped)
    })?;
    assert!(matches!(stopped, Err(crate::Error::Stopped(_))), "{stopped:?}");
    Ok(())
}
