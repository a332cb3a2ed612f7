//! Compiles each crate alone: a crate must not rely on features that its siblings enable in a
//! dependency.

use crate::cmd;
use crate::report::Outcome;
use crate::step::{step, tests};
use anyhow::{Result, ensure};

/// From the ground up. The crate that drives devices and the one that has all others below it choose backends.
const CRATES: &[&str] = &[
    "lgp-portable",
    "lgp-hal",
    "lgp-memory",
    "lgp-compute",
    "lgp-inference",
    "lgp-research",
    "lgp-distributed",
    "lgp-distributed-sim",
    "lgp-common",
    "lgp-measure",
    "lgp-sdk",
    "lgp-server",
    "lgp-python",
    "lgp-cli",
];
/// The crates that choose backends.
const CHOOSING: [&str; 2] = ["lgp-hal", "lgp-cli"];

/// The part of every test run: the crate whose code depends on features, under each of them with its tests, and the
/// last crate under one.
pub(crate) fn sample() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for feature in cmd::backends(&cmd::metadata()?) {
        outcome.and(lint("lgp-hal", Some(&feature))?);
        let selection = ["-p", "lgp-hal", "--no-default-features", "--features", feature.as_str()];
        outcome.and(tests(&selection)?);
    }
    outcome.and(lint("lgp-cli", Some("cpu"))?);
    Ok(outcome)
}

/// Each crate with no backend chosen, those that choose under each feature besides.
///
/// # Errors
/// Names the first that does not compile without a warning.
pub(crate) fn run() -> Result<()> {
    let backends = cmd::backends(&cmd::metadata()?);
    for package in CRATES {
        ensure!(lint(package, None)?.failed.is_empty(), "{package} without features fails");
        for feature in backends.iter().filter(|_| CHOOSING.contains(package)) {
            let outcome = lint(package, Some(feature))?;
            ensure!(outcome.failed.is_empty(), "{package} under {feature} fails");
        }
    }
    Ok(())
}

/// Compiles a crate with one feature or none.
fn lint(package: &str, feature: Option<&str>) -> Result<Outcome> {
    let mut cargo = cmd::cargo();
    cargo.args(["clippy", "--quiet", "-p", package, "--no-default-features"]);
    cargo.args(feature.into_iter().flat_map(|feature| ["--features", feature]));
    step(cargo.args(["--", "-D", "warnings"]))
}
