//! `bench`: load time, latency and memory of a model file on this machine.

use crate::commands::run::{self, Loaded, Machine};
use crate::dims::Dims;
use crate::failure::{Failure, Result};
use crate::inputs;
use crate::measure::{self, Percentiles};
use crate::output::{self, Output};
use crate::picture;
use lgp_sdk::{DType, NamedTensor, Shape, Tensor, TensorError, ValueSpec};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// Runs before the first measured one: they fill caches and grow pools.
const WARM_UPS: u32 = 3;

/// Flags of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster bench resnet50.onnx --batch 4 --json\n\n\
    Inputs that are not given are random where they are floats, and 0 where they are not;\n\
    the random numbers are the same in every run.")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    /// A file for an input; NAME= may be left out where the model has one input
    #[arg(long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    #[command(flatten)]
    machine: Machine,
    /// The size of the leading dimension where the model leaves it open [default: 1]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    #[command(flatten)]
    dims: Dims,
    /// Measured runs
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    threads: usize,
    batch: usize,
    precision: &'static str,
    runs: u32,
    load_ms: f64,
    latency_ms: Latency,
    peak_rss_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: f64,
    #[serde(flatten)]
    percentiles: Percentiles,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let scaling = picture::scaling_of(&args.model)?;
    let Loaded { session, device, threads, load_ms } = run::load(&args.model, &args.machine)?;
    let given = inputs::read(&args.inputs, session.inputs(), &scaling)?;
    let (given, batch) = complete(given, session.inputs(), args.batch, &args.dims)?;
    for _ in 0..WARM_UPS {
        session.run_data(run::data(&given))?;
    }
    let bar = out.progress(args.runs.into(), "runs");
    let mut samples = Vec::new();
    for _ in 0..args.runs {
        let inputs = run::data(&given);
        let start = Instant::now();
        session.run_data(inputs)?;
        samples.push(measure::ms(start.elapsed()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let min = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let report = Report {
        model: args.model.display().to_string(),
        device,
        threads,
        batch,
        precision: args.machine.precision.name(),
        runs: args.runs,
        load_ms,
        latency_ms: Latency { min, percentiles: Percentiles::of(samples) },
        peak_rss_bytes: measure::peak_rss_bytes(),
    };
    out.emit(&report, text)
}

fn text(report: &Report) -> String {
    let Report { model, device, threads, batch, precision, runs, load_ms, .. } = report;
    let Latency { min, percentiles: Percentiles { p50, p95, p99 } } = &report.latency_ms;
    let memory = report.peak_rss_bytes.map_or_else(|| "unknown".to_owned(), output::bytes);
    let (threads, runs) = (output::counted(*threads, "thread"), output::counted(*runs, "run"));
    format!(
        "{model} on {device}: {threads}, batch {batch}, {precision}, {runs}\n\
         load         {load_ms:.1} ms\n\
         latency      min {min:.2} ms, p50 {p50:.2} ms, p95 {p95:.2} ms, p99 {p99:.2} ms\n\
         peak memory  {memory}\n"
    )
}

/// The inputs that are given and those that are made up, and the batch that they are.
pub(crate) fn complete(
    mut given: Vec<NamedTensor>,
    inputs: &[ValueSpec],
    batch: Option<u32>,
    dims: &Dims,
) -> Result<(Vec<NamedTensor>, usize)> {
    let batch = batch.map(usize::try_from).transpose().map_err(Failure::internal)?;
    dims.check(inputs)?;
    let made = batch.or_else(|| given_batch(&given, inputs)).unwrap_or(1);
    for input in inputs {
        if !given.iter().any(|tensor| tensor.name == input.name) {
            given.push(make(input, made, dims)?);
        }
    }
    let batch = check_batch(batch, &given)?;
    Ok((given, batch))
}

/// The leading dimension of an input that was given, of those whose model leaves it open.
fn given_batch(given: &[NamedTensor], inputs: &[ValueSpec]) -> Option<usize> {
    given.iter().find_map(|tensor| {
        let dims = &inputs.iter().find(|input| input.name == tensor.name)?.ty.shape.as_ref()?.0;
        dims.first().filter(|dim| dim.known().is_none())?;
        tensor.tensor.shape().first().copied()
    })
}

/// The batch that is measured: what every tensor has as its leading dimension.
fn check_batch(wanted: Option<usize>, inputs: &[NamedTensor]) -> Result<usize> {
    let leading = inputs.iter().find_map(|input| input.tensor.shape().first().copied());
    match (wanted, leading) {
        (Some(wanted), Some(given)) if wanted != given => Err(Failure::new(
            "batch_fixed",
            format!("--batch {wanted} cannot be had: the leading dimension is fixed to {given}"),
        )),
        (_, leading) => Ok(leading.unwrap_or(1)),
    }
}

/// An input made up.
fn make(input: &ValueSpec, batch: usize, dims: &Dims) -> Result<NamedTensor> {
    let shape = dims
        .shape(input, batch)
        .map_err(|failure| failure.hint(format!("give it with --input {}=FILE.npy", input.name)))?;
    let tensor = random(input.ty.dtype, shape)
        .map_err(|error| Failure::from_error("input_shape", &error))?;
    Ok(NamedTensor::new(input.name.clone(), tensor))
}

/// Floats from 0 to 1, always the same ones; zeros of every other dtype.
fn random(dtype: DType, shape: Shape) -> Result<Tensor, TensorError> {
    let mut tensor = Tensor::zeros(dtype, shape)?;
    let mut next = uniform();
    match dtype {
        DType::F32 => tensor.as_mut_slice::<f32>()?.fill_with(&mut next),
        DType::F64 => tensor.as_mut_slice::<f64>()?.fill_with(|| f64::from(next())),
        DType::F16 => tensor.as_mut_slice()?.fill_with(|| half::f16::from_f32(next())),
        DType::BF16 => tensor.as_mut_slice()?.fill_with(|| half::bf16::from_f32(next())),
        _ => {}
    }
    Ok(tensor)
}

/// Uniform numbers in [0, 1) from the SplitMix64 generator (Steele, Lea and Flood, 2014).
fn uniform() -> impl FnMut() -> f32 {
    let mut state = 0u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The upper 24 bits are as many as an f32 holds exactly.
        ((z ^ (z >> 31)) >> 40) as f32 / 16_777_216.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::{Dim, SymShape, TensorType};

    fn spec(dtype: DType, dims: Option<Vec<Dim>>) -> ValueSpec {
        ValueSpec::tensor("x", TensorType { dtype, shape: dims.map(SymShape) })
    }

    #[test]
    fn made_up_inputs_fit_the_model() {
        let dims = || Some(vec![Dim::Symbol("n".into()), Dim::Known(3), Dim::Unknown]);
        let made =
            make(&spec(DType::F32, dims()), 4, &Dims::default()).expect("the rank is known").tensor;
        assert_eq!(made.shape().dims(), [4, 3, 1]);
        let values = made.as_slice::<f32>().expect("f32");
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
        assert!(values.windows(2).any(|pair| pair[0] != pair[1]), "they are random");
        assert_eq!(
            make(&spec(DType::F32, dims()), 4, &Dims::default()).expect("as before").tensor,
            made
        );

        let zeros =
            make(&spec(DType::I64, dims()), 1, &Dims::default()).expect("the rank is known").tensor;
        assert!(zeros.as_slice::<i64>().expect("i64").iter().all(|&v| v == 0));
        let unknown = make(&spec(DType::F32, None), 1, &Dims::default()).expect_err("no rank");
        assert_eq!(unknown.code, "input_shape");
    }

    #[test]
    fn made_up_inputs_have_the_batch_of_the_given_ones() {
        let input = |name, dims| {
            ValueSpec::tensor(name, TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) })
        };
        let open = || Dim::Symbol("n".into());
        let specs = [
            input("fixed", vec![Dim::Known(2)]),
            input("x", vec![open(), Dim::Known(3)]),
            input("y", vec![open()]),
        ];
        let given = |name, dims: &[usize]| {
            NamedTensor::new(name, Tensor::zeros(DType::F32, dims).expect("small"))
        };
        let given = vec![given("fixed", &[2]), given("x", &[4, 3])];
        let (all, _) = complete(given, &specs, None, &Dims::default()).expect("ranks are known");
        assert_eq!(all[2].tensor.shape().dims(), [4]);
    }

    #[test]
    fn a_fixed_batch_is_not_overruled() {
        let input = |n| vec![NamedTensor::new("x", Tensor::zeros(DType::F32, [n]).expect("small"))];
        assert_eq!(check_batch(Some(4), &input(4)).ok(), Some(4));
        assert_eq!(check_batch(None, &input(2)).ok(), Some(2));
        assert_eq!(check_batch(Some(4), &input(1)).expect_err("1 ≠ 4").code, "batch_fixed");
    }
}
