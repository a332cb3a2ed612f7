//! Unmodified clients of other projects against a running server: Triton's, its load generator, KServe's, and Frigate's
//! detector.

use crate::cluster::{Cluster, Profile};
use crate::report::{Outcome, Skip};
use crate::{apt, cmd, python, step};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Modes of `perf_analyzer`: a name, its arguments, and whether it needs a key.
const WAYS: [(&str, &[&str], bool); 5] = [
    ("HTTP", &["-i", "http"], false),
    ("gRPC", &["-i", "grpc"], false),
    ("gRPC streaming", &["-i", "grpc", "--streaming"], false),
    ("HTTP and shared memory", &["-i", "http", "--shared-memory", "system"], true),
    ("gRPC and shared memory", &["-i", "grpc", "--shared-memory", "system"], true),
];

pub(crate) fn tritonclient() -> Result<Outcome> {
    let cluster = Cluster::start(Profile::Dev, "tritonclient")?;
    let (http, grpc) = (cluster.http()?, cluster.grpc()?);
    let arguments = [http.as_str(), &grpc, &cluster.key_file()];
    let outcome =
        step::script(python::interpreter(), "apps/server/tests/tritonclient_e2e.py", &arguments);
    cluster.stop()?;
    outcome
}

pub(crate) fn kserve() -> Result<Outcome> {
    let cluster = Cluster::start(Profile::Dev, "kserve")?;
    let outcome =
        step::script(python::kserve(), "apps/server/tests/kserve_e2e.py", &[&cluster.http()?]);
    cluster.stop()?;
    outcome
}

pub(crate) fn frigate() -> Result<Outcome> {
    let more = ["--frigate", "127.0.0.1:0"];
    // A long timeout, so that a busy machine does not cause empty answers.
    let patience = [("RADEON_FRIGATE__TIMEOUT_MS", "10000")];
    let cluster = Cluster::start_with(Profile::Dev, "frigate", 2, &more, &patience)?;
    let script = "apps/server/tests/frigate_e2e.py";
    let outcome = step::script(python::frigate(), script, &[cluster.frigate()?]);
    cluster.stop()?;
    outcome
}

/// A short measurement of the bundled model in each way.
pub(crate) fn perf_analyzer() -> Result<Outcome> {
    let program = match perf_analyzer_program() {
        Ok(program) => program,
        Err(error) => return Ok(Outcome::skip(Skip::new("perf_analyzer", format!("{error:#}")))),
    };
    let cluster = Cluster::start(Profile::Dev, "perf-analyzer")?;
    let http = cluster.http()?.trim_start_matches("http://").to_owned();
    let grpc = cluster.grpc()?;
    let key = std::fs::read_to_string(cluster.key_file())?;
    let mut outcome = Outcome::default();
    for (name, arguments, with_key) in WAYS {
        let address = if arguments.contains(&"grpc") { &grpc } else { &http };
        let mut command = program()?;
        command.args(["-m", "digits", "--shape", "image:1,1,8,8", "--concurrency-range", "4"]);
        // Whether times are stable is not asked here.
        command.args(["-p", "300", "-r", "3", "-s", "999", "-u", address]).args(arguments);
        if with_key {
            command.args(["--output-shared-memory-size", "65536", "-H"]);
            command.arg(format!("authorization:Bearer {}", key.trim()));
        }
        let finished = cmd::capture(&mut command)?;
        if finished.ok && measured(&finished.output) {
            outcome.passed += 1;
        } else {
            eprintln!("{}", finished.output);
            outcome.failed.push(format!("perf_analyzer over {name}"));
        }
    }
    cluster.stop()?;
    Ok(outcome)
}

/// Whether the program's report has a throughput.
fn measured(output: &str) -> bool {
    let figures = output.lines().filter_map(|line| line.trim().strip_prefix("Throughput: "));
    let mut figures = figures.filter_map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    figures.any(|throughput| throughput > 0.0)
}

/// The command of the program, with the libraries that it links.
fn perf_analyzer_program() -> Result<impl Fn() -> Result<Command>> {
    apt::libb64()?;
    let python = python::perf_analyzer()?;
    let folder = python.parent().unwrap_or(Path::new("")).to_owned();
    let libraries = python::libraries(&python, "cuda_runtime")?;
    Ok(move || {
        let mut command = cmd::command(folder.join("perf_analyzer"));
        command.env("LD_LIBRARY_PATH", &libraries);
        Ok(command)
    })
}
