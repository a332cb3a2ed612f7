//! Where candidates run: on this machine, or on devices that an app reaches.

use super::observe::Work;
use super::samples::RunInputs;
use crate::error::{Error, Result};
use lgp_compute::device::Accelerator;
use lgp_inference::{Model, Session, SessionOptions};
use lgp_memory::{NamedTensor, Shape};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Runs before the first measured one.
const WARM_UPS: usize = 3;
/// The least and the most measured runs of each model.
const RUNS: (usize, usize) = (7, 200);
/// A measurement of several models takes about this long, beyond the least number of runs.
const BUDGET: Duration = Duration::from_millis(600);

/// Times of single runs, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LatencyMs {
    /// The fastest run.
    pub min: f64,
    /// The median.
    pub median: f64,
}

impl LatencyMs {
    /// Summarises single runs; zeros for none.
    #[must_use]
    pub fn of(mut runs_ms: Vec<f64>) -> Self {
        runs_ms.sort_by(f64::total_cmp);
        let at = |index: usize| runs_ms.get(index).copied().unwrap_or(0.);
        Self { min: at(0), median: at(runs_ms.len() / 2) }
    }
}

/// Runs models for the pipeline. Apps implement it for devices that are elsewhere.
pub trait Runner {
    /// The device's name in ledgers.
    fn device(&self) -> String;

    /// The outputs of a model for the inputs of each run.
    ///
    /// # Errors
    /// A model that does not run there; [`Error::Stopped`].
    fn outputs(&self, model: &Model, runs: &[RunInputs]) -> Result<Vec<Vec<NamedTensor>>>;

    /// The times of the models on the same inputs, measured in turns, so that a busy machine slows
    /// all of them alike.
    ///
    /// # Errors
    /// As [`Runner::outputs`].
    fn latencies(&self, models: &[&Model], inputs: &RunInputs) -> Result<Vec<LatencyMs>>;

    /// Bytes that the model's weights and the values of a run take there at most.
    ///
    /// # Errors
    /// As [`Runner::outputs`].
    fn memory_bytes(&self, model: &Model, inputs: &RunInputs) -> Result<u64>;
}

/// Runs on devices of this process; on the CPU if there are none.
#[derive(Debug, Clone)]
pub struct LocalRunner {
    accelerators: Vec<Accelerator>,
    name: String,
    work: Work,
}

impl LocalRunner {
    /// A runner on these devices, which ledgers call `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, accelerators: Vec<Accelerator>, work: Work) -> Self {
        Self { accelerators, name: name.into(), work }
    }

    fn session(&self, model: &Model) -> Result<Session> {
        let options = SessionOptions::with_threads(self.work.threads);
        Ok(Session::on_devices(model, options, self.accelerators.clone())?)
    }
}

impl Runner for LocalRunner {
    fn device(&self) -> String {
        self.name.clone()
    }

    fn outputs(&self, model: &Model, runs: &[RunInputs]) -> Result<Vec<Vec<NamedTensor>>> {
        let session = self.session(model)?;
        runs.iter().map(|run| self.work.run(&session, run)).collect()
    }

    fn latencies(&self, models: &[&Model], inputs: &RunInputs) -> Result<Vec<LatencyMs>> {
        let sessions =
            models.iter().map(|model| self.session(model)).collect::<Result<Vec<_>>>()?;
        let mut times = vec![Vec::new(); sessions.len()];
        let start = Instant::now();
        for round in 0..WARM_UPS + RUNS.1 {
            for (session, times) in sessions.iter().zip(&mut times) {
                let begin = Instant::now();
                self.work.run(session, inputs)?;
                if round >= WARM_UPS {
                    times.push(begin.elapsed().as_secs_f64() * 1e3);
                }
            }
            if round >= WARM_UPS + RUNS.0 && start.elapsed() > BUDGET {
                break;
            }
        }
        Ok(times.into_iter().map(LatencyMs::of).collect())
    }

    fn memory_bytes(&self, model: &Model, inputs: &RunInputs) -> Result<u64> {
        let session = self.session(model)?;
        let shapes: Vec<(&str, Shape)> =
            inputs.iter().map(|it| (it.name.as_str(), it.tensor.shape().clone())).collect();
        let bytes = match session.device_memory(&shapes)? {
            Some(device) => device.arena_bytes + device.resident_bytes + device.streamed_bytes,
            None => session.memory(&shapes)?.peak_bytes,
        };
        u64::try_from(bytes).map_err(|_| Error::compression("measure memory", "too many bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::observe::work;
    use lgp_inference::GraphBuilder;
    use lgp_memory::{DType, Tensor, TensorType};

    #[test]
    fn models_are_measured_side_by_side() {
        let ty = TensorType::concrete(DType::F32, &Shape::from([64, 64]));
        let build = |products: usize| {
            let mut g = GraphBuilder::new("g");
            let mut x = g.input("x", ty.clone());
            let w = g.initializer("w", Tensor::zeros(DType::F32, [64, 64]).unwrap());
            for _ in 0..products {
                x = g.node("MatMul", &[x, w], []);
            }
            g.output("y", x, ty.clone());
            g.finish().unwrap()
        };
        let (short, long) = (build(1), build(30));
        let runner = LocalRunner::new("cpu", Vec::new(), work());
        let inputs = vec![NamedTensor::new("x", Tensor::zeros(DType::F32, [64, 64]).unwrap())];
        let times = runner.latencies(&[&short, &long], &inputs).unwrap();
        assert!(times[0].median > 0. && times[1].min > times[0].min, "{times:?}");
        assert!(times.iter().all(|time| time.min <= time.median));
        assert!(runner.memory_bytes(&long, &inputs).unwrap() > 64 * 64 * 4);
        assert_eq!(runner.outputs(&short, &[inputs]).unwrap()[0][0].name, "y");
    }
}
