//! All checks of a change, suite after suite, from a cold clone.

use crate::report::{Outcome, Report, Skip, Time};
use crate::step::{step, tests};
use crate::{
    alone, apt, book, cards, chaos, clients, cmd, conformance, kubernetes, nehalem, nvrtc,
    oclgrind, packages, promtool, python, readme, tidy, wheel,
};
use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// Longer tests would not be run often enough. The same tests take up to twice as long on a shared machine.
const TIME: Time =
    Time { wanted: Duration::from_secs(45 * 60), limit: Duration::from_secs(75 * 60) };
/// How many seeds of the simulations every run tries, of the core and of several coordinators; `cargo
/// xtask sim` tries more.
const SEEDS: u64 = 2000;
const SEEDS_AMONG: u64 = 300;
/// One suite: its name and what it does.
type Suite = (&'static str, fn() -> Result<Outcome>);
/// The suite after which processors have idle time.
const COMPILED: &str = "tests compile";

/// A program or library that tests look for.
struct Need {
    name: &'static str,
    install: fn() -> Result<()>,
    /// The suites with such tests. The first of them that runs installs it.
    suites: &'static [&'static str],
}

const ALONE: &str = "the first and the last crate alone";
const WORKSPACE: &str = "unit, integration and doc tests";
const ON_OPENCL: &str = "networks on OpenCL";
const ON_VULKAN: &str = "networks on Vulkan";
const ON_TWO: &str = "networks on two devices";

/// The needs of tests. Further needs are installed by the suites that have them.
const NEEDS: &[Need] = &[
    Need { name: "OpenCL", install: apt::opencl, suites: &[ALONE, WORKSPACE, ON_OPENCL, ON_TWO] },
    Need { name: "Vulkan", install: apt::vulkan, suites: &[ALONE, WORKSPACE, ON_VULKAN] },
    Need { name: "a validator of SPIR-V", install: apt::spirv, suites: &[WORKSPACE] },
    Need { name: "NVRTC", install: || python::nvrtc().map(drop), suites: &[ALONE, WORKSPACE] },
    Need { name: "promtool", install: apt::promtool, suites: &[WORKSPACE] },
    Need { name: "Chromium", install: apt::chromium, suites: &[WORKSPACE] },
    Need { name: "axe-core", install: apt::axe, suites: &[WORKSPACE] },
    Need { name: "PostgreSQL", install: apt::postgresql, suites: &[WORKSPACE] },
    Need { name: "etcd and NATS", install: apt::etcd_and_nats, suites: &[WORKSPACE] },
    Need { name: "a server of S3", install: || python::s3().map(drop), suites: &[WORKSPACE] },
];

const SUITES: &[Suite] = &[
    ("format", || step(cmd::cargo().args(["fmt", "--all", "--check"]))),
    ("clippy", || {
        let mut cargo = cmd::cargo();
        cargo.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
        step(cargo.args(["--", "-D", "warnings"]))
    }),
    ("tidy", tidy::suite),
    ("deny", deny),
    (ALONE, alone::sample),
    (COMPILED, || step(cmd::cargo().args(["test", "--quiet", "--workspace", "--no-run"]))),
    (WORKSPACE, workspace),
    ("hal conformance", conformance::suite),
    ("ONNX conformance", conformance::onnx_suite),
    ("cluster simulation", simulation),
    ("a cluster that is killed", chaos::suite),
    ("agreement with ONNX Runtime", agreement),
    (ON_OPENCL, || networks("opencl:0", zoo()?)),
    (ON_VULKAN, networks_on_vulkan),
    ("networks on CUDA", || networks("cuda:0", zoo()?)),
    (ON_TWO, networks_on_two),
    ("tritonclient against the server", clients::tritonclient),
    ("kserve against the server", clients::kserve),
    ("perf_analyzer against the server", clients::perf_analyzer),
    ("promtool reads the metrics", promtool::suite),
    ("frigate's detector against the server", clients::frigate),
    ("a processor without AVX", nehalem::suite),
    ("kernels on AMD's processors", cards::suite),
    ("kernels on NVIDIA's processors", nvrtc::suite),
    ("races and bounds of kernels", oclgrind::suite),
    ("kubernetes manifests", kubernetes::suite),
    ("packages", packages::suite),
    ("python package", wheel::suite),
    ("book", book::suite),
    ("README commands", readme::suite),
];

/// Runs the suites whose name contains `only`; an error when anything failed.
pub(crate) fn run(require: &[String], only: Option<&str>) -> Result<()> {
    let mut report = Report::new(require);
    let (mut ahead, mut tried) = (None, BTreeSet::new());
    for (name, run) in SUITES {
        if only.is_none_or(|only| name.contains(only)) {
            report.suite(name, || {
                install(name, &mut tried);
                run()
            });
        }
        if only.is_none() && *name == COMPILED {
            ahead = readme::ahead().unwrap_or_else(|error| {
                eprintln!("the README's program is not compiled ahead: {error:#}");
                None
            });
        }
    }
    if let Some(mut ahead) = ahead {
        // The README suite has waited for it already.
        ahead.wait()?;
    }
    if !report.close(&TIME) {
        bail!("not everything passed");
    }
    Ok(())
}

/// Installs the needs of a suite that were not `tried` before. Tests whose needs are missing report
/// that they were skipped.
fn install(suite: &str, tried: &mut BTreeSet<&str>) {
    for Need { name, install, .. } in needs(suite) {
        if tried.insert(name)
            && let Err(error) = install()
        {
            eprintln!("without {name}: {error:#}");
        }
    }
}

/// The needs of a suite's tests.
fn needs(suite: &str) -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(move |need| need.suites.contains(&suite))
}

fn deny() -> Result<Outcome> {
    if !cmd::capture(cmd::cargo().args(["deny", "--version"]))?.ok {
        let reason = "cargo-deny is not installed; `cargo install cargo-deny` brings it";
        return Ok(Outcome::skip(Skip::new("cargo-deny", reason)));
    }
    step(cmd::cargo().args(["deny", "--offline", "check", "licenses", "bans", "sources"]))
}

fn workspace() -> Result<Outcome> {
    // The simulation's crate turns `lgp-distributed/planted` on, and programs are built without it:
    // both forms of the core are tried.
    tests(&["--workspace"])
}

/// Generated reference networks, every family in its small form, and the bundled model, in our
/// engine and in ONNX Runtime.
fn agreement() -> Result<Outcome> {
    let python = match python::interpreter() {
        Ok(python) => python,
        Err(error) => return Ok(Outcome::skip(Skip::new("python", format!("{error:#}")))),
    };
    let examples = cmd::programs()?.join("examples");
    let mut models = zoo()?;
    models.extend(write_networks("zoo-tiny", &["--tiny"])?);
    let mut compare = cmd::command(python);
    compare.arg("inference/tests/ort_agreement.py").arg(examples.join("run_onnx"));
    // The small forms have so many tokens.
    compare.args(["--vocabulary", "99"]);
    let finished = cmd::capture(compare.args(&models))?;
    eprint!("{}", finished.output);
    if finished.ok {
        return Ok(Outcome { passed: models.len(), ..Outcome::default() });
    }
    // The table lists the models that ran; other lines name those that disagree.
    let failed = finished.output.lines().filter(|line| !line.starts_with('|'));
    let failed: Vec<String> = failed.map(str::to_owned).collect();
    let passed = models.len().saturating_sub(failed.len());
    Ok(Outcome { passed, failed, ..Outcome::default() })
}

/// Compares networks between a device, if there is one, and the CPU.
fn networks(device: &str, files: Vec<String>) -> Result<Outcome> {
    on_device(cmd::command(on_device_program()?).arg(device).args(files))
}

/// The same on Vulkan, without the networks for which its driver for processors takes half a minute a run.
fn networks_on_vulkan() -> Result<Outcome> {
    let mut files = zoo()?;
    files.retain(|path| !path.contains("resnet50"));
    networks("vulkan:0", files)
}

/// Runs some networks over two devices, neither of which has memory for a whole one; PoCL provides two.
fn networks_on_two() -> Result<Outcome> {
    let few = zoo()?.into_iter().filter(|path| TWO.iter().any(|name| path.ends_with(name)));
    let mut program = cmd::command(on_device_program()?);
    on_device(program.env("POCL_DEVICES", "pthread pthread").arg("opencl:0,opencl:1").args(few))
}

/// The networks that every run splits: a small one, one whose values take more memory than its weights, and one with
/// larger weights.
const TWO: [&str; 3] = ["digits.onnx", "mobilenetv2.onnx", "resnet50.onnx"];

fn on_device_program() -> Result<std::path::PathBuf> {
    Ok(cmd::programs()?.join("examples/on_device"))
}

fn on_device(command: &mut Command) -> Result<Outcome> {
    let finished = cmd::capture(command)?;
    eprint!("{}", finished.output);
    let mut outcome = Outcome::read(&finished.output);
    if !finished.ok && outcome.failed.is_empty() {
        outcome.failed.push("on_device ended with a failure".to_owned());
    }
    Ok(outcome)
}

/// Writes the reference networks; answers their files and the bundled model's.
fn zoo() -> Result<Vec<String>> {
    let mut files = write_networks("zoo", &[])?;
    files.push("apps/cli/assets/digits/digits.onnx".to_owned());
    Ok(files)
}

/// Writes the networks that `arguments` name to the zoo into a folder below target: the files.
fn write_networks(folder: &str, arguments: &[&str]) -> Result<Vec<String>> {
    let folder = cmd::root().join("target/xtask").join(folder);
    let mut zoo = cmd::command(cmd::programs()?.join("examples/zoo"));
    let written = cmd::stdout(zoo.arg(folder).args(arguments))?;
    ensure!(written.ok, "the reference networks cannot be written");
    Ok(written.output.lines().map(str::to_owned).collect())
}

fn simulation() -> Result<Outcome> {
    let mut core = cmd::command(cmd::simulation("sim")?);
    let of_core = step(core.arg("--seeds").arg(SEEDS.to_string()))?;
    let mut among = cmd::command(cmd::simulation("sim")?);
    let mut both = step(among.args(["among", "--seeds"]).arg(SEEDS_AMONG.to_string()))?;
    both.passed += of_core.passed;
    both.failed.extend(of_core.failed);
    Ok(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_installed_before_the_first_suite_that_has_them() {
        let suites: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
        for Need { name, suites: wanting, .. } in NEEDS {
            let unknown = wanting.iter().find(|suite| !suites.contains(suite));
            assert_eq!(unknown, None, "{name}");
        }
        let of = |suite| needs(suite).map(|need| need.name).collect::<Vec<_>>();
        // The device crate's own tests run there first, under each backend's feature.
        assert_eq!(of(ALONE), ["OpenCL", "Vulkan", "NVRTC"]);
        assert_eq!(of(WORKSPACE).len(), NEEDS.len());
        assert_eq!(of("format"), Vec::<&str>::new());
    }
}
