//! `convert`: weights from elsewhere into a model, narrower weights, weights in a file of their own.

use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use clap::ValueEnum;
use lgp_sdk::{BoundWeights, DType, Model, Weights};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Flags of `convert`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  radeon-cluster convert net.onnx --weights net.safetensors --output \
                  trained.onnx"
)]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    /// Take weights from this file: safetensors, PyTorch or GGUF
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// The model's name for a tensor and the file's, where they differ; may be given several times
    #[arg(long, value_name = "NAME=NAME", requires = "weights")]
    map: Vec<String>,
    /// Store float weights as this type, cast back to f32 where the model reads them
    #[arg(long, value_enum)]
    dtype: Option<Float>,
    /// Write the weights to OUT.onnx.data
    #[arg(long)]
    external_data: bool,
    /// Where to write the model
    #[arg(long, value_name = "OUT.onnx")]
    output: PathBuf,
}

/// How weights are stored.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Float {
    /// 32 bits
    F32,
    /// 16 bits, of which 5 for the exponent
    F16,
    /// 16 bits, of which 8 for the exponent
    Bf16,
}

#[derive(Debug, Serialize)]
struct Report {
    output: String,
    bytes: u64,
    external_data: Option<String>,
    bound: Vec<Bound>,
    unused: Vec<String>,
    unmatched: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Bound {
    initializer: String,
    weight: String,
    transposed: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let map = args.map.iter().map(|pair| {
        pair.split_once('=')
            .map(|(ours, theirs)| (ours.to_owned(), theirs.to_owned()))
            .ok_or_else(|| Failure::usage(format!("--map is '{pair}', expected NAME=NAME")))
    });
    let map: BTreeMap<String, String> = map.collect::<Result<_>>()?;
    if same(&args.model, &args.output) {
        let message = format!("{} is the input, expected another file", args.output.display());
        return Err(Failure::usage(message));
    }
    let mut model = Model::load(&args.model)?;
    let mut binding = BoundWeights::default();
    if let Some(path) = &args.weights {
        (model, binding) = model.with_weights(&Weights::load(path)?, &map)?;
    }
    if let Some(dtype) = args.dtype {
        model = model.with_stored_floats(match dtype {
            Float::F32 => DType::F32,
            Float::F16 => DType::F16,
            Float::Bf16 => DType::BF16,
        })?;
    }
    model.save(&args.output, args.external_data)?;
    let length = std::fs::metadata(&args.output);
    let bytes = length.map_err(|error| Failure::file("read", &args.output, &error))?.len();
    let bound = binding.bound.into_iter().map(|b| {
        let (initializer, weight) = (b.initializer, b.weight);
        Bound { initializer, weight, transposed: b.transposed }
    });
    let output = args.output.display().to_string();
    let report = Report {
        bytes,
        external_data: args.external_data.then(|| format!("{output}.data")),
        output,
        bound: bound.collect(),
        unused: binding.unused,
        unmatched: binding.unmatched,
    };
    out.emit(&report, |report| text(report, args.weights.is_some()))
}

/// Whether both names are of one file.
fn same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn text(report: &Report, weights: bool) -> String {
    let mut text = format!("{}  {}\n", report.output, output::bytes(report.bytes));
    if let Some(data) = &report.external_data {
        text += &format!("{data}\n");
    }
    if weights {
        let turned = report.bound.iter().filter(|b| b.transposed).count();
        text += &format!("{} tensors replaced, {turned} of them transposed\n", report.bound.len());
        for (what, names) in [
            ("not used of the file", &report.unused),
            ("not in the file, as they were", &report.unmatched),
        ] {
            if !names.is_empty() {
                text += &format!("{what}: {}\n", names.join(", "));
            }
        }
    }
    text
}
