//! Measuring programs, which print their results.

use crate::cmd;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

/// Builds an example.
pub(super) fn example(package: &str, name: &str) -> Result<PathBuf> {
    example_with(package, &[], name)
}

/// Builds an example with features of its package.
pub(super) fn example_with(package: &str, features: &[&str], name: &str) -> Result<PathBuf> {
    let mut cargo = cmd::cargo();
    cargo.args(["build", "--release", "--quiet", "-p", package, "--example", name]);
    cargo.args(features.iter().flat_map(|feature| ["--features", feature]));
    cmd::run(&mut cargo)?;
    Ok(cmd::root().join("target/release/examples").join(name))
}

/// The JSON in the last line of a command's output.
pub(super) fn json(command: &mut Command) -> Result<Value> {
    let line = cmd::line(command);
    let finished = cmd::stdout(command)?;
    ensure!(finished.ok, "`{line}` ended with a failure");
    // Some systems greet on stdout first.
    let last = finished.output.lines().last().unwrap_or_default();
    serde_json::from_str(last).with_context(|| format!("`{line}` printed no JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts() {
        let answer = json(cmd::command("sh").args(["-c", "echo hello; echo '{\"a\": 1}'"]));
        assert_eq!(answer.unwrap()["a"], 1);
        assert!(json(cmd::command("sh").args(["-c", "echo hello"])).is_err());
        assert!(json(cmd::command("sh").args(["-c", "echo '{}'; exit 1"])).is_err());
    }
}
