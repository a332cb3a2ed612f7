//! rten and tract behind the line protocol of `cargo xtask bench engine`:
//! `bench-peers rten|tract PRECISION MODEL THREADS NAME:DTYPE:DIMS:FILE…`.
#![forbid(unsafe_code)]

mod rten_engine;
mod tract_engine;

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

/// An input's elements, as a file of the benchmark has them.
enum Data {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

/// An input by name.
struct Input {
    name: String,
    dims: Vec<usize>,
    data: Data,
}

/// A loaded model with its inputs.
trait Engine {
    /// Runs once.
    fn run(&mut self) -> Result<()>;
    /// Runs once and returns all outputs, one after the other.
    fn outputs(&mut self) -> Result<Vec<f32>>;
}

fn main() {
    if let Err(error) = serve() {
        println!("error {}", format!("{error:#}").replace('\n', " "));
    }
}

fn serve() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [engine, precision, model, threads, inputs @ ..] = args.as_slice() else {
        bail!("usage: bench-peers rten|tract PRECISION MODEL THREADS NAME:DTYPE:DIMS:FILE…");
    };
    ensure!(precision == "exact", "{engine} has no precision '{precision}', expected exact");
    let threads: usize = threads.parse()?;
    let inputs = inputs.iter().map(|text| read(text)).collect::<Result<Vec<_>>>()?;
    println!("ready");
    let started = Instant::now();
    let mut engine: Box<dyn Engine> = match engine.as_str() {
        "rten" => Box::new(rten_engine::Rten::load(Path::new(model), threads, inputs)?),
        "tract" => Box::new(tract_engine::Tract::load(Path::new(model), threads, inputs)?),
        other => bail!("no engine '{other}', expected rten or tract"),
    };
    println!("loaded {:.4}", milliseconds(started));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        // A path may have blanks in it.
        let (command, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        match command {
            "run" => {
                let (warm, timed) = rest.split_once(' ').context("expected run WARM TIMED")?;
                for _ in 0..warm.parse()? {
                    engine.run()?;
                }
                let mut answer = String::from("times");
                for _ in 0..timed.parse()? {
                    let started = Instant::now();
                    engine.run()?;
                    answer += &format!(" {:.4}", milliseconds(started));
                }
                println!("{answer}");
            }
            "save" => {
                let values = engine.outputs()?;
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                std::fs::write(rest, bytes)?;
                println!("saved");
            }
            _ => bail!("unknown command '{line}'"),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// Reads an input written as `NAME:DTYPE:DIMS:FILE`.
fn read(text: &str) -> Result<Input> {
    let mut parts = text.splitn(4, ':');
    let mut part = || parts.next().context("expected NAME:DTYPE:DIMS:FILE");
    let (name, dtype, dims, file) = (part()?, part()?, part()?, part()?);
    let dims: Vec<usize> =
        dims.split('x').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let bytes = std::fs::read(file)?;
    let data = match dtype {
        "f32" => Data::F32(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()),
        "i64" => Data::I64(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect()),
        other => bail!("no element type '{other}', expected f32 or i64"),
    };
    Ok(Input { name: name.to_owned(), dims, data })
}
