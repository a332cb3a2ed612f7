//! This engine behind the line protocol of `cargo xtask bench engine`:
//! `engine_bench PRECISION MODEL THREADS NAME:DTYPE:DIMS:FILE…`.
//!
//! Prints `ready`, `loaded MS`, then answers each line of its input: `run WARM TIMED` with
//! `times MS…`, `save FILE` with `saved` once all outputs lie in the file as f32, `profile RUNS` with the
//! nodes of the fastest run, the longest first, and `profiled`.

use lgp_inference::{Model, Precision, Profile, RunOptions, Session, SessionOptions};
use lgp_memory::{DType, NamedTensor, Tensor, TensorView};
use std::io::{BufRead, Write};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() {
    if let Err(error) = serve() {
        println!("error {}", error.to_string().replace('\n', " "));
    }
}

fn serve() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [precision, model, threads, inputs @ ..] = args.as_slice() else {
        return Err("usage: engine_bench PRECISION MODEL THREADS NAME:DTYPE:DIMS:FILE…".into());
    };
    let options = options(precision, threads.parse()?)?;
    let inputs = inputs.iter().map(|text| read(text)).collect::<Result<Vec<_>>>()?;
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|i| (i.name.as_str(), i.tensor.view())).collect();
    println!("ready");
    let started = Instant::now();
    let session = Session::new(Model::load(model)?, options)?;
    println!("loaded {:.4}", milliseconds(started));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        // A path may have blanks in it.
        let (command, rest) = line.split_once(' ').unwrap_or((line.as_str(), ""));
        match command {
            "run" => {
                let (warm, timed) = rest.split_once(' ').ok_or("expected run WARM TIMED")?;
                for _ in 0..warm.parse()? {
                    session.run(&views)?;
                }
                let mut answer = String::from("times");
                for _ in 0..timed.parse()? {
                    let started = Instant::now();
                    session.run(&views)?;
                    answer += &format!(" {:.4}", milliseconds(started));
                }
                println!("{answer}");
            }
            "profile" => profile(&session, &views, rest.parse()?)?,
            "save" => {
                let mut bytes = Vec::new();
                for output in session.run(&views)? {
                    bytes.extend(
                        output.tensor.as_slice::<f32>()?.iter().flat_map(|v| v.to_le_bytes()),
                    );
                }
                std::fs::write(rest, bytes)?;
                println!("saved");
            }
            _ => return Err(format!("unknown command '{line}'").into()),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn options(precision: &str, threads: usize) -> Result<SessionOptions> {
    let precision = match precision {
        "exact" => Precision::Exact,
        "fast" => Precision::Fast,
        other => return Err(format!("no precision '{other}', expected exact or fast").into()),
    };
    Ok(SessionOptions { precision, ..SessionOptions::with_threads(threads) })
}

fn milliseconds(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// Reads an input written as `NAME:DTYPE:DIMS:FILE`; the file has its bytes in little-endian order.
fn read(text: &str) -> Result<NamedTensor> {
    let mut parts = text.splitn(4, ':');
    let mut part = || parts.next().ok_or("expected NAME:DTYPE:DIMS:FILE");
    let (name, dtype, dims, file) = (part()?, part()?, part()?, part()?);
    let dtype = match dtype {
        "f32" => DType::F32,
        "i64" => DType::I64,
        other => return Err(format!("no element type '{other}', expected f32 or i64").into()),
    };
    let dims: Vec<usize> =
        dims.split('x').map(str::parse).collect::<std::result::Result<_, _>>()?;
    Ok(NamedTensor::new(name, Tensor::from_bytes(dtype, dims, &std::fs::read(file)?)?))
}

/// Prints the operators and the nodes of the fastest of some runs.
fn profile(session: &Session, views: &[(&str, TensorView<'_>)], runs: usize) -> Result<()> {
    let mut fastest: Option<Profile> = None;
    for _ in 0..runs.max(1) {
        let mut profile = Profile::default();
        session.run_with(views, RunOptions::new().profile(&mut profile))?;
        if fastest.as_ref().is_none_or(|least| profile.total < least.total) {
            fastest = Some(profile);
        }
    }
    let profile = fastest.unwrap_or_default();
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    println!("total {:.4} between nodes {:.4}", ms(profile.total), ms(profile.overhead()));
    for (op, count, time) in profile.by_operator() {
        println!("operator {op} {count} {:.4}", ms(time));
    }
    let mut nodes: Vec<_> = profile.nodes.iter().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.duration));
    for node in nodes {
        let rate = node.multiply_adds as f64 / node.duration.as_secs_f64().max(1e-9) / 1e9;
        let outputs: Vec<String> = node.outputs.iter().map(ToString::to_string).collect();
        println!(
            "node {} {} {:.4} {rate:.1} G/s {}",
            node.op,
            node.name,
            ms(node.duration),
            outputs.join(" ")
        );
    }
    println!("profiled");
    Ok(())
}
