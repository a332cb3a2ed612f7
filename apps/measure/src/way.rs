//! How fast a device computes in one of the ways to use it, as one number.

use crate::trial::{TrialSize, typical};
use lgp_compute::device::Accelerator;
use lgp_inference::{Error, SessionOptions};
use std::time::{Duration, Instant};

/// How long each network is measured, after its first run.
const EACH: Duration = Duration::from_millis(100);
/// How often each network is run at least: the first runs of some drivers are slower.
const RUNS_MIN: u32 = 3;

/// The milliseconds of products, convolutions and element-wise operators on a device: the geometric mean of the shortest
/// run of each. Only compares with the same size.
///
/// # Errors
/// As [`lgp_inference::Session::on_device`] and its `run`.
pub fn typical_ms(accelerator: &Accelerator, size: TrialSize) -> Result<f64, Error> {
    let (mut logs, mut count) = (0.0, 0);
    for trial in typical(size)? {
        let session = trial.session(SessionOptions::default(), Some(accelerator.clone()))?;
        // Compiles kernels.
        trial.run(&session)?;
        let (begin, mut best, mut runs) = (Instant::now(), Duration::MAX, 0);
        while runs < RUNS_MIN || begin.elapsed() < EACH {
            let start = Instant::now();
            trial.run(&session)?;
            best = best.min(start.elapsed());
            runs += 1;
        }
        logs += (1e3 * best.as_secs_f64().max(1e-9)).ln();
        count += 1;
    }
    Ok((logs / f64::from(count.max(1))).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_hal::Device;
    use lgp_hal::testing::RefusingDevice;
    use std::sync::Arc;

    lgp_hal::on_backends!([opencl vulkan] { a_slower_device_takes_longer });

    fn a_slower_device_takes_longer(device: Arc<dyn Device>) -> Result<(), Error> {
        let slow = Arc::new(RefusingDevice::new(Arc::clone(&device)));
        slow.slow_down(Duration::from_millis(20));
        let [fast, slow] =
            [device, slow].map(|device| typical_ms(&Accelerator::new(device)?, TrialSize::Small));
        let (fast, slow) = (fast?, slow?);
        assert!(0. < fast && fast + 10. < slow, "{fast} ms, {slow} ms");
        Ok(())
    }
}
