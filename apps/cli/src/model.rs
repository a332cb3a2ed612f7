//! Opens a model's file as flags say: on a device, with a session's options, and with inputs.

use crate::cluster::digits;
use crate::device::{self, Limits};
use crate::dims::Dims;
use crate::failure::{Failure, Result};
use crate::simd::Simd;
use crate::{inputs, measure, picture, settings};
use clap::ValueEnum;
use lgp_common::vision::Scaling;
use lgp_sdk::model::{Model, Session, SessionOptions};
use lgp_sdk::tensor::NamedTensor;
use std::path::Path;
use std::time::Instant;

/// Where and how a model runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Machine {
    /// The device: auto, cpu, vulkan:0, opencl:0, cuda:0 …; a list cuts a model over several
    #[arg(short, long, default_value = "auto")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// Threads to compute with [default: all cores]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
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
    /// Matrix products and convolutions in 8 bits, quantised when the model is loaded; other
    /// operators stay f32
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

    fn of_session(self) -> lgp_sdk::model::Precision {
        match self {
            Self::F32 => lgp_sdk::model::Precision::Exact,
            Self::Fast => lgp_sdk::model::Precision::Fast,
            Self::Int8 => lgp_sdk::model::Precision::Int8,
        }
    }
}

/// Files for the inputs of a measured run.
#[derive(Debug, clap::Args)]
pub(crate) struct InputFiles {
    /// A file for an input; NAME= may be left out where the model has one input
    #[arg(long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
}

/// Where and how a measured run computes, and the sizes of the inputs that are made up for it.
#[derive(Debug, clap::Args)]
pub(crate) struct Setup {
    #[command(flatten)]
    pub(crate) machine: Machine,
    /// The size of the leading dimension where the model leaves it open [default: 1]
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    #[command(flatten)]
    dims: Dims,
}

/// A model that is ready to be measured, with all its inputs.
pub(crate) struct Opened {
    pub(crate) loaded: Loaded,
    pub(crate) inputs: Vec<NamedTensor>,
    /// The leading dimension of the inputs.
    pub(crate) batch: usize,
}

impl Setup {
    /// Loads a model, the bundled one if no file is named, then reads the given inputs and makes up
    /// the others.
    pub(crate) fn open(&self, model: Option<&Path>, files: &InputFiles) -> Result<Opened> {
        let (scaling, loaded) = match model {
            Some(path) => (picture::scaling_of(path)?, load(path, &self.machine)?),
            // The bundled model is part of the program.
            None => (Scaling::default(), load_read(digits::model, &self.machine)?),
        };
        let specs = loaded.session.inputs();
        let given = inputs::read(&files.inputs, specs, &scaling)?;
        let (inputs, batch) = inputs::complete(given, specs, self.batch, &self.dims)?;
        Ok(Opened { loaded, inputs, batch })
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
    load_read(|| Ok(Model::load(path)?), machine)
}

/// As [`load`], for a model that `read` reads.
fn load_read(read: impl FnOnce() -> Result<Model>, machine: &Machine) -> Result<Loaded> {
    load_with(read, machine, |_| ()).map(|(loaded, ())| loaded)
}

/// Opens the devices, then loads the model that `read` reads, and returns what `look` finds in it.
pub(crate) fn load_with<T>(
    read: impl FnOnce() -> Result<Model>,
    machine: &Machine,
    look: impl FnOnce(&Model) -> T,
) -> Result<(Loaded, T)> {
    let accelerators = device::resolve_all(&machine.device, &machine.limits)?;
    let device = lgp_sdk::device::device_names(&accelerators);
    if !accelerators.is_empty() && machine.precision != Precision::F32 {
        let precision = machine.precision.name();
        let message =
            format!("--precision {precision} is for the processor, and {device} computes in f32");
        return Err(Failure::usage(message).hint("leave --precision out, or use --device cpu"));
    }
    let options = options(machine.threads);
    let isa = Simd::resolve(machine.simd, settings::environment)?.isa();
    let options = SessionOptions { isa, precision: machine.precision.of_session(), ..options };
    let start = Instant::now();
    let model = read()?;
    let found = look(&model);
    let session = Session::on_devices(model, options, accelerators)?;
    let load_ms = measure::ms(start.elapsed());
    Ok((Loaded { session, device, threads: options.threads, load_ms }, found))
}

/// A session's options with a number of threads; all cores where none is given.
pub(crate) fn options(threads: Option<u16>) -> SessionOptions {
    threads.map_or_else(SessionOptions::default, |n| SessionOptions::with_threads(n.into()))
}
