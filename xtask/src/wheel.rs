//! The Python package `legacy_gpu`: builds its wheel, and tests it in an environment with only that.

use crate::cluster::{self, Profile};
use crate::report::{Outcome, Skip};
use crate::{cmd, python, step};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The package's sources.
const PACKAGE: &str = "apps/python";

/// Replaces cargo where maturin builds for tests: it builds the workspace like all tests, so that nothing is compiled
/// twice, and maturin finds the extension among the results. It drops maturin's variables about Python, so that the
/// bindings are not compiled for one Python alone.
const STAND_IN: &str = r#"#!/bin/sh
if [ "$1" != rustc ]; then exec "$REAL_CARGO" "$@"; fi
unset PYO3_PYTHON PYO3_ENVIRONMENT_SIGNATURE PYO3_CONFIG_FILE PYO3_BUILD_EXTENSION_MODULE PYTHON_SYS_EXECUTABLE
exec "$REAL_CARGO" build --workspace --exclude lgp-distributed-sim --lib --bins --examples \
    --message-format json-render-diagnostics
"#;

/// Builds the wheel into an otherwise empty folder below target. Its files have the timestamp `time`, in seconds since
/// 1970.
///
/// # Errors
/// Where there is no Python, or the wheel cannot be built.
pub(crate) fn wheel(profile: Profile, time: u64) -> Result<PathBuf> {
    let name = match profile {
        Profile::Dev => "dev",
        Profile::Release => "release",
    };
    let folder = cmd::root().join("target/wheels").join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let maturin = python::maturin()?.with_file_name("maturin");
    let mut build = cmd::command(&maturin);
    build.env("SOURCE_DATE_EPOCH", time.to_string());
    build.args(["build", "--locked", "--profile", name, "--out"]).arg(&folder);
    build.arg("--manifest-path").arg(cmd::root().join(PACKAGE).join("Cargo.toml"));
    if profile == Profile::Dev {
        // A wheel for this machine alone need not run on older systems.
        build.args(["--compatibility", "linux"]);
        build.env("REAL_CARGO", std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        build.env("CARGO", stand_in()?);
    }
    cmd::run(&mut build)?;
    only_file(&folder)
}

fn stand_in() -> Result<PathBuf> {
    let path = cmd::root().join("target/xtask/cargo-of-tests");
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    fs::write(&path, STAND_IN)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn only_file(folder: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let files = files.collect::<Result<Vec<PathBuf>>>()?;
    match files.as_slice() {
        [one] => Ok(one.clone()),
        _ => bail!("{} files are in {}, expected the wheel", files.len(), folder.display()),
    }
}

/// Builds the wheel, tests it, and prints its path.
pub(crate) fn run() -> Result<()> {
    let outcome = suite()?;
    for skip in &outcome.skipped {
        println!("skipped: {}: {}", skip.need, skip.reason);
    }
    println!("{} passed, {} failed", outcome.passed, outcome.failed.len());
    ensure!(outcome.failed.is_empty(), "not everything passed: {}", outcome.failed.join(", "));
    Ok(())
}

/// Checks the types of the package and its examples. Then tests the installed wheel in an environment with only NumPy
/// and pytest, from a folder where its sources cannot be imported.
pub(crate) fn suite() -> Result<Outcome> {
    let tools = match python::maturin() {
        Ok(tools) => tools,
        Err(error) => return Ok(Outcome::skip(Skip::new("python", format!("{error:#}")))),
    };
    let python = match python::package() {
        Ok(python) => python,
        Err(error) => return Ok(Outcome::skip(Skip::new("python", format!("{error:#}")))),
    };
    let wheel = wheel(Profile::Dev, 0)?;
    let mut outcome = types(&tools)?;
    let mut install = cmd::command(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    cmd::run(install.args(["--no-index", "--force-reinstall"]).arg(&wheel))?;
    outcome.and(installed(&python)?);
    Ok(outcome)
}

/// Checks the package's types in the strictest mode.
fn types(tools: &Path) -> Result<Outcome> {
    let mut check = cmd::command(tools);
    check.current_dir(cmd::root().join(PACKAGE));
    check.args(["-m", "mypy", "--cache-dir"]).arg(cmd::root().join("target/xtask/mypy"));
    step::step(check.args(["python/legacy_gpu", "examples"]))
}

fn installed(python: &Path) -> Result<Outcome> {
    let place = cmd::root().join("target/xtask/python");
    fs::create_dir_all(&place)?;
    let package = cmd::root().join(PACKAGE);
    let mut tests = cmd::command(python);
    // Only installed modules can be imported.
    tests.current_dir(&place).args(["-I", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    tests.args(["--import-mode=importlib", "-c"]).arg(package.join("pyproject.toml"));
    tests.arg(package.join("tests"));
    tests.env("RADEON_CLUSTER", cluster::binary(Profile::Dev)?);
    let finished = cmd::stdout(&mut tests).context("pytest does not start")?;
    let mut outcome = Outcome::read(&finished.output);
    if !finished.ok && outcome.failed.is_empty() {
        outcome.failed.push("pytest ended with a failure".to_owned());
    }
    if !outcome.failed.is_empty() {
        eprintln!("{}", finished.output);
    }
    Ok(outcome)
}
