//! Measures a device's speed: copies over its link, and the two operators that dominate most models, run by
//! sessions.

use crate::session::data;
use crate::trial::{self, Trial};
use lgp_compute::device::Accelerator;
use lgp_hal::Device;
use lgp_inference::{Error, Profile, RunOptions, SessionOptions};
use std::time::{Duration, Instant};

/// Copies of one kind.
#[derive(Debug, Clone)]
pub struct Copies {
    /// The direction, such as `host to device`.
    pub name: &'static str,
    /// Bytes of one copy.
    pub bytes: usize,
    /// The duration of each copy.
    pub took: Vec<Duration>,
}

impl Copies {
    /// The rate of each copy, in 10⁹ bytes a second.
    #[must_use]
    pub fn gb_per_s(&self) -> Vec<f64> {
        let rate = |took: &Duration| self.bytes as f64 / took.as_secs_f64().max(1e-9) / 1e9;
        self.took.iter().map(rate).collect()
    }
}

/// Copies `bytes` bytes to a device, within it and back, each once to warm up and then `runs` times. Host buffers
/// are ordinary memory, as for tensors.
///
/// # Errors
/// [`lgp_hal::Error::OutOfMemory`], or the driver's error.
///
/// ```
/// let device = lgp_hal::open(lgp_hal::DeviceId::CPU)?;
/// let [to, _within, from] = lgp_measure::measure_copies(&*device, 1 << 20, 3)?;
/// assert!(to.took.len() == 3 && from.gb_per_s().iter().all(|rate| *rate > 0.));
/// # Ok::<(), lgp_hal::Error>(())
/// ```
pub fn measure_copies(
    device: &dyn Device,
    bytes: usize,
    runs: usize,
) -> Result<[Copies; 3], lgp_hal::Error> {
    let buffers = [device.allocate(bytes)?, device.allocate(bytes)?];
    let mut queue = device.queue()?;
    let mut host = vec![1u8; bytes];
    // The first access maps the memory, which is not to be measured.
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

/// Measures products of two square matrices of `size`² f32 each, in 10⁹ additions and multiplications a second, one
/// value a run. Times a node of the network `gemm-SIZE` of [`crate::trials`] on the device, or on the CPU for
/// `None`, including its launch but not the copies of its inputs.
///
/// # Errors
/// As [`lgp_inference::Session::on_device`] and its `run_data`, including out of memory.
pub fn measure_gemm(
    accelerator: Option<Accelerator>,
    size: usize,
    runs: u32,
) -> Result<Vec<f64>, Error> {
    rates(&trial::gemm(size)?, accelerator, runs)
}

/// Measures 3 × 3 convolutions over an image of `side`² with `channels` channels in and out, in the unit of
/// [`measure_gemm`]: a node of the network `conv3x3-CHANNELSxSIDE`.
///
/// # Errors
/// As [`measure_gemm`].
pub fn measure_conv(
    accelerator: Option<Accelerator>,
    channels: usize,
    side: usize,
    runs: u32,
) -> Result<Vec<f64>, Error> {
    rates(&trial::conv3x3(channels, side)?, accelerator, runs)
}

/// For each run, the rate of the median of the computing nodes, which have equal work. The first node may include
/// waits unrelated to its kernel.
fn rates(trial: &Trial, accelerator: Option<Accelerator>, runs: u32) -> Result<Vec<f64>, Error> {
    let session = trial.session(SessionOptions::default(), accelerator)?;
    session.run_data(data(&trial.inputs))?;
    let flops = trial.operations / trial.nodes.max(1) as f64;
    let rate = |_| {
        let mut profile = Profile::default();
        let options = RunOptions::new().profile(&mut profile);
        session.run_data_with(data(&trial.inputs), options)?;
        // Passes may add nodes that only move elements; the computing nodes are the slowest.
        let mut times: Vec<Duration> = profile.nodes.iter().map(|node| node.duration).collect();
        times.sort_unstable();
        let place = times.len().saturating_sub(trial.nodes.div_ceil(2));
        let time = times.get(place).copied().unwrap_or_default();
        Ok(flops / time.as_secs_f64().max(1e-9) / 1e9)
    };
    (0..runs).map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // If a pass joined nodes, the rate would count more operations than were computed.
        let (gemm, conv) = (trial::gemm(16), trial::conv3x3(4, 8));
        for (trial, op, nodes) in [(gemm, "MatMul", 4), (conv, "Conv", 3)] {
            let trial = trial.expect("small");
            assert_eq!(trial.nodes, nodes, "{}", trial.name);
            let session = trial.session(SessionOptions::default(), None).expect("a model");
            let mut profile = Profile::default();
            let options = RunOptions::new().profile(&mut profile);
            session.run_data_with(data(&trial.inputs), options).expect("it runs");
            let calculating = profile.nodes.iter().filter(|node| node.op.contains(op));
            assert_eq!(calculating.count(), nodes, "{:?}", profile.nodes);
        }
    }
}
