//! Runs an ONNX file on `.npy` inputs, writes its outputs as `.npy` files, and prints the
//! milliseconds of each run: `run_onnx MODEL OUTPUT_FOLDER THREADS RUNS NAME=FILE.npy …`.

use lgp_inference::{Model, Session, SessionOptions};
use lgp_memory::{DType, Element, NamedTensor, Tensor, TensorView};
use npyz::WriterBuilder;
use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, folder, threads, runs, inputs @ ..] = args.as_slice() else {
        return Err("usage: run_onnx MODEL OUTPUT_FOLDER THREADS RUNS NAME=FILE.npy …".into());
    };
    let inputs = inputs
        .iter()
        .map(|arg| {
            let (name, file) = arg.split_once('=').ok_or("expected NAME=FILE.npy")?;
            Ok(NamedTensor::new(name, read(Path::new(file))?))
        })
        .collect::<Result<Vec<_>>>()?;
    let session =
        Session::new(Model::load(model)?, SessionOptions::with_threads(threads.parse()?))?;
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|i| (i.name.as_str(), i.tensor.view())).collect();

    let mut outputs = Vec::new();
    for _ in 0..runs.parse()? {
        let start = Instant::now();
        outputs = session.run(&views)?;
        println!("{:.4}", start.elapsed().as_secs_f64() * 1e3);
    }
    for (index, output) in outputs.iter().enumerate() {
        write(&Path::new(folder).join(format!("{index}.npy")), &output.tensor)?;
    }
    Ok(())
}

/// Calls `$body` with `$t` standing for the element type of a dtype that `.npy` files have.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $t = f32;
                $body
            }
            DType::F64 => {
                type $t = f64;
                $body
            }
            DType::I8 => {
                type $t = i8;
                $body
            }
            DType::I16 => {
                type $t = i16;
                $body
            }
            DType::I32 => {
                type $t = i32;
                $body
            }
            DType::I64 => {
                type $t = i64;
                $body
            }
            DType::U8 => {
                type $t = u8;
                $body
            }
            DType::U16 => {
                type $t = u16;
                $body
            }
            DType::U32 => {
                type $t = u32;
                $body
            }
            DType::U64 => {
                type $t = u64;
                $body
            }
            DType::Bool => {
                type $t = bool;
                $body
            }
            other => Err(format!("{other} has no .npy form").into()),
        }
    };
}

fn read(path: &Path) -> Result<Tensor> {
    let file = npyz::NpyFile::new(BufReader::new(File::open(path)?))?;
    let dims: Vec<usize> =
        file.shape().iter().map(|&d| usize::try_from(d)).collect::<std::result::Result<_, _>>()?;
    if file.order() != npyz::Order::C {
        return Err("expected row-major elements".into());
    }
    let descr = file.dtype().descr();
    let dtype = match descr.trim_matches(|c| "'<|".contains(c)) {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        "b1" => DType::Bool,
        other => return Err(format!("element type {other} is not supported").into()),
    };
    with_element!(dtype, T => Ok(Tensor::from_slice(dims, &file.into_vec::<T>()?)?))
}

fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    with_element!(tensor.dtype(), T => write_as::<T>(path, tensor))
}

fn write_as<T: Element + npyz::AutoSerialize>(path: &Path, tensor: &Tensor) -> Result<()> {
    let shape: Vec<u64> =
        tensor.shape().iter().map(|&d| u64::try_from(d)).collect::<std::result::Result<_, _>>()?;
    let mut writer = npyz::WriteOptions::<T>::new()
        .default_dtype()
        .shape(&shape)
        .writer(BufWriter::new(File::create(path)?))
        .begin_nd()?;
    writer.extend(tensor.as_slice::<T>()?.iter().copied())?;
    Ok(writer.finish()?)
}
