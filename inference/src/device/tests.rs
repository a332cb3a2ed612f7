//! Sessions on a device, where OpenCL has one.

use crate::passes::tests::f32_type;
use crate::{Attr, GraphBuilder, Model, Result, Session, SessionOptions};
use lgp_compute::device::Accelerator;
use lgp_hal::{BackendKind, DeviceId};
use lgp_memory::{Shape, Tensor};

fn accelerator() -> Option<Accelerator> {
    let opened = lgp_hal::open(DeviceId::new(BackendKind::OpenCl, 0));
    match opened.map_err(|error| error.to_string()) {
        Ok(device) => Some(Accelerator::new(device).expect("it passed its self-test")),
        Err(reason) => {
            println!("skipped: opencl: {reason}");
            None
        }
    }
}

/// `y = relu(x · 2 + [n])`, transposed; `z = cumsum(y) - mean(y)`: the sum has no kernel.
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
    let sum = g.node("CumSum", &[y, axis], []);
    let mean = g.node("ReduceMean", &[y], [("axes", Attr::from([1]))]);
    let z = g.node("Sub", &[sum, mean], []);
    g.output("z", z, f32_type(&[Some(4), None]));
    g.finish()
}

#[test]
fn what_has_no_kernels_runs_on_the_cpu_and_all_agrees() -> Result<()> {
    let Some(accelerator) = accelerator() else { return Ok(()) };
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
    assert_eq!(on_host, ["CumSum"]);
    let reason = places.iter().find_map(|p| p.reason.as_deref());
    assert_eq!(reason, Some("no kernels for f32 [4,3], i64 []"));
    let names: Vec<&str> = places.iter().map(|p| p.op.as_str()).collect();
    assert!(!names.contains(&"Shape"), "{names:?}: what shapes make constant is computed once");
    Ok(())
}

#[test]
fn a_profile_has_each_node() -> Result<()> {
    let Some(accelerator) = accelerator() else { return Ok(()) };
    let device = Session::on_device(model()?, SessionOptions::with_threads(1), accelerator)?;
    let x = Tensor::from_slice([1, 4], &[1f32; 4])?;
    let (_, profile) = device.profile(&[("x", x.view())])?;
    let places = device.placement(&[("x", Shape::from([1, 4]))])?;
    assert_eq!(profile.nodes.len(), places.len());
    Ok(())
}
