//! Commands whose results count as tests.

use crate::report::{Outcome, Skip};
use crate::{cmd, python};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// Runs a command that counts as one test.
pub(crate) fn step(command: &mut Command) -> Result<Outcome> {
    let line = cmd::line(command);
    let finished = cmd::capture(command)?;
    if finished.ok {
        return Ok(Outcome::pass());
    }
    eprintln!("{}", finished.output);
    Ok(Outcome::fail(format!("`{line}` ended with a failure")))
}

/// Concurrent tests within one program: most of them wait most of the time.
const THREADS: &str = "4";

/// Runs and counts the tests that `selection` selects.
pub(crate) fn tests(selection: &[&str]) -> Result<Outcome> {
    let mut cargo = cmd::cargo();
    cargo.env("RUST_TEST_THREADS", THREADS);
    if let Some(nvrtc) = python::nvrtc_libraries() {
        let known = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let folders = std::env::split_paths(&known).filter(|it| !it.as_os_str().is_empty());
        cargo.env("LD_LIBRARY_PATH", std::env::join_paths(folders.chain([nvrtc]))?);
    }
    cargo.args(["test", "--no-fail-fast"]).args(selection);
    // Tests that cannot run print why, and passing tests' output is shown only when asked for.
    cargo.args(["--", "--show-output"]);
    let finished = cmd::stdout(&mut cargo)?;
    let mut outcome = count(&finished.output);
    if !finished.ok {
        eprintln!("{}", failures(&finished.output));
        if outcome.failed.is_empty() {
            outcome.failed.push("the tests do not compile".to_owned());
        }
    }
    Ok(outcome)
}

/// Runs `path` with a prepared Python and `arguments`; it prints a line for each of its tests.
pub(crate) fn script(python: Result<PathBuf>, path: &str, arguments: &[&str]) -> Result<Outcome> {
    let python = match python {
        Ok(python) => python,
        Err(error) => return Ok(Outcome::skip(Skip::new("python", format!("{error:#}")))),
    };
    let finished = cmd::stdout(cmd::command(python).arg(path).args(arguments))?;
    let mut outcome = Outcome::read(&finished.output);
    if !finished.ok && outcome.failed.is_empty() {
        outcome.failed.push(format!("{path} ended with a failure"));
    } else if outcome.passed == 0 && outcome.skipped.is_empty() {
        outcome.failed.push(format!("{path} reports no test"));
    }
    if !outcome.failed.is_empty() {
        eprintln!("{}", finished.output);
    }
    Ok(outcome)
}

/// Counts what cargo's test programs report. A test that prints `skipped: …` did not pass.
fn count(output: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in output.lines() {
        if let Some(skip) = Skip::parse(line) {
            outcome.skipped.push(skip);
        } else if let Some(name) = failed_test(line) {
            outcome.failed.push(name.to_owned());
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            let number = |what: &str| {
                let part = counts.split([';', '.']).find(|part| part.trim().ends_with(what));
                part.and_then(|part| part.split_whitespace().next()?.parse::<usize>().ok())
            };
            outcome.passed += number(" passed").unwrap_or(0);
            let ignored = number(" ignored").unwrap_or(0);
            outcome.skipped.extend((0..ignored).map(|_| Skip::new("", "a test is marked ignored")));
        }
    }
    let reported = outcome.skipped.iter().filter(|skip| skip.reason != "a test is marked ignored");
    outcome.passed = outcome.passed.saturating_sub(reported.count());
    outcome
}

/// The output of failed tests only, so that a truncated log does not lose it.
fn failures(output: &str) -> String {
    let mut shown = false;
    let mut text = String::new();
    for line in output.lines() {
        shown = match line {
            "failures:" => true,
            "successes:" => false,
            _ => shown && !line.starts_with("test result: "),
        };
        if shown {
            text += line;
            text.push('\n');
        }
    }
    text
}

fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_are_counted() {
        let output = "test a ... ok\nskipped: opencl: no platform\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
            test b::c ... FAILED\n\
            test result: FAILED. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let outcome = count(output);
        assert_eq!(outcome.passed, 7);
        assert_eq!(outcome.failed, ["b::c"]);
        let reasons: Vec<&str> = outcome.skipped.iter().map(|s| s.reason.as_str()).collect();
        assert_eq!(reasons, ["no platform", "a test is marked ignored"]);
    }

    #[test]
    fn only_failures_are_shown() {
        let output = "test a ... ok\ntest b ... FAILED\n\nsuccesses:\n\n---- a stdout ----\nfine\n\n\
            failures:\n\n---- b stdout ----\nbroken\n\n\nfailures:\n    b\n\n\
            test result: FAILED. 1 passed; 1 failed\n\nsuccesses:\n    c\n";
        let shown = failures(output);
        assert!(shown.contains("---- b stdout ----\nbroken\n"), "{shown}");
        assert!(!shown.contains("fine") && !shown.contains("    c"), "{shown}");
    }
}
