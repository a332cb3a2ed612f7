//! `run`: runs a model file on `.npy` files and images; the outputs are `.npy` files and classes.

mod each;

use crate::classes::{self, Classes, Found, Wanted};
use crate::failure::{Failure, Result};
use crate::inputs::{self, Given};
use crate::model::{Loaded, Machine, load_with};
use crate::output::{self, Output};
use crate::outputs::{self, Written};
use crate::{measure, picture, task};
use lgp_common::class_names;
use lgp_measure::data;
use lgp_sdk::model::Model;
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
