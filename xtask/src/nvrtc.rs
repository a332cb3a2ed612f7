//! Checks with NVRTC that every kernel compiles for NVIDIA's processors without spilling; no card
//! is needed.

mod log;

use crate::kept::{Kept, Key};
use crate::kernels::{Kernels, Variant};
use crate::report::{Outcome, Skip};
use crate::{cmd, python};
use anyhow::{Context, Result, bail, ensure};
use log::Resources;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Pascal, Turing and Hopper.
const CHIPS: &[&str] = &["sm_61", "sm_75", "sm_90"];
/// The script that calls NVRTC, whose library comes as a Python wheel.
const SCRIPT: &str = "xtask/src/nvrtc/compile.py";
/// The other inputs of the figures: the compiler, and its readers.
const READERS: &[&str] =
    &[include_str!("python.rs"), include_str!("nvrtc/compile.py"), include_str!("nvrtc/log.rs")];
/// The expected verdict on each kernel of the fixture, on every chip.
const FIXTURE: &[(&str, Option<&str>)] = &[
    ("fits", None),
    ("spills", Some("B of spills, none wanted")),
    ("broken", Some("does not compile: ")),
];

/// A kernel to be compiled, for the script.
#[derive(Serialize)]
struct Job {
    source: String,
    chip: &'static str,
}

/// The script's answer to a job.
#[derive(Deserialize)]
struct Answer {
    compiled: bool,
    log: String,
}

/// One kernel on one chip.
struct Kernel<'a> {
    name: &'a str,
    chip: &'static str,
    /// The resources, or why the kernel does not compile.
    resources: Result<Resources, String>,
}

/// Prints the figures of the engine's kernels; a kernel that spills or does not compile is an
/// error.
pub(crate) fn run() -> Result<()> {
    let python = python::nvrtc()?;
    let engine = Kernels::of_engine()?;
    let kernels = compile(&engine, &python, CHIPS)?;
    print!("{}", table(&kernels));
    let violations: Vec<String> = kernels.iter().filter_map(Kernel::violation).collect();
    for violation in &violations {
        eprintln!("{violation}");
    }
    if !violations.is_empty() {
        bail!("{} kernels spill or do not compile", violations.len());
    }
    Ok(())
}

/// The check as a suite of tests: of a fixture that breaks its rules, then of the engine's kernels.
pub(crate) fn suite() -> Result<Outcome> {
    let python = match python::nvrtc() {
        Ok(python) => python,
        Err(error) => return Ok(Outcome::skip(Skip::new("nvrtc", format!("{error:#}")))),
    };
    let fixture = Kernels::of_fixture("nvrtc")?;
    let mut outcome = check_fixture(&compile(&fixture, &python, CHIPS)?);
    let engine = Kernels::of_engine()?;
    // One chip, to save time; the command checks all.
    for kernel in compile(&engine, &python, &CHIPS[..1])? {
        outcome.and(kernel.violation().map_or_else(Outcome::pass, Outcome::fail));
    }
    Ok(outcome)
}

fn check_fixture(kernels: &[Kernel]) -> Outcome {
    let mut outcome = Outcome::default();
    for (name, wanted) in FIXTURE {
        for chip in CHIPS {
            let kernel = kernels.iter().find(|kernel| kernel.name == *name && kernel.chip == *chip);
            let found = kernel.map(Kernel::violation);
            let agrees = found.as_ref().is_some_and(|found| match (found, wanted) {
                (Some(found), Some(wanted)) => found.contains(wanted),
                (found, wanted) => found.is_none() && wanted.is_none(),
            });
            if agrees {
                outcome.passed += 1;
            } else {
                let failed = format!("fixture {name} on {chip}: {found:?}, expected {wanted:?}");
                outcome.failed.push(failed);
            }
        }
    }
    outcome
}

impl Kernel<'_> {
    fn violation(&self) -> Option<String> {
        let what = match &self.resources {
            Ok(resources) if resources.spill_bytes == 0 => return None,
            Ok(resources) => format!("{} B of spills, none wanted", resources.spill_bytes),
            Err(why) => format!("does not compile: {why}"),
        };
        Some(format!("{} on {}: {what}", self.name, self.chip))
    }
}

/// Compiles every variant for every chip, except for results that are kept.
fn compile<'a>(
    kernels: &'a Kernels,
    python: &Path,
    chips: &[&'static str],
) -> Result<Vec<Kernel<'a>>> {
    let kept = Kept::open("nvrtc")?;
    let mut done = Vec::new();
    let mut missing: Vec<(&Variant, &'static str, Key)> = Vec::new();
    let mut jobs = Vec::new();
    for variant in &kernels.variants {
        let source = kernels.source(variant, "cu")?;
        for &chip in chips {
            let key = Key::new((READERS, chip, &source, &variant.kernel));
            if let Some(resources) = kept.get(&key) {
                done.push(Kernel { name: &variant.name, chip, resources: Ok(resources) });
                continue;
            }
            jobs.push(Job { source: source.clone(), chip });
            missing.push((variant, chip, key));
        }
    }
    for ((variant, chip, key), Answer { compiled, log }) in missing.iter().zip(ask(&jobs, python)?)
    {
        let resources = if compiled {
            let resources = Resources::parse(&log, &variant.kernel)
                .with_context(|| format!("{} on {chip}", variant.name))?;
            kept.put(key, &resources)?;
            Ok(resources)
        } else {
            let error = log.lines().find(|line| line.contains("error"));
            Err(error.unwrap_or("no reason given").to_owned())
        };
        done.push(Kernel { name: &variant.name, chip, resources });
    }
    done.sort_by_key(|kernel| (kernel.name, kernel.chip));
    Ok(done)
}

/// Lets the script compile all jobs.
fn ask(jobs: &[Job], python: &Path) -> Result<Vec<Answer>> {
    if jobs.is_empty() {
        return Ok(Vec::new());
    }
    let file = cmd::root().join("target/xtask/nvrtc-jobs.json");
    std::fs::write(&file, serde_json::to_vec(jobs)?)?;
    let finished = cmd::stdout(cmd::command(python).arg(SCRIPT).arg(file))?;
    ensure!(finished.ok, "{SCRIPT} ended with a failure");
    let answers = finished.output.lines().map(serde_json::from_str);
    let answers = answers.collect::<Result<Vec<Answer>, _>>().context("answers of NVRTC")?;
    ensure!(answers.len() == jobs.len(), "{} answers to {} jobs", answers.len(), jobs.len());
    Ok(answers)
}

fn table(kernels: &[Kernel]) -> String {
    let width = kernels.iter().map(|kernel| kernel.name.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  chip   registers  spills  stack\n", "name");
    for Kernel { name, chip, resources } in kernels {
        let Ok(Resources { registers, spill_bytes, stack_bytes }) = resources else { continue };
        text +=
            &format!("{name:width$}  {chip}  {registers:9}  {spill_bytes:6}  {stack_bytes:5}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_and_failures_are_complaints() {
        let fits = Resources { registers: 255, spill_bytes: 0, stack_bytes: 40 };
        let cases = [
            (Ok(fits), None),
            (
                Ok(Resources { spill_bytes: 8, ..fits }),
                Some("gemm on sm_61: 8 B of spills, none wanted"),
            ),
            (Err("no".to_owned()), Some("gemm on sm_61: does not compile: no")),
        ];
        for (resources, wanted) in cases {
            let kernel = Kernel { name: "gemm", chip: "sm_61", resources };
            assert_eq!(kernel.violation().as_deref(), wanted);
        }
        // With nothing compiled there is no complaint, but the fixture is not satisfied.
        assert_eq!(check_fixture(&[]).passed, 0);
    }
}
