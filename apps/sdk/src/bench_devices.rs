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

/// Copies of one kind.
#[derive(Debug, Clone)]
pub struct Copies {
    /// From where to where: `host to device`.
    pub name: &'static str,
    /// Bytes of one copy.
    pub bytes: usize,
    /// How long each took.
    pub took: Vec<Duration>,
}

impl Copies {
    /// How fast each was, in 10⁹ bytes a second.
    #[must_use]
    pub fn gb_per_s(&self) -> Vec<f64> {
        let rate = |took: &Duration| self.bytes as f64 / took.as_secs_f64().max(1e-9) / 1e9;
        self.took.iter().map(rate).collect()
    }
}

/// Copies `bytes` bytes to a device, within it and back, once to warm up and then `runs` times each, from
/// ordinary memory as tensors lie in it.
///
/// # Errors
/// [`lgp_hal::Error::OutOfMemory`], or the driver's refusal.
///
/// ```
/// let device = lgp_sdk::open(lgp_sdk::DeviceId::CPU)?;
/// let [to, _within, from] = lgp_sdk::measure_copies(&*device, 1 << 20, 3)?;
/// assert!(to.took.len() == 3 && from.gb_per_s().iter().all(|rate| *rate > 0.));
/// # Ok::<(), lgp_sdk::DeviceError>(())
/// ```
pub fn measure_copies(
    device: &dyn Device,
    bytes: usize,
    runs: usize,
) -> Result<[Copies; 3], lgp_hal::Error> {
    let buffers = [device.allocate(bytes)?, device.allocate(bytes)?];
    let mut queue = device.queue()?;
    let mut host = vec![1u8; bytes];
    // What is touched first is mapped first, which is not what is measured.
    queue.write(&*buffers[0], 0, &host)?;
    queue.copy(&*buffers[0], 0, &*buffers[1], 0, bytes)?;
    queue.read(&*buffers[1], 0, &mut host)?;
    let mut took = [const { Vec::new() }; 3];
    for _ in 0..runs {
        let start = Instant::now();
        queue.write(&*buffers[0], 0, &host)?;
        queue.finish()?;
        took[0].push(start.elapsed());
        let start = Instant::now();
        queue.copy(&*buffers[0], 0, &*buffers[1], 0, bytes)?;
        queue.finish()?;
        took[1].push(start.elapsed());
        let start = Instant::now();
        queue.read(&*buffers[1], 0, &mut host)?;
        took[2].push(start.elapsed());
    }
    let [to, within, from] = took;
    Ok([
        Copies { name: "host to device", bytes, took: to },
        Copies { name: "within the device", bytes, took: within },
        Copies { name: "device to host", bytes, took: from },
    ])
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
        assert_eq!(copies.map(|copies| copies.gb_per_s().len()), [2, 2, 2]);
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
