//! `run`: runs a model file on `.npy` files and images; the outputs are `.npy` files and classes.

mod each;

use crate::classes::{self, Classes, Found, Wanted};
use crate::device::Limits;
use crate::failure::{Failure, Result};
use crate::inputs::{self, Given};
use crate::output::{self, Output};
use crate::outputs::{self, Written};
use crate::picture;
use crate::simd::Simd;
use crate::{device, measure, settings, task};
use clap::ValueEnum;
use lgp_common::class_names;
use lgp_sdk::model::{Model, Session, SessionOptions};
use lgp_sdk::tensor::{Datum, NamedTensor};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    radeon-cluster run resnet50.onnx cat.jpg --output-dir out\n  \
    radeon-cluster run resnet50.onnx photos --labels names.txt --top 3 --batch 8\n\n\
    FILE is a .npy file, a .json file with lists of strings, or a PNG, JPEG or WebP image. An image is\n\
    turned upright as its EXIF data say, laid over white where the model takes no alpha, decoded to\n\
    the input's channels, resized bilinearly and divided by 255, unless MODEL.toml beside MODEL.onnx\n\
    names scale, mean or std. Of several files each is a run and a row of its own; one that cannot be\n\
    used is told in its row, and the exit status is 1 at the end.\n\n\
    Names of classes come from --labels, from labels in MODEL.toml (a list, or a file with one a\n\
    line), from labels.txt beside the model or above, or from the model's own notes. Scores are as\n\
    the model gives them: probabilities where it ends in a Softmax.")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    /// Files, or folders of them, for a model with one input
    #[arg(value_name = "FILE")]
    files: Vec<String>,
    /// A file for an input; NAME= may be left out where the model has one input, which takes several
    /// files and folders
    #[arg(short, long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    /// Where to write the outputs, tensors as .npy files, strings and maps as .json files; of several
    /// files as FILE.OUTPUT.npy, and nowhere unless it is said [default: the current folder]
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Run so many files together, where the model leaves its first dimension open
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    #[command(flatten)]
    classes: Wanted,
    #[command(flatten)]
    machine: Machine,
}

/// Where and how a model runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Machine {
    /// The device: auto, cpu, opencl:0, cuda:0 …; a list cuts a model over several
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

    fn of_session(self) -> lgp_sdk::model::Precision {
        match self {
            Self::F32 => lgp_sdk::model::Precision::Exact,
            Self::Fast => lgp_sdk::model::Precision::Fast,
            Self::Int8 => lgp_sdk::model::Precision::Int8,
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
    load_read(|| Ok(Model::load(path)?), machine)
}

/// As [`load`], for a model that `read` reads.
pub(crate) fn load_read(read: impl FnOnce() -> Result<Model>, machine: &Machine) -> Result<Loaded> {
    load_with(read, machine, |_| ()).map(|(loaded, ())| loaded)
}

/// As [`load_read`], with what `look` finds in the model.
fn load_with<T>(
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
    let options = match machine.threads {
        Some(threads) => SessionOptions::with_threads(usize::from(threads)),
        None => SessionOptions::default(),
    };
    let isa = Simd::resolve(machine.simd, settings::environment)?.isa();
    let options = SessionOptions { isa, precision: machine.precision.of_session(), ..options };
    let start = Instant::now();
    let model = read()?;
    let found = look(&model);
    let session = Session::on_devices(model, options, accelerators)?;
    let load_ms = measure::ms(start.elapsed());
    Ok((Loaded { session, device, threads: options.threads, load_ms }, found))
}

/// The inputs in the form that a session takes for outputs of any kind.
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
    /// `score` or `probability`, where there are classes.
    kind: Option<&'static str>,
    /// The classes with the highest scores of each row of the input.
    top: Vec<Vec<classes::Class>>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let beside = picture::beside(&args.model)?;
    let (loaded, (metadata, probabilities)) =
        load_with(|| Ok(Model::load(&args.model)?), &args.machine, look)?;
    let labels = || class_names(&args.model, None, &metadata).map_err(picture::config_failure);
    let classes = args.classes.of(labels, probabilities)?;
    let texts: Vec<String> = args.inputs.iter().chain(&args.files).cloned().collect();
    let scaling = &beside.scaling;
    match inputs::given(&texts, loaded.session.inputs(), |others| out.note(others))? {
        Given::Once(files) => {
            let inputs = loaded.session.inputs().len();
            if args.batch > 1 && inputs > 1 {
                let batch = args.batch;
                let message =
                    format!("--batch is {batch}, and the model has {inputs} inputs: one run");
                return Err(Failure::usage(message).hint("leave --batch out"));
            }
            let inputs = inputs::read_all(&files, scaling)?;
            once(args, out, &loaded, &classes, &inputs)
        }
        Given::Each(input, files) => {
            let each = each::Each { args, loaded: &loaded, classes: &classes, input, scaling };
            each.run(&files, out)
        }
    }
}

/// The model's own notes, and the outputs that are probabilities.
fn look(model: &Model) -> (BTreeMap<String, String>, BTreeSet<String>) {
    (model.metadata().clone(), classes::probabilities(model))
}

/// One run, with a file for each input.
fn once(
    args: &Args,
    out: Output,
    loaded: &Loaded,
    classes: &Classes,
    inputs: &[NamedTensor],
) -> Result<()> {
    let start = Instant::now();
    let outputs = loaded.session.run_data(data(inputs))?;
    let run_ms = measure::ms(start.elapsed());
    let found = task::find(classes, &outputs)?;
    let (written, failure) = written(args, &outputs)?;
    let words = found.as_ref().map(Found::text).unwrap_or_default();
    let Found { kind, rows } = found.unwrap_or_default();
    let report = Report {
        model: args.model.display().to_string(),
        device: loaded.device.clone(),
        threads: loaded.threads,
        precision: args.machine.precision.name(),
        load_ms: loaded.load_ms,
        run_ms,
        outputs: written,
        kind: Some(kind).filter(|kind| !kind.is_empty()),
        top: rows,
    };
    out.emit(&report, |report| {
        let Report { device, threads, load_ms, run_ms, .. } = report;
        let head = format!(
            "loaded in {load_ms:.1} ms, ran in {run_ms:.2} ms on {device}, {}\n",
            output::counted(*threads, "thread")
        );
        head + &outputs::lines(&report.outputs) + &words
    })?;
    failure.map_or(Ok(()), Err)
}

/// Writes the outputs. Without `--output-dir`, a failure to write is returned beside the outputs, which are shown
/// first: the answer is worth more than its files.
fn written(args: &Args, outputs: &[(String, Datum)]) -> Result<(Vec<Written>, Option<Failure>)> {
    if let Some(folder) = &args.output_dir {
        return Ok((outputs::write(folder, outputs)?, None));
    }
    Ok(match outputs::write(Path::new("."), outputs) {
        Ok(written) => (written, None),
        // Another folder would not help: no file can hold this tensor.
        Err(failure) if failure.code == "output_dtype" => (outputs::shown(outputs), Some(failure)),
        Err(failure) => {
            let failure = failure.hint("--output-dir DIR says where the outputs go");
            (outputs::shown(outputs), Some(failure))
        }
    })
}
