//! Measures the runs of a session: latency of whole runs, and time by node.

use crate::stats::percentile;
use lgp_inference::{Error, Profile, RunOptions, Session};
use lgp_memory::{Datum, NamedTensor};
use serde::Serialize;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Settings of a latency measurement.
#[derive(Clone, Copy)]
pub struct LatencyOptions<'a> {
    /// Runs before the first measured one: they fill caches and grow pools.
    pub warm_ups: u32,
    /// Measured runs.
    pub runs: u32,
    /// Called after each measured run, for a progress bar.
    pub on_run: Option<&'a dyn Fn()>,
}

impl Default for LatencyOptions<'_> {
    /// Three warm-up runs, 20 measured runs.
    fn default() -> Self {
        Self { warm_ups: 3, runs: 20, on_run: None }
    }
}

impl std::fmt::Debug for LatencyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { warm_ups, runs, .. } = self;
        f.debug_struct("LatencyOptions").field("warm_ups", warm_ups).field("runs", runs).finish()
    }
}

/// Times of single runs in milliseconds. Percentiles are samples, by nearest rank. All fields are 0
/// if nothing was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Latency {
    /// The fastest run.
    pub min_ms: f64,
    /// The median: half of the runs took at most this long.
    pub p50_ms: f64,
    /// 95 of 100 runs took at most this long.
    pub p95_ms: f64,
    /// 99 of 100 runs took at most this long.
    pub p99_ms: f64,
    /// The mean of all runs.
    pub mean_ms: f64,
    /// Each run, in order.
    pub samples_ms: Vec<f64>,
}

impl Latency {
    /// Summarises times in milliseconds, given in the order of their measurement.
    #[must_use]
    pub fn of(samples_ms: Vec<f64>) -> Self {
        let mut sorted = samples_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let [p50_ms, p95_ms, p99_ms] = [50, 95, 99].map(|percent| percentile(&sorted, percent));
        Self {
            min_ms: sorted.first().copied().unwrap_or(0.),
            p50_ms,
            p95_ms,
            p99_ms,
            mean_ms: sorted.iter().sum::<f64>() / sorted.len().max(1) as f64,
            samples_ms,
        }
    }
}

/// Runs a session repeatedly with the same inputs and times each run from the call to the outputs.
/// On a device that includes the copies to and from it.
///
/// # Errors
/// As [`Session::run_data`].
///
/// ```
/// use lgp_inference::{GraphBuilder, Session, SessionOptions};
/// use lgp_measure::{LatencyOptions, measure_latency};
/// use lgp_memory::{DType, NamedTensor, Shape, Tensor, TensorType};
///
/// let ty = TensorType::concrete(DType::F32, &Shape::from([4]));
/// let mut g = GraphBuilder::new("twice");
/// let x = g.input("x", ty.clone());
/// let y = g.node("Add", &[x, x], []);
/// g.output("y", y, ty);
/// let session = Session::new(g.finish()?, SessionOptions::default())?;
///
/// let inputs = [NamedTensor::new("x", Tensor::from_slice([4], &[1f32; 4])?)];
/// let latency = measure_latency(&session, &inputs, &LatencyOptions::default())?;
/// assert_eq!(latency.samples_ms.len(), 20);
/// assert!(latency.min_ms <= latency.p50_ms && latency.p50_ms <= latency.p99_ms);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn measure_latency(
    session: &Session,
    inputs: &[NamedTensor],
    options: &LatencyOptions<'_>,
) -> Result<Latency, Error> {
    for _ in 0..options.warm_ups {
        session.run_data(data(inputs))?;
    }
    let mut samples_ms = Vec::new();
    for _ in 0..options.runs {
        let inputs = data(inputs);
        let start = Instant::now();
        session.run_data(inputs)?;
        samples_ms.push(ms(start.elapsed()));
        options.on_run.inspect(|on_run| on_run());
    }
    Ok(Latency::of(samples_ms))
}

/// Where the runs of a session spent their time, by the host's clock. The time of a node on a
/// device lasts until the node's kernels have ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuProfile {
    /// Measured runs.
    pub runs: u32,
    /// Time of all runs together, including the time between nodes.
    pub total: Duration,
    /// Nodes in the order in which they first ran.
    pub nodes: Vec<CpuNode>,
    /// The fastest run, with the start of each node.
    pub fastest: Profile,
}

/// The totals of one node over all runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuNode {
    /// The node's name. A node that passes made carries the name of one node that it replaces.
    pub name: String,
    /// The node's operator, after all passes.
    pub op: &'static str,
    /// Executions of the node in all runs.
    pub calls: u32,
    /// Time of the node in all runs.
    pub time: Duration,
    /// The node's share of the total time, 0 to 1.
    pub share: f64,
}

impl CpuProfile {
    /// Time between nodes, in all runs: the engine's cost beside its kernels.
    #[must_use]
    pub fn overhead(&self) -> Duration {
        self.total.saturating_sub(self.nodes.iter().map(|node| node.time).sum())
    }
}

/// Runs a session with the same inputs, once to warm up and then `runs` times, and sums the time of
/// each node.
///
/// # Errors
/// As [`Session::run_data`].
///
/// ```
/// use lgp_inference::{GraphBuilder, Session, SessionOptions};
/// use lgp_measure::profile_cpu;
/// use lgp_memory::{DType, NamedTensor, Shape, Tensor, TensorType};
///
/// let ty = TensorType::concrete(DType::F32, &Shape::from([64]));
/// let mut g = GraphBuilder::new("softmax");
/// let x = g.input("x", ty.clone());
/// let y = g.node("Softmax", &[x], []);
/// g.output("y", y, ty);
/// let session = Session::new(g.finish()?, SessionOptions::default())?;
///
/// let inputs = [NamedTensor::new("x", Tensor::from_slice([64], &[1f32; 64])?)];
/// let profile = profile_cpu(&session, &inputs, 5)?;
/// assert_eq!((profile.runs, profile.nodes[0].op, profile.nodes[0].calls), (5, "Softmax", 5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn profile_cpu(
    session: &Session,
    inputs: &[NamedTensor],
    runs: u32,
) -> Result<CpuProfile, Error> {
    session.run_data(data(inputs))?;
    let mut all = CpuProfile::default();
    let mut places: HashMap<(String, &'static str), usize> = HashMap::new();
    for _ in 0..runs {
        let mut profile = Profile::default();
        session.run_data_with(data(inputs), RunOptions::new().profile(&mut profile))?;
        all.runs += 1;
        all.total += profile.total;
        for node in &profile.nodes {
            let place = *places.entry((node.name.clone(), node.op)).or_insert_with(|| {
                let (name, op) = (node.name.clone(), node.op);
                all.nodes.push(CpuNode { name, op, calls: 0, time: Duration::ZERO, share: 0. });
                all.nodes.len() - 1
            });
            if let Some(sum) = all.nodes.get_mut(place) {
                sum.calls += 1;
                sum.time += node.duration;
            }
        }
        if all.runs == 1 || profile.total < all.fastest.total {
            all.fastest = profile;
        }
    }
    let total = all.total.as_secs_f64();
    for node in &mut all.nodes {
        node.share = if total > 0. { node.time.as_secs_f64() / total } else { 0. };
    }
    Ok(all)
}

/// A time in milliseconds, with at most six decimal places.
fn ms(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

/// The inputs in the form that a session takes, independent of the kinds of its outputs.
#[must_use]
pub fn data(inputs: &[NamedTensor]) -> Vec<(&str, Datum)> {
    inputs.iter().map(|input| (input.name.as_str(), input.tensor.clone().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_inference::{GraphBuilder, SessionOptions};
    use lgp_memory::{DType, Shape, Tensor, TensorType};

    #[test]
    fn latencies_are_summed_up() {
        let latency = Latency::of(vec![4., 1., 2., 3.]);
        let Latency { min_ms, p50_ms, p95_ms, p99_ms, mean_ms, .. } = latency;
        assert_eq!([min_ms, p50_ms, p95_ms, p99_ms, mean_ms], [1., 2., 4., 4., 2.5]);
        assert_eq!(latency.samples_ms, [4., 1., 2., 3.]);
        assert_eq!(Latency::of(Vec::new()), Latency::default());
    }

    fn session() -> (Session, Vec<NamedTensor>) {
        let ty = TensorType::concrete(DType::F32, &Shape::from([32, 32]));
        let mut g = GraphBuilder::new("two");
        let x = g.input("x", ty.clone());
        let y = g.node("MatMul", &[x, x], []);
        let y = g.node("Softmax", &[y], []);
        g.output("y", y, ty);
        let session = Session::new(g.finish().expect("a graph"), SessionOptions::default());
        let x = Tensor::from_slice([32, 32], &[0.5f32; 1024]).expect("its shape");
        (session.expect("a model"), vec![NamedTensor::new("x", x)])
    }

    #[test]
    fn only_measured_runs_are_counted() {
        let (session, inputs) = session();
        let told = std::cell::Cell::new(0);
        let on_run: &dyn Fn() = &|| told.set(told.get() + 1);
        let options = LatencyOptions { warm_ups: 2, runs: 7, on_run: Some(on_run) };
        let latency = measure_latency(&session, &inputs, &options).expect("it runs");
        assert_eq!((latency.samples_ms.len(), told.get()), (7, 7));
        assert!(latency.min_ms > 0.);
        let wrong = measure_latency(&session, &[], &options).expect_err("an input is missing");
        assert!(wrong.to_string().contains('x'), "{wrong}");
    }

    #[test]
    fn each_node_is_counted_in_each_run() {
        let (session, inputs) = session();
        let profile = profile_cpu(&session, &inputs, 4).expect("it runs");
        assert_eq!(profile.runs, 4);
        let nodes: Vec<_> = profile.nodes.iter().map(|node| (node.op, node.calls)).collect();
        assert_eq!(nodes, [("MatMul", 4), ("Softmax", 4)]);
        let shares: f64 = profile.nodes.iter().map(|node| node.share).sum();
        assert!(0. < shares && shares <= 1., "{shares}");
        let nodes: Duration = profile.nodes.iter().map(|node| node.time).sum();
        assert_eq!(profile.overhead() + nodes, profile.total);
        assert!(profile.fastest.total <= profile.total / 4);
        assert_eq!(profile_cpu(&session, &inputs, 0).expect("as before"), CpuProfile::default());
    }
}
