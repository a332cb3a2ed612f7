//! `convert`: other weights, narrower weights, or weights in a separate file for a model.

use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use clap::ValueEnum;
use lgp_inference::{BoundWeights, StoredFloats, Weights};
use lgp_sdk::model::{Model, Repository};
use lgp_sdk::tensor::DType;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many names of inputs people see.
const NAMES_SHOWN: usize = 8;

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
    /// Store float weights as this type, cast back to f32 where the model reads them; tensors of
    /// fewer than 16 elements, and those with numbers that the type has not, stay f32
    #[arg(long, value_enum)]
    dtype: Option<Float>,
    /// Write the weights to OUT.onnx.data
    #[arg(long)]
    external_data: bool,
    /// Where to write the model; a file that is there is replaced
    #[arg(short, long, value_name = "OUT.onnx")]
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
    /// With `--dtype`: the outcome for the f32 tensors.
    floats: Option<Floats>,
    /// Former inputs with a default; their value is fixed now.
    fixed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Floats {
    converted: usize,
    /// Tensors of too few elements to be worth it.
    small: usize,
    /// Elements that are 0 now.
    zeroed: usize,
    /// Tensors that stayed f32.
    kept: Vec<Kept>,
}

#[derive(Debug, Serialize)]
struct Kept {
    initializer: String,
    /// A value outside the type's range.
    value: f32,
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
    check_output(args)?;
    let bar = out.busy("converting");
    let mut model = Model::load(&args.model)?;
    let defaults = model.defaults().to_vec();
    let mut binding = BoundWeights::default();
    if let Some(path) = &args.weights {
        (model, binding) = model.with_weights(&Weights::load(path)?, &map)?;
    }
    let mut floats = None;
    if let Some(dtype) = args.dtype {
        let dtype = match dtype {
            Float::F32 => DType::F32,
            Float::F16 => DType::F16,
            Float::Bf16 => DType::BF16,
        };
        let (converted, report) = model.with_stored_floats(dtype)?;
        (model, floats) = (converted, Some(Floats::of(report)));
    }
    model.save(&args.output, args.external_data)?;
    bar.finish_and_clear();
    let length = std::fs::metadata(&args.output);
    let bytes = length.map_err(|error| Failure::file("read", &args.output, &error))?.len();
    let bound = binding.bound.into_iter().map(|b| {
        let (initializer, weight) = (b.initializer, b.weight);
        Bound { initializer, weight, transposed: b.transposed }
    });
    let output = args.output.display().to_string();
    let report = Report {
        bytes,
        external_data: args.external_data.then(|| data_file(&args.output).display().to_string()),
        output,
        bound: bound.collect(),
        unused: binding.unused,
        unmatched: binding.unmatched,
        floats,
        fixed: defaults
            .into_iter()
            .filter(|spec| !model.defaults().contains(spec))
            .map(|spec| spec.name)
            .collect(),
    };
    out.emit(&report, |report| text(report, args.weights.is_some()))
}

impl Floats {
    fn of(report: StoredFloats) -> Self {
        let StoredFloats { converted, small, zeroed, kept } = report;
        let kept = kept.into_iter().map(|k| Kept { initializer: k.initializer, value: k.value });
        Self { converted, small, zeroed, kept: kept.collect() }
    }
}

/// Refuses to overwrite a file that is read: the model, its files of weights, and `--weights`.
fn check_output(args: &Args) -> Result<()> {
    let mut written = vec![args.output.clone()];
    written.extend(args.external_data.then(|| data_file(&args.output)));
    let mut read = vec![args.model.clone()];
    read.extend(args.weights.clone());
    read.extend(Repository::external_files(&args.model)?.into_values());
    for written in &written {
        if let Some(read) = read.iter().find(|read| same(read, written)) {
            let (written, read) = (written.display(), read.display());
            let message =
                format!("{written} would replace the input {read}, expected another file");
            return Err(Failure::usage(message));
        }
    }
    Ok(())
}

/// Where the weights of a model go with `--external-data`.
fn data_file(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".data");
    name.into()
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
    if let Some(Floats { converted, small, zeroed, kept }) = &report.floats {
        let converted = output::counted(*converted, "tensor");
        text += &format!("{converted} converted, {small} of too few elements left as they were\n");
        if *zeroed > 0 {
            let are = if *zeroed == 1 { "is" } else { "are" };
            let zeroed = output::counted(*zeroed, "number");
            text += &format!("{zeroed} {are} now 0: too small for the type\n");
        }
        for Kept { initializer, value } in kept {
            text += &format!("stays f32: {initializer}, for it has {value:e}\n");
        }
    }
    if !report.fixed.is_empty() {
        // Old files list every weight among the inputs.
        let (shown, rest) = report.fixed.split_at(report.fixed.len().min(NAMES_SHOWN));
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        let names = shown.join(", ") + &more;
        text += &format!("no inputs any more, fixed at their default: {names}\n");
    }
    if weights {
        let turned = report.bound.iter().filter(|b| b.transposed).count();
        let replaced = output::counted(report.bound.len(), "tensor");
        text += &format!("{replaced} replaced, {turned} of them transposed\n");
        for (what, names) in [
            ("in the file, and not in the model", &report.unused),
            ("in the model, and not in the file: as they were", &report.unmatched),
        ] {
            if !names.is_empty() {
                text += &format!("{what}: {}\n", names.join(", "));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_became_zero_are_told() {
        for (zeroed, part) in [
            (0, None),
            (1, Some("\n1 number is now 0: too small for the type\n")),
            (3, Some("\n3 numbers are now 0: too small for the type\n")),
        ] {
            let floats = Floats { converted: 1, small: 0, zeroed, kept: Vec::new() };
            let report = Report {
                output: "out.onnx".to_owned(),
                bytes: 9,
                external_data: None,
                bound: Vec::new(),
                unused: Vec::new(),
                unmatched: Vec::new(),
                floats: Some(floats),
                fixed: Vec::new(),
            };
            let text = text(&report, false);
            assert_eq!(text.contains("now 0"), part.is_some(), "{text}");
            assert!(part.is_none_or(|part| text.contains(part)), "{text}");
        }
    }
}
