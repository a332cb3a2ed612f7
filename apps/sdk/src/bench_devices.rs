//! How fast a device is: copies over its link, and the two operators that most models consist of,
//! as sessions run them.

use crate::measure::data;
use crate::random::Random;
use lgp_compute::device::Accelerator;
use lgp_hal::Device;
use lgp_inference::{Attr, Error, GraphBuilder, Model, SessionOptions};
use lgp_memory::{DType, NamedTensor, Shape, Tensor, TensorType};
use std::time::{Duration, Instant};

/// Nodes of the models that are measured: the first of a run may wait for what is not the kernel.
const NODES: usize = 4;

/// Copies between the host's memory and a device's, in 10⁹ bytes a second, one value a copy.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Copies {
    /// From the host to the device.
    pub to_gb_per_s: Vec<f64>,
    /// From the device to the host.
    pub from_gb_per_s: Vec<f64>,
}

/// Copies `bytes` bytes to a device and back, once to warm up and then `runs` times, from ordinary
/// memory as tensors lie in it. On the CPU it is a copy within its memory.
///
/// # Errors
/// [`lgp_hal::Error::OutOfMemory`], or the driver's refusal.
///
/// ```
/// let device = lgp_sdk::open(lgp_sdk::DeviceId::CPU)?;
/// let copies = lgp_sdk::measure_copies(&*device, 1 << 20, 3)?;
/// assert!(copies.to_gb_per_s.len() == 3 && copies.from_gb_per_s.iter().all(|rate| *rate > 0.));
/// # Ok::<(), lgp_sdk::DeviceError>(())
/// ```
pub fn measure_copies(
    device: &dyn Device,
    bytes: usize,
    runs: u32,
) -> Result<Copies, lgp_hal::Error> {
    let buffer = device.allocate(bytes)?;
    let mut queue = device.queue()?;
    let mut host = vec![0x5a; bytes];
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9;
    let mut copies = Copies::default();
    for run in 0..=runs {
        let begin = Instant::now();
        queue.write(&*buffer, 0, &host)?;
        queue.finish()?;
        let there = begin.elapsed();
        let begin = Instant::now();
        queue.read(&*buffer, 0, &mut host)?;
        queue.finish()?;
        let back = begin.elapsed();
        if run > 0 {
            copies.to_gb_per_s.push(rate(there));
            copies.from_gb_per_s.push(rate(back));
        }
    }
    Ok(copies)
}

/// Products of two square matrices of `size`² f32 each, in 10⁹ additions and multiplications a second,
/// a value a run: a node of a model on the device, or on the CPU where there is none, with its launch
/// and without copies of its inputs.
///
/// # Errors
/// As [`lgp_inference::Session::on_device`] and `run_data` of the same, out of memory included.
pub fn measure_gemm(
    accelerator: Option<Accelerator>,
    size: usize,
    runs: u32,
) -> Result<Vec<f64>, Error> {
    let shape = [size, size];
    // So that products of products stay of the size of their factors.
    let weight = random(&shape, (3. / size.max(1) as f32).sqrt())?;
    let model = chain("gemm", &shape, |g, x| {
        let weight = g.initializer("weight", weight.clone());
        (0..NODES).fold(x, |x, _| g.node("MatMul", &[x, weight], []))
    })?;
    let flops = 2. * (size as f64).powi(3);
    rates(accelerator, &model, &shape, flops, runs)
}

/// Convolutions of 3 × 3 over an image of `side`² with `channels` channels, which stay as many, with the
/// unit of [`measure_gemm`].
///
/// # Errors
/// As [`measure_gemm`].
pub fn measure_conv(
    accelerator: Option<Accelerator>,
    channels: usize,
    side: usize,
    runs: u32,
) -> Result<Vec<f64>, Error> {
    let shape = [1, channels, side, side];
    let scale = (3. / (9 * channels).max(1) as f32).sqrt();
    let weight = random(&[channels, channels, 3, 3], scale)?;
    let model = chain("conv", &shape, |g, x| {
        let weight = g.initializer("weight", weight.clone());
        let pads = || [("pads", Attr::from([1, 1, 1, 1]))];
        (0..NODES).fold(x, |x, _| g.node("Conv", &[x, weight], pads()))
    })?;
    let flops = 2. * 9. * (channels * channels * side * side) as f64;
    rates(accelerator, &model, &shape, flops, runs)
}

/// A model whose output has the type of its input.
fn chain(
    name: &str,
    shape: &[usize],
    nodes: impl FnOnce(&mut GraphBuilder, lgp_inference::Value) -> lgp_inference::Value,
) -> Result<Model, Error> {
    let ty = TensorType::concrete(DType::F32, &Shape::from(shape));
    let mut g = GraphBuilder::new(name);
    let x = g.input("x", ty.clone());
    let y = nodes(&mut g, x);
    g.output("y", y, ty);
    g.finish()
}

/// Of each run, the node in the middle of those that calculate.
fn rates(
    accelerator: Option<Accelerator>,
    model: &Model,
    shape: &[usize],
    flops: f64,
    runs: u32,
) -> Result<Vec<f64>, Error> {
    let session = crate::session(model, SessionOptions::default(), accelerator)?;
    let inputs = [NamedTensor::new("x", random(shape, 1.)?)];
    session.run_data(data(&inputs))?;
    let rate = |_| {
        let (_, profile) = session.profile_data(data(&inputs))?;
        // Passes may put nodes that move elements before and after them: the slowest ones calculate.
        let mut times: Vec<Duration> = profile.nodes.iter().map(|node| node.duration).collect();
        times.sort_unstable();
        let time = times.get(times.len().saturating_sub(NODES / 2)).copied().unwrap_or_default();
        Ok(flops / time.as_secs_f64().max(1e-9) / 1e9)
    };
    (0..runs).map(rate).collect()
}

/// Numbers from `-scale` to `scale`, always the same.
fn random(shape: &[usize], scale: f32) -> Result<Tensor, Error> {
    let mut tensor = Tensor::zeros(DType::F32, shape)?;
    let mut random = Random::default();
    tensor.as_mut_slice::<f32>()?.fill_with(|| scale * (2. * random.uniform() - 1.));
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_inference::Session;

    #[test]
    fn the_processor_has_a_speed() {
        let device = lgp_hal::open(lgp_hal::DeviceId::CPU).expect("everywhere");
        let copies = measure_copies(&*device, 100_000, 2).expect("there is memory");
        assert_eq!([copies.to_gb_per_s.len(), copies.from_gb_per_s.len()], [2, 2]);
        for rates in [measure_gemm(None, 64, 3), measure_conv(None, 8, 16, 3)] {
            let rates = rates.expect("the processor runs them");
            assert!(rates.len() == 3 && rates.iter().all(|rate| rate.is_finite() && *rate > 0.));
        }
    }

    #[test]
    fn all_nodes_stay_in_the_models() {
        // A pass that joined them would have a rate count more than was calculated.
        let shape = [1, 4, 8, 8];
        let weight = random(&[4, 4, 3, 3], 0.1).expect("small");
        let model = chain("conv", &shape, |g, x| {
            let weight = g.initializer("weight", weight.clone());
            let pads = || [("pads", Attr::from([1, 1, 1, 1]))];
            (0..NODES).fold(x, |x, _| g.node("Conv", &[x, weight], pads()))
        });
        let session = Session::new(model.expect("a graph"), SessionOptions::default());
        let inputs = [NamedTensor::new("x", random(&shape, 1.).expect("small"))];
        let profile = session.expect("a model").profile_data(data(&inputs)).expect("it runs").1;
        let convolutions = profile.nodes.iter().filter(|node| node.op.contains("Conv"));
        assert_eq!(convolutions.count(), NODES, "{:?}", profile.nodes);
    }
}
