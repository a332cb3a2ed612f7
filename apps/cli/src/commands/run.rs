//! `run`: one inference of a model file, from `.npy` files and images to `.npy` files.

use crate::device::Limits;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::outputs::{self, Written};
use crate::picture;
use crate::simd::Simd;
use crate::{device, inputs, measure, settings};
use clap::ValueEnum;
use lgp_sdk::{Datum, Model, NamedTensor, Session, SessionOptions};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    radeon-cluster run resnet50.onnx --input cat.jpg --output-dir out\n\n\
    FILE is a .npy file, a .json file with lists of strings, or a PNG, JPEG or WebP image. An image is\n\
    decoded to the input's channels, resized bilinearly and divided by 255, unless MODEL.toml\n\
    beside MODEL.onnx names scale, mean or std.")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    /// A file for an input; NAME= may be left out where the model has one input
    #[arg(long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    /// Where to write the outputs: tensors as .npy files, strings and maps as .json files
    #[arg(long, value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
    #[command(flatten)]
    machine: Machine,
}

/// Where and how a model runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Machine {
    /// The device: auto, cpu, opencl:0, cuda:0 …; a list cuts a model over several
    #[arg(long, default_value = "auto")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// Threads to compute with [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// How precisely to compute
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub(crate) precision: Precision,
    /// The widest vector instructions to use [default: $RADEON_SIMD, or auto]
    #[arg(long, value_enum)]
    pub(crate) simd: Option<Simd>,
}

/// How precisely a model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Precision {
    /// As the model is written
    F32,
    /// Products and convolutions in bf16, where the machine has instructions for it
    Fast,
    /// Matrix products in 8 bits, quantised when the model is loaded; other operators stay f32
    Int8,
}

impl Precision {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Fast => "fast",
            Self::Int8 => "int8",
        }
    }

    fn of_session(self) -> lgp_sdk::Precision {
        match self {
            Self::F32 => lgp_sdk::Precision::Exact,
            Self::Fast => lgp_sdk::Precision::Fast,
            Self::Int8 => lgp_sdk::Precision::Int8,
        }
    }
}

/// A model that is ready to run.
pub(crate) struct Loaded {
    pub(crate) session: Session,
    pub(crate) device: String,
    pub(crate) threads: usize,
    pub(crate) load_ms: f64,
}

/// Opens the devices, then loads a model.
pub(crate) fn load(path: &Path, machine: &Machine) -> Result<Loaded> {
    let accelerators = device::resolve_all(&machine.device, &machine.limits)?;
    let device = device::names(&accelerators);
    if !accelerators.is_empty() && machine.precision != Precision::F32 {
        let precision = machine.precision.name();
        let message = format!("--precision {precision} is the processor's, {device} has f32 alone");
        return Err(Failure::usage(message).hint("leave --precision out, or use --device cpu"));
    }
    let options = match machine.threads {
        Some(threads) => SessionOptions::with_threads(usize::from(threads)),
        None => SessionOptions::default(),
    };
    let isa = Simd::resolve(machine.simd, settings::environment)?.isa();
    let options = SessionOptions { isa, precision: machine.precision.of_session(), ..options };
    let start = Instant::now();
    let session = Session::on_devices(Model::load(path)?, options, accelerators)?;
    let load_ms = measure::ms(start.elapsed());
    Ok(Loaded { session, device, threads: options.threads, load_ms })
}

/// The inputs as a session takes them, whatever kind its outputs are of.
pub(crate) fn data(inputs: &[NamedTensor]) -> Vec<(&str, Datum)> {
    inputs.iter().map(|input| (input.name.as_str(), input.tensor.clone().into())).collect()
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    device: String,
    threads: usize,
    precision: &'static str,
    load_ms: f64,
    run_ms: f64,
    outputs: Vec<Written>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let scaling = picture::scaling_of(&args.model)?;
    let loaded = load(&args.model, &args.machine)?;
    let inputs = inputs::read(&args.inputs, loaded.session.inputs(), &scaling)?;
    let start = Instant::now();
    let outputs = loaded.session.run_data(data(&inputs))?;
    let run_ms = measure::ms(start.elapsed());
    let report = Report {
        model: args.model.display().to_string(),
        device: loaded.device,
        threads: loaded.threads,
        precision: args.machine.precision.name(),
        load_ms: loaded.load_ms,
        run_ms,
        outputs: outputs::write(&args.output_dir, &outputs)?,
    };
    out.emit(&report, |report| {
        let Report { device, threads, load_ms, run_ms, .. } = report;
        let head = format!(
            "loaded in {load_ms:.1} ms, ran in {run_ms:.2} ms on {device}, {}\n",
            output::counted(*threads, "thread")
        );
        head + &outputs::lines(&report.outputs)
    })
}
