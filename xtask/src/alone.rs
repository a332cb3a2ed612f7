//! Each crate compiled alone: what its siblings ask of a dependency, a crate must not rely on.

use crate::cmd;
use crate::report::Outcome;
use crate::test::{step, tests};
use anyhow::{Result, ensure};

/// From the crate that features are about to the one that has all others below it.
const CRATES: &[&str] = &[
    "lgp-hal",
    "lgp-memory",
    "lgp-compute",
    "lgp-inference",
    "lgp-research",
    "lgp-distributed",
    "lgp-distributed-sim",
    "lgp-sdk",
    "lgp-server",
    "lgp-python",
    "lgp-cli",
];
/// The features that each passes on.
const FEATURES: &[&str] = &["cpu", "rocm", "cuda"];

/// What every run of the tests tries: the first crate, whose code depends on features, under each
/// of them, tests included, and the last under one.
pub(crate) fn sample() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for feature in FEATURES {
        outcome.and(lint("lgp-hal", feature)?);
        let selection = ["-p", "lgp-hal", "--no-default-features", "--features", feature];
        outcome.and(tests(&selection)?);
    }
    outcome.and(lint("lgp-cli", "cpu")?);
    Ok(outcome)
}

/// Each crate under each feature.
///
/// # Errors
/// Names the first that does not compile without a warning.
pub(crate) fn run() -> Result<()> {
    for package in CRATES {
        for feature in FEATURES {
            ensure!(lint(package, feature)?.failed.is_empty(), "{package} under {feature} fails");
        }
    }
    Ok(())
}

fn lint(package: &str, feature: &str) -> Result<Outcome> {
    let mut cargo = cmd::cargo();
    cargo.args(["clippy", "--quiet", "-p", package, "--no-default-features"]);
    step(cargo.args(["--features", feature, "--", "-D", "warnings"]))
}
