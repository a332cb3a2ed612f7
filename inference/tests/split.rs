//! A model over two devices: two of OpenCL, for which PoCL is asked, and one of each backend.

use lgp_compute::device::Accelerator;
use lgp_hal::{BackendKind, DeviceId};
use lgp_inference::{
    Attr, Error, GraphBuilder, Model, Placement, Profile, RunOptions, Session, SessionOptions,
};
use lgp_memory::{DType, Dim, NamedTensor, Shape, SymShape, Tensor, TensorType};
use std::process::Command;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LAYERS: usize = 6;
const WIDTH: usize = 64;
/// Weights of one layer.
const LAYER_BYTES: usize = WIDTH * WIDTH * 4;

/// Layers of a product, a sum with the layer before and a ReLU. Other outputs are the first layer's
/// value, the input itself, and a constant.
fn model() -> Result<Model> {
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(WIDTH)]);
    let ty = TensorType { dtype: DType::F32, shape: Some(shape) };
    let mut g = GraphBuilder::new("layers");
    let x = g.input("x", ty.clone());
    let mut state = 1u32;
    let mut last = x;
    let mut first = None;
    for layer in 0..LAYERS {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1u32 << 26) as f32 - 0.125
        };
        let weights: Vec<f32> = (0..WIDTH * WIDTH).map(|_| next()).collect();
        let tensor = Tensor::from_slice([WIDTH, WIDTH], &weights)?;
        let weights = g.initializer(format!("w{layer}").as_str(), tensor);
        let product = g.node("MatMul", &[last, weights], []);
        let sum = g.node("Add", &[product, last], []);
        last = g.node("Relu", &[sum], []);
        first.get_or_insert(last);
    }
    let constant = g.initializer("constant", Tensor::from_slice([2], &[1f32, 2.])?);
    let constant = g.node("Cast", &[constant], [("to", Attr::from(1))]);
    g.output("y", last, ty.clone());
    g.output("first", first.ok_or("there are layers")?, ty.clone());
    g.output("x again", x, ty);
    let pair = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Known(2)])) };
    g.output("c", constant, pair);
    Ok(g.finish()?)
}

fn input(rows: usize) -> Result<Tensor> {
    let data: Vec<f32> = (0..rows * WIDTH).map(|i| (i % 17) as f32 / 16. - 0.5).collect();
    Ok(Tensor::from_slice([rows, WIDTH], &data)?)
}

/// A device, as if it had `bytes` of memory.
fn device(id: DeviceId, bytes: usize) -> Result<Accelerator> {
    Ok(Accelerator::with_memory(lgp_hal::open(id)?, bytes)?)
}

fn run(session: &Session, rows: usize) -> Result<Vec<NamedTensor>> {
    Ok(session.run(&[("x", input(rows)?.view())])?)
}

fn places(session: &Session) -> lgp_inference::Result<Vec<Placement>> {
    session.placement(&[("x", Shape::from([4, WIDTH]))])
}

/// Outputs that differ by no more than the rounding of sums: devices add in orders of their own.
fn agree(a: &[NamedTensor], b: &[NamedTensor]) -> Result {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        let (name, a, b) = (&a.name, a.tensor.as_slice::<f32>()?, b.tensor.as_slice::<f32>()?);
        assert_eq!(a.len(), b.len(), "{name}");
        let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs().max(1.);
        assert!(a.iter().zip(b).all(near), "{name}: {a:?} {b:?}");
    }
    Ok(())
}

/// The devices of the products, in order.
fn products(session: &Session) -> Result<Vec<String>> {
    let places = places(session)?;
    let products = places.into_iter().filter(|place| place.op.starts_with("MatMul"));
    Ok(products.map(|place| place.device).collect())
}

#[test]
fn a_model_that_fits_no_device_alone_runs_on_two() -> Result {
    const DEVICES: (&str, &str) = ("POCL_DEVICES", "pthread pthread");
    if std::env::var(DEVICES.0).is_ok_and(|given| given == DEVICES.1) {
        return on_two_devices([0, 1].map(|number| DeviceId::new(BackendKind::OpenCl, number)));
    }
    // PoCL reads its environment when it is loaded, so the test needs a process of its own.
    let mut again = Command::new(std::env::current_exe()?);
    let again = again.args(["a_model_that_fits_no_device_alone_runs_on_two", "--exact"]);
    let output = again.arg("--nocapture").env(DEVICES.0, DEVICES.1).output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
    out.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("{line}"));
    Ok(())
}

#[test]
fn a_model_that_fits_no_device_alone_runs_on_those_of_two_backends() -> Result {
    let backends = [BackendKind::Vulkan, BackendKind::OpenCl];
    on_two_devices(backends.map(|backend| DeviceId::new(backend, 0)))
}

fn on_two_devices(ids: [DeviceId; 2]) -> Result {
    let all = LAYERS * LAYER_BYTES + 64 * 1024;
    for id in ids {
        if let Err(reason) = device(id, all) {
            println!("skipped: {}: {reason}", id.backend);
            return Ok(());
        }
    }
    let whole = device(ids[0], all)?;
    let model = model()?;
    let options = || SessionOptions::with_threads(1);
    let devices = |bytes: usize| -> Result<Vec<Accelerator>> {
        Ok(vec![device(ids[0], bytes)?, device(ids[1], bytes)?])
    };
    let alone = Session::on_device(&model, options(), whole)?;
    // Room for four layers of six.
    let split = Session::on_devices(&model, options(), devices(9 * LAYER_BYTES / 2)?)?;
    for rows in [4, 1, 4] {
        agree(&run(&split, rows)?, &run(&alone, rows)?)?;
    }
    let where_products = products(&split)?;
    assert_eq!(where_products.len(), LAYERS);
    let names = ids.map(|id| id.to_string());
    assert!(where_products.is_sorted_by_key(|name| name == &names[1]), "{where_products:?}");
    assert_eq!([&where_products[0], &where_products[LAYERS - 1]], [&names[0], &names[1]]);
    // With room for all, one device is enough.
    let roomy = Session::on_devices(&model, options(), devices(all)?)?;
    assert_eq!(products(&roomy)?, vec![&*names[0]; LAYERS]);
    agree(&run(&roomy, 4)?, &run(&alone, 4)?)?;
    // With room for two layers on each, there is no cut.
    let small = Session::on_devices(&model, options(), devices(5 * LAYER_BYTES / 2)?)?;
    let refusal = places(&small).expect_err("there is no cut");
    assert!(matches!(refusal, Error::NoCut { .. }), "{refusal}");
    let wanted = format!("{} bytes of weights", LAYERS * LAYER_BYTES);
    assert!(refusal.to_string().contains(&wanted), "{refusal}");
    assert!(run(&small, 4).is_err());
    let mut profile = Profile::default();
    split.run_with(&[("x", input(4)?.view())], RunOptions::new().profile(&mut profile))?;
    assert_eq!(profile.nodes.len(), places(&split)?.len());
    Ok(())
}
