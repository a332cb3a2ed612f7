//! The laws that every implementation obeys, run as programs that print a line for each.

mod expected;
mod onnx;
mod table;

use crate::apt;
use crate::cmd;
use crate::report::{Outcome, Skip};
use anyhow::{Result, bail};
use clap::ValueEnum;

/// A body of laws.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Suite {
    /// Backends: buffers, queues and programs.
    Hal,
    /// The engine: the tests that come with ONNX.
    Onnx,
}

/// Runs `suite` and shows its output. A broken law fails, and so does a missing required device.
/// `write` generates documents from the results.
pub(crate) fn run(suite: Suite, require: &[String], write: bool) -> Result<()> {
    let outcome = match suite {
        Suite::Hal => {
            let (output, outcome) = hal()?;
            print!("{output}");
            outcome
        }
        Suite::Onnx => {
            let outcome = onnx::run(write)?;
            outcome.failed.iter().for_each(|line| println!("{line}"));
            println!("{} tests are as expected", outcome.passed);
            outcome
        }
    };
    let missing = outcome.skipped.iter().find(|skip| require.contains(&skip.need));
    if let Some(Skip { need, reason }) = missing {
        bail!("{need} is required: {reason}");
    }
    if let Some(first) = outcome.failed.first() {
        bail!("{} failures, the first: {first}", outcome.failed.len());
    }
    Ok(())
}

/// ONNX's tests as a suite of tests.
pub(crate) fn onnx_suite() -> Result<Outcome> {
    onnx::run(false)
}

/// The backends' laws as a suite of tests.
pub(crate) fn suite() -> Result<Outcome> {
    let (output, outcome) = hal()?;
    if !outcome.failed.is_empty() {
        eprint!("{output}");
    }
    Ok(outcome)
}

fn hal() -> Result<(String, Outcome)> {
    if let Err(error) = apt::opencl() {
        eprintln!("without OpenCL: {error:#}");
    }
    if let Err(error) = apt::vulkan() {
        eprintln!("without Vulkan: {error:#}");
    }
    let finished = cmd::stdout(&mut cmd::command(cmd::programs()?.join("lgp-hal-conformance")))?;
    let mut outcome = Outcome::read(&finished.output);
    if !finished.ok && outcome.failed.is_empty() {
        outcome.failed.push("the program ended with a failure".to_owned());
    }
    Ok((finished.output, outcome))
}
