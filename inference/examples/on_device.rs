//! Models on a device and on the CPU: `on_device DEVICE MODEL.onnx…` runs each in both places on
//! the same numbers, and prints how many nodes the device left to the CPU, which ones, the largest
//! difference over the largest magnitude, and the milliseconds of the device's second run.
//!
//! Of several devices, `DEVICE,DEVICE…`, each is given as few tenths of the memory that the model
//! takes as there is a cut for; what comes out must then be what the first device alone answers, to
//! the bit.

use lgp_compute::device::Accelerator;
use lgp_hal::{Device, DeviceId};
use lgp_inference::{Model, Session, SessionOptions};
use lgp_memory::{DType, Dim, NamedTensor, Shape, Tensor, TensorView};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The largest relative difference that is no failure.
const LIMIT: f32 = 1e-3;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, models @ ..] = args.as_slice() else {
        eprintln!("usage: on_device DEVICE MODEL.onnx…");
        return ExitCode::FAILURE;
    };
    let open = |id: &str| id.parse::<DeviceId>().and_then(lgp_hal::open);
    let opened: Vec<Arc<dyn Device>> = match device.split(',').map(open).collect() {
        Ok(opened) => opened,
        Err(error) => {
            println!("skipped: {device}: {error}");
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = false;
    for model in models {
        match compare(model, &opened) {
            Ok((line, good)) => {
                println!("{} {model}: {line}", if good { "ok" } else { "FAILED" });
                failed |= !good;
            }
            Err(error) => {
                println!("FAILED {model}: {error}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}

fn compare(path: &str, opened: &[Arc<dyn Device>]) -> Result<(String, bool)> {
    let model = Model::load(path)?;
    let cpu = Session::new(&model, SessionOptions::default())?;
    let mut device = Session::on_device(
        &model,
        SessionOptions::default(),
        Accelerator::new(opened[0].clone())?,
    )?;
    let inputs = inputs(&device)?;
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|x| (x.name.as_str(), x.tensor.view())).collect();
    let shapes: Vec<(&str, Shape)> =
        views.iter().map(|(name, x)| (*name, x.shape().clone())).collect();
    let mut same = true;
    if opened.len() > 1 {
        let alone = device.run(&views)?;
        let bytes = device.memory(&shapes)?.peak_bytes / 10;
        device = (5..10)
            .map(|tenths| split(&model, opened, bytes * tenths))
            .find(|cut| cut.as_ref().is_ok_and(|cut| cut.placement(&shapes).is_ok()))
            .ok_or("it is not cut for nine tenths of its memory")??;
        same = device.run(&views)? == alone;
    }
    let places = device.placement(&shapes)?;
    let left: Vec<String> = places
        .iter()
        .filter_map(|place| Some(format!("{} ({})", place.op, place.reason.as_ref()?)))
        .collect();
    let wanted = cpu.run(&views)?;
    device.run(&views)?;
    let start = Instant::now();
    let given = device.run(&views)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let mut worst = 0f32;
    for (given, wanted) in given.iter().zip(&wanted) {
        worst = worst.max(difference(&given.tensor, &wanted.tensor)?);
    }
    let (nodes, count) = (places.len(), left.len());
    let left = if left.is_empty() { String::new() } else { format!(": {}", left.join(", ")) };
    let mut line = format!("{nodes} nodes, {count} on the CPU{left}; {worst:.2e} off; {ms:.1} ms");
    for id in opened.iter().map(|device| device.id().to_string()).skip_while(|_| opened.len() == 1)
    {
        let own = places.iter().filter(|place| place.device == id).count();
        line += &format!("; {own} on {id}");
        same &= own > 0;
    }
    line += if same { "" } else { "; NOT as one device does it" };
    Ok((line, same && worst <= LIMIT))
}

/// The model on devices of so many bytes each.
fn split(model: &Model, opened: &[Arc<dyn Device>], bytes: usize) -> Result<Session> {
    let limited = |device: &Arc<dyn Device>| Accelerator::with_memory(device.clone(), bytes);
    let limited = opened.iter().map(limited).collect::<lgp_compute::Result<_>>()?;
    Ok(Session::on_devices(model, SessionOptions::default(), limited)?)
}

/// Numbers that look random, of the declared types. Unknown dimensions are 1, lengths of sequences
/// 16, sides of images 64.
fn inputs(session: &Session) -> Result<Vec<NamedTensor>> {
    let size = |dim: &Dim| match dim {
        Dim::Known(n) => *n,
        Dim::Symbol(name) if name.contains("seq") => 16,
        Dim::Symbol(name) if matches!(&**name, "height" | "width") => 64,
        _ => 1,
    };
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut inputs = Vec::new();
    for spec in session.inputs() {
        let dims = spec.ty.shape.as_ref().ok_or("an input has no shape")?;
        let shape: Vec<usize> = dims.0.iter().map(size).collect();
        let count: usize = shape.iter().product();
        let tensor = match spec.ty.dtype {
            DType::F32 => {
                let data: Vec<f32> = (0..count).map(|_| next() as f32 / 8_388_608. - 1.).collect();
                Tensor::from_slice(shape, &data)?
            }
            DType::I64 => {
                let most =
                    if spec.name.contains("type") || spec.name.contains("mask") { 2 } else { 100 };
                let data: Vec<i64> = (0..count).map(|_| i64::from(next()) % most).collect();
                Tensor::from_slice(shape, &data)?
            }
            other => return Err(format!("input '{}' is {other}", spec.name).into()),
        };
        inputs.push(NamedTensor::new(spec.name.clone(), tensor));
    }
    Ok(inputs)
}

fn difference(given: &Tensor, wanted: &Tensor) -> Result<f32> {
    if wanted.dtype() != DType::F32 {
        return Ok(if given == wanted { 0. } else { f32::INFINITY });
    }
    let (a, b) = (given.as_slice::<f32>()?, wanted.as_slice::<f32>()?);
    let largest = b.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let worst = a.iter().zip(b).fold(0f32, |worst, (a, b)| worst.max((a - b).abs()));
    let same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_nan() == b.is_nan());
    Ok(if same { worst / largest } else { f32::INFINITY })
}
