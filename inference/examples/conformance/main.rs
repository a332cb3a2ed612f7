//! Runs the tests that the `onnx` package carries as files, and prints a line for each:
//! `conformance DATA_FOLDER [TEXT]`, where TEXT selects the tests whose name contains it.
//!
//! A line has five fields between tabs: suite, test, its operators, `ok` or `failed`, the reason.
//! Lines of the suite `operator` name the operators that exist. What is expected to fail is the
//! caller's business.

mod case;
mod compare;
mod pool;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The suites, which are folders of the package.
const SUITES: &[&str] = &["node", "simple", "pytorch-operator", "pytorch-converted", "light"];

/// One test of a suite.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    suite: &'static str,
    name: String,
    model: PathBuf,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [data, only @ ..] = args.as_slice() else {
        eprintln!("usage: conformance DATA_FOLDER [TEXT]");
        return ExitCode::FAILURE;
    };
    let only = only.first().map_or("", String::as_str);
    let tests = match find(Path::new(data), only) {
        Ok(tests) => tests,
        Err(error) => {
            eprintln!("{data}: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (domain, name) in lgp_inference::supported_operators() {
        println!("operator\t{domain}::{name}\t\tok\t");
    }
    pool::run(tests, |test, operators, outcome| {
        let (verdict, reason) = match outcome {
            Ok(()) => ("ok", String::new()),
            Err(reason) => ("failed", reason.replace(['\t', '\n'], " ")),
        };
        println!("{}\t{}\t{operators}\t{verdict}\t{reason}", test.suite, test.name);
    });
    ExitCode::SUCCESS
}

/// Every test in the data folder, in the order of names.
fn find(data: &Path, only: &str) -> std::io::Result<Vec<Test>> {
    let mut tests = Vec::new();
    for suite in SUITES {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(data.join(suite))? {
            paths.push(entry?.path());
        }
        paths.sort();
        for path in paths {
            let Some(name) = path.file_stem().map(|n| n.to_string_lossy().into_owned()) else {
                continue;
            };
            let model = if *suite == "light" { path.clone() } else { path.join("model.onnx") };
            let is_model = model.extension().is_some_and(|e| e == "onnx") && model.is_file();
            if is_model && name.contains(only) {
                tests.push(Test { suite, name, model });
            }
        }
    }
    Ok(tests)
}
