//! Builds the fuzz targets with coverage counters and runs them for a number of executions.

use crate::cmd;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The instrumentation for libFuzzer: counters at every edge, and the operands of comparisons.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Set explicitly, so that the flags apply to the code under test but not to build scripts.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Larger seeds are a bad start for small mutations.
const SEED_BYTES_MAX: u64 = 64 << 10;

/// What is fuzzed.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Target {
    /// Models: read, and compiled into a session.
    Onnx,
    /// Files of weights: every tensor is read.
    Weights,
    /// What peers of a cluster, machines that join it and its journal bring.
    Messages,
    /// Bodies of inference requests and tasks over HTTP.
    Http,
    /// Messages of inference requests over gRPC.
    Grpc,
    /// Sources of kernels in the portable language: compiled to SPIR-V.
    Portable,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Onnx => "onnx",
            Self::Weights => "weights",
            Self::Messages => "messages",
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Portable => "portable",
        }
    }
}

/// Flags of `fuzz`.
#[derive(Args)]
pub(crate) struct Options {
    /// How many inputs to try.
    #[arg(long, default_value_t = 1_000_000)]
    executions: u64,
    /// Add the result to this page, such as docs/bench-runs/DATE-fuzz.md.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Runs `target`; an input that breaks it is kept below `target/fuzz/artifacts`.
pub(crate) fn run(target: Target, options: &Options) -> Result<()> {
    let name = target.name();
    let home = cmd::root().join("target/fuzz");
    let (corpus, artifacts) = (home.join("corpus").join(name), home.join("artifacts").join(name));
    std::fs::create_dir_all(&corpus)?;
    std::fs::create_dir_all(&artifacts)?;
    let seeds = seed(target, &corpus)?;
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--release", "--jobs", "2", "--target", TRIPLE, "--bin", name]);
    cargo.arg("--manifest-path").arg(cmd::root().join("fuzz/Cargo.toml"));
    cargo.arg("--target-dir").arg(&home).env("RUSTFLAGS", FLAGS);
    cmd::run(&mut cargo)?;
    let mut fuzzer = cmd::command(home.join(TRIPLE).join("release").join(name));
    fuzzer.arg(format!("-runs={}", options.executions)).arg("-print_final_stats=1");
    fuzzer.args(["-max_len=65536", "-timeout=60", "-rss_limit_mb=4096"]);
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&corpus);
    let finished = cmd::capture(&mut fuzzer)?;
    std::fs::write(home.join(format!("{name}.log")), &finished.output)?;
    let result = summary(name, seeds, &finished.output, finished.ok);
    print!("{result}");
    if let Some(page) = &options.record {
        record(page, &result).with_context(|| page.display().to_string())?;
    }
    if !finished.ok {
        bail!("{name} broke; the input is in {}", artifacts.display());
    }
    Ok(())
}

/// Appends a summary to a page; a new page gets its heading first.
fn record(page: &Path, result: &str) -> std::io::Result<()> {
    let mut page = std::fs::OpenOptions::new().create(true).append(true).open(page)?;
    let heading = if page.metadata()?.len() == 0 { "# Fuzzing\n" } else { "" };
    page.write_all(format!("{heading}{result}").as_bytes())
}

/// Copies small valid files into the corpus, and answers their number.
fn seed(target: Target, corpus: &Path) -> Result<usize> {
    let mut files = Vec::new();
    match target {
        Target::Onnx => {
            let tests = cmd::root().join("target/onnx-1.22.0/onnx/backend/test/data");
            collect(&tests, "onnx", &mut files);
            files.push(cmd::root().join("apps/cli/assets/digits/digits.onnx"));
        }
        Target::Weights => {
            for extension in ["pt", "safetensors", "gguf"] {
                collect(&cmd::root().join("inference/tests/weights"), extension, &mut files);
            }
        }
        Target::Http => collect(&cmd::root().join("fuzz/seeds/http"), "body", &mut files),
        Target::Grpc => collect(&cmd::root().join("fuzz/seeds/grpc"), "pb", &mut files),
        Target::Portable => {
            for folder in ["compute/src", "portable/tests"] {
                collect(&cmd::root().join(folder), "cl", &mut files);
            }
        }
        Target::Messages => {
            let folder = cmd::root().join("target/fuzz/messages");
            let write = cmd::simulation("messages")?;
            cmd::run(cmd::command(write).arg(&folder))?;
            collect(&folder, "message", &mut files);
        }
    }
    files.retain(|file| file.metadata().is_ok_and(|file| file.len() <= SEED_BYTES_MAX));
    for (number, file) in files.iter().enumerate() {
        std::fs::copy(file, corpus.join(format!("seed-{number}")))?;
    }
    Ok(files.len())
}

/// The files below `folder` with an extension; none where there is no such folder.
fn collect(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect(&path, extension, files);
        } else if path.extension() == Some(OsStr::new(extension)) {
            files.push(path);
        }
    }
}

/// A run's summary: libFuzzer's figures, and its findings.
fn summary(name: &str, seeds: usize, output: &str, ok: bool) -> String {
    let mut text = format!("\n## `{name}`\n\n{seeds} seeds; ");
    text += if ok { "nothing found\n\n" } else { "an input breaks it\n\n" };
    let figures = output.lines().filter_map(|line| line.strip_prefix("stat::"));
    for (figure, value) in figures.filter_map(|line| line.split_once(':')) {
        text += &format!("- {figure}: {}\n", value.trim());
    }
    let found = |line: &&str| line.contains("panicked at") || line.starts_with("SUMMARY");
    for line in output.lines().filter(found) {
        text += &format!("- found: {line}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_figures_and_findings() {
        let output = "INFO: x\nstat::number_of_executed_units: 12\nstat::average_exec_per_sec: 3\n";
        let good = summary("onnx", 2, output, true);
        assert!(good.contains("2 seeds; nothing found") && good.contains("executed_units: 12"));
        let bad = summary("onnx", 2, "thread panicked at a.rs:1\nother\n", false);
        assert!(bad.contains("breaks it") && bad.ends_with("- found: thread panicked at a.rs:1\n"));
    }

    #[test]
    fn a_page_keeps_what_it_has() -> std::io::Result<()> {
        let page = std::env::temp_dir().join(format!("lgp-fuzz-{}.md", std::process::id()));
        record(&page, "\n1\n")?;
        assert_eq!(std::fs::read(&page)?, b"# Fuzzing\n\n1\n");
        // Text that is not UTF-8 is kept too.
        std::fs::write(&page, b"\xff\n")?;
        record(&page, "\n2\n")?;
        assert_eq!(std::fs::read(&page)?, b"\xff\n\n2\n");
        std::fs::remove_file(&page)
    }
}
