//! How fast a device is: copies over its link, and the two operators that most models consist of,
//! as sessions run them.

use crate::measure::data;
use crate::trial::{self, Trial};
use lgp_compute::device::Accelerator;
use lgp_hal::Device;
use lgp_inference::{Error, SessionOptions};
use std::time::{Duration, Instant};

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
/// a value a run: a node of the network `gemm-SIZE` of [`crate::trials`] on the device, or on the CPU where
/// there is none, with its launch and without copies of its inputs.
///
/// # Errors
/// As [`lgp_inference::Session::on_device`] and `run_data` of the same, out of memory included.
pub fn measure_gemm(
    accelerator: Option<Accelerator>,
    size: usize,
    runs: u32,
) -> Result<Vec<f64>, Error> {
    rates(&trial::gemm(size)?, accelerator, runs)
}

/// Convolutions of 3 × 3 over an image of `side`² with `channels` channels, which stay as many, with the
/// unit of [`measure_gemm`]: a node of the network `conv3x3-CHANNELSxSIDE`.
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

/// Of each run, the node in the middle of those that calculate, which are equal: the first may wait for
/// what is not the kernel.
fn rates(trial: &Trial, accelerator: Option<Accelerator>, runs: u32) -> Result<Vec<f64>, Error> {
    let session = trial.session(SessionOptions::default(), accelerator)?;
    session.run_data(data(&trial.inputs))?;
    let flops = trial.operations / trial.nodes.max(1) as f64;
    let rate = |_| {
        let (_, profile) = session.profile_data(data(&trial.inputs))?;
        // Passes may put nodes that move elements before and after them: the slowest ones calculate.
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
        // A pass that joined them would have a rate count more than was calculated.
        let (gemm, conv) = (trial::gemm(16), trial::conv3x3(4, 8));
        for (trial, op, nodes) in [(gemm, "MatMul", 4), (conv, "Conv", 3)] {
            let trial = trial.expect("small");
            assert_eq!(trial.nodes, nodes, "{}", trial.name);
            let session = trial.session(SessionOptions::default(), None).expect("a model");
            let profile = session.profile_data(data(&trial.inputs)).expect("it runs").1;
            let calculating = profile.nodes.iter().filter(|node| node.op.contains(op));
            assert_eq!(calculating.count(), nodes, "{:?}", profile.nodes);
        }
    }
}
