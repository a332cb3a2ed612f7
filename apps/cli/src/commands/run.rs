//! `run`: one inference of a model file, from `.npy` files and images to `.npy` files.

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::picture::Scaling;
use crate::simd::Simd;
use crate::{device, inputs, measure, npy, settings, values};
use clap::ValueEnum;
use lgp_sdk::{DType, Datum, Model, NamedTensor, Session, SessionOptions, Tensor, TensorView};
use serde::Serialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Flags of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    radeon-cluster run resnet50.onnx --input cat.jpg --output-dir out\n\n\
    FILE is a .npy file or a PNG or JPEG image. An image is decoded to the input's channels,\n\
    resized bilinearly and divided by 255, unless MODEL.toml beside MODEL.onnx names scale,\n\
    mean or std.")]
pub(crate) struct Args {
    /// The ONNX file
    model: PathBuf,
    /// A file for an input; NAME= may be left out where the model has one input
    #[arg(long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    /// Where to write one .npy file per output
    #[arg(long, value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
    #[command(flatten)]
    machine: Machine,
}

/// Where and how a model runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Machine {
    /// The device: auto, cpu, opencl:0, cuda:0 …
    #[arg(long, default_value = "auto")]
    pub(crate) device: String,
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
    /// Matrix products in bf16 where the machine has it
    Fast,
    /// Matrix products in 8 bits, quantised when it is loaded; convolutions stay f32
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
    pub(crate) model: Model,
    pub(crate) session: Session,
    pub(crate) device: String,
    pub(crate) threads: usize,
    pub(crate) load_ms: f64,
}

/// Checks the device, then loads a model.
pub(crate) fn load(path: &Path, machine: &Machine) -> Result<Loaded> {
    let device = device::resolve(&machine.device)?.to_string();
    let options = match machine.threads {
        Some(threads) => SessionOptions::with_threads(usize::from(threads)),
        None => SessionOptions::default(),
    };
    let isa = Simd::resolve(machine.simd, settings::environment)?.isa();
    let options = SessionOptions { isa, precision: machine.precision.of_session(), ..options };
    let start = Instant::now();
    let model = Model::load(path)?;
    let session = Session::new(&model, options)?;
    let load_ms = measure::ms(start.elapsed());
    Ok(Loaded { model, session, device, threads: options.threads, load_ms })
}

/// Runs a session on owned tensors.
pub(crate) fn infer(session: &Session, inputs: &[NamedTensor]) -> Result<Vec<NamedTensor>> {
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|input| (input.name.as_str(), input.tensor.view())).collect();
    Ok(session.run(&views)?)
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

/// An output and the file that it was written to.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    name: String,
    dtype: &'static str,
    shape: Vec<usize>,
    file: String,
    #[serde(skip)]
    preview: String,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let scaling = Scaling::of_model(&args.model)?;
    let loaded = load(&args.model, &args.machine)?;
    let inputs = inputs::read(&args.inputs, loaded.model.inputs(), &scaling)?;
    let start = Instant::now();
    let given = inputs.iter().map(|x| (x.name.as_str(), x.tensor.clone().into())).collect();
    let outputs = loaded.session.run_data(given)?;
    let run_ms = measure::ms(start.elapsed());
    let report = Report {
        model: args.model.display().to_string(),
        device: loaded.device,
        threads: loaded.threads,
        precision: args.machine.precision.name(),
        load_ms: loaded.load_ms,
        run_ms,
        outputs: write_all(&args.output_dir, &outputs)?,
    };
    out.emit(&report, |report| {
        let Report { device, threads, load_ms, run_ms, .. } = report;
        let head = format!(
            "loaded in {load_ms:.1} ms, ran in {run_ms:.2} ms on {device}, {threads} threads\n"
        );
        head + &lines(&report.outputs)
    })
}

/// One line per written output.
pub(crate) fn lines(outputs: &[Written]) -> String {
    outputs.iter().fold(String::new(), |all, output| {
        let Written { name, dtype, shape, file, preview } = output;
        all + &format!("{name}  {dtype} {shape:?}  {preview}\n  -> {file}\n")
    })
}

/// One line per output that is only shown.
pub(crate) fn previews(outputs: &[NamedTensor]) -> String {
    outputs.iter().fold(String::new(), |all, NamedTensor { name, tensor }| {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().dims());
        all + &format!("{name}  {dtype} {shape:?}  {}\n", preview(tensor))
    })
}

/// Writes each output to a file of its own: see [`Folder::tensor`].
pub(crate) fn write(folder: &Path, outputs: &[NamedTensor]) -> Result<Vec<Written>> {
    let mut folder = Folder::new(folder)?;
    outputs.iter().map(|output| folder.tensor(&output.name, &output.tensor)).collect()
}

/// Writes outputs of any kind: the tensors of a sequence as `NAME.0`, `NAME.1` and so on, maps as
/// `NAME.json`; of an absent optional, nothing.
fn write_all(folder: &Path, outputs: &[(String, Datum)]) -> Result<Vec<Written>> {
    let mut folder = Folder::new(folder)?;
    let mut written = Vec::new();
    for (name, value) in outputs {
        match value {
            Datum::Sequence(items) if items.iter().all(|item| item.tensor().is_some()) => {
                for (i, item) in items.iter().filter_map(Datum::tensor).enumerate() {
                    written.push(folder.tensor(&format!("{name}.{i}"), item)?);
                }
            }
            Datum::Tensor(tensor) => written.push(folder.tensor(name, tensor)?),
            Datum::Absent => {}
            other => written.push(folder.json(name, "map", Vec::new(), &values::json(other))?),
        }
    }
    Ok(written)
}

/// Where outputs are written, and the names that are taken.
struct Folder<'a> {
    path: &'a Path,
    taken: HashSet<String>,
}

impl<'a> Folder<'a> {
    fn new(path: &'a Path) -> Result<Self> {
        std::fs::create_dir_all(path)
            .map_err(|error| Failure::file("make the output folder", path, &error))?;
        Ok(Self { path, taken: HashSet::new() })
    }

    /// A file for an output: every character of its name outside `[A-Za-z0-9._-]` as `_`.
    fn file(&mut self, name: &str, extension: &str) -> PathBuf {
        let mut stem = file_stem(name);
        // Two names that differ only in such characters must not overwrite each other.
        while !self.taken.insert(stem.clone()) {
            stem.push('_');
        }
        self.path.join(format!("{stem}.{extension}"))
    }

    /// Numbers as `NAME.npy`, strings as `NAME.json`.
    fn tensor(&mut self, name: &str, tensor: &Tensor) -> Result<Written> {
        let (dtype, shape) = (tensor.dtype().name(), tensor.shape().to_vec());
        if tensor.dtype() == DType::Str {
            return self.json(name, dtype, shape, &values::tensor(tensor));
        }
        let path = self.file(name, "npy");
        npy::write(&path, tensor)?;
        let file = path.display().to_string();
        Ok(Written { name: name.to_owned(), dtype, shape, file, preview: preview(tensor) })
    }

    fn json(
        &mut self,
        name: &str,
        dtype: &'static str,
        shape: Vec<usize>,
        value: &serde_json::Value,
    ) -> Result<Written> {
        let path = self.file(name, "json");
        let text = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
        std::fs::write(&path, text).map_err(|error| Failure::file("write", &path, &error))?;
        let file = path.display().to_string();
        Ok(Written { name: name.to_owned(), dtype, shape, file, preview: String::new() })
    }
}

fn file_stem(name: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.chars().map(|c| if keep(c) { c } else { '_' }).collect()
}

/// The first few values of a tensor of the usual dtypes.
fn preview(tensor: &Tensor) -> String {
    const MOST: usize = 10;
    let texts: Vec<String> = match tensor.dtype() {
        DType::F32 => tensor
            .as_slice::<f32>()
            .map(|values| values.iter().take(MOST).map(|v| format!("{v:.4}")).collect()),
        DType::I64 => tensor
            .as_slice::<i64>()
            .map(|values| values.iter().take(MOST).map(ToString::to_string).collect()),
        _ => return String::new(),
    }
    .unwrap_or_default();
    let more = if tensor.len() > MOST { " …" } else { "" };
    texts.join(" ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_never_leave_their_folder_nor_overwrite_each_other() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let names = ["logits", "a/b", "a:b", "../../x", "..", "größe"];
        let outputs: Vec<NamedTensor> = names
            .iter()
            .map(|name| NamedTensor::new(*name, Tensor::scalar(1f32).expect("one element")))
            .collect();
        let written = write(&folder.path().join("new"), &outputs).expect("the folder is ours");
        let files: Vec<String> = written
            .iter()
            .map(|w| w.file.rsplit('/').next().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(
            files,
            ["logits.npy", "a_b.npy", "a_b_.npy", ".._.._x.npy", "...npy", "gr__e.npy"]
        );
    }

    #[test]
    fn what_is_no_tensor_is_written_too() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let one = || Datum::Tensor(Tensor::scalar(1f32).expect("one element"));
        let map = Datum::Map {
            keys: Tensor::from_slice([1], &[7i64]).expect("one key"),
            values: Tensor::from_slice([1], &[0.5f32]).expect("one value"),
        };
        let outputs = [
            ("parts", Datum::Sequence(vec![one(), one()])),
            ("odds", Datum::Sequence(vec![map])),
            ("nothing", Datum::Absent),
        ];
        let outputs = outputs.map(|(name, value)| (name.to_owned(), value));
        let written = write_all(folder.path(), &outputs).expect("the folder is ours");
        let files: Vec<&str> = written.iter().filter_map(|w| w.file.rsplit('/').next()).collect();
        assert_eq!(files, ["parts.0.npy", "parts.1.npy", "odds.json"]);
        let odds = std::fs::read_to_string(folder.path().join("odds.json")).expect("written");
        let odds: serde_json::Value = serde_json::from_str(&odds).expect("JSON");
        assert_eq!(odds, serde_json::json!([{ "7": 0.5 }]));
    }
}
