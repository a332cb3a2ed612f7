//! Runs other programs: shows the command line, keeps what they print.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A cargo to be run in the workspace's root.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command in the workspace's root, without the variables that cargo set for xtask, and without the one that makes
/// Mesa show a card that computes nothing.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).env_remove("RADV_FORCE_FAMILY");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// cargo's metadata of the workspace and its dependencies.
pub(crate) fn metadata() -> Result<cargo_metadata::Metadata> {
    let mut command = cargo_metadata::MetadataCommand::new();
    command.current_dir(root()).other_options(["--locked".to_owned()]);
    command.exec().context("cargo metadata does not work here")
}

/// The cargo features that bring backends, as the crate of devices names them.
pub(crate) fn backends(metadata: &cargo_metadata::Metadata) -> Vec<String> {
    let hal = metadata.packages.iter().find(|package| package.name == "lgp-hal");
    let features = hal.into_iter().flat_map(|hal| hal.features.keys());
    features.filter(|name| *name != "default").cloned().collect()
}

/// Builds the workspace's programs and examples in the profile of the tests, without the features
/// that the simulation enables in the cluster's crate; answers their folder. One call builds all: a
/// package built alone unifies other features and recompiles its dependencies.
pub(crate) fn programs() -> Result<PathBuf> {
    run(&mut build_programs())?;
    Ok(root().join("target/debug"))
}

/// The cargo command for this.
pub(crate) fn build_programs() -> Command {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--exclude", "lgp-distributed-sim"]);
    build.args(["--bins", "--examples"]);
    build
}

/// Builds an example of the simulation's crate in the profile of the tests.
pub(crate) fn simulation(example: &str) -> Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--workspace", "--example", example]))?;
    Ok(root().join("target/debug/examples").join(example))
}

/// The result of a finished program.
pub(crate) struct Finished {
    /// Standard output and, where it was captured, standard error after it.
    pub(crate) output: String,
    /// Whether it exited with 0.
    pub(crate) ok: bool,
}

/// Runs a command with our own output streams; a failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", line(command));
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a command and keeps its standard output; standard error is shown.
pub(crate) fn stdout(command: &mut Command) -> Result<Finished> {
    eprintln!("$ {}", line(command));
    finish(command.stdin(Stdio::null()).stderr(Stdio::inherit()))
}

/// Runs a command and keeps all its output.
pub(crate) fn capture(command: &mut Command) -> Result<Finished> {
    capture_of(command, Stdio::null())
}

/// As [`capture`], with `input` as stdin.
pub(crate) fn capture_of(command: &mut Command, input: impl Into<Stdio>) -> Result<Finished> {
    eprintln!("$ {}", line(command));
    finish(command.stdin(input).stderr(Stdio::piped()))
}

fn finish(command: &mut Command) -> Result<Finished> {
    let child = command.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot run {}", line(command)))?;
    let output = child.wait_with_output()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    Ok(Finished { output: text, ok: output.status.success() })
}

/// The command as one would type it, with paths inside the workspace made relative.
pub(crate) fn line(command: &Command) -> String {
    let root = format!("{}/", root().display());
    let program = Path::new(command.get_program());
    let mut text = match program.file_name() {
        Some(name) if program.is_absolute() => name.to_string_lossy().into_owned(),
        _ => program.display().to_string(),
    };
    for argument in command.get_args() {
        text.push(' ');
        text += &argument.to_string_lossy().replace(&root, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.arg("test").arg(root().join("target/venv"));
        assert_eq!(line(&command), "cargo test target/venv");
    }

    #[test]
    fn output_and_failure_are_seen() {
        let finished = capture(command("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        let finished = finished.unwrap();
        assert_eq!((finished.output.as_str(), finished.ok), ("out\nerr\n", false));
        assert!(run(command("sh").args(["-c", "exit 1"])).is_err());
        let file = std::fs::File::open(root().join("Cargo.toml")).unwrap();
        let read = capture_of(&mut command("cat"), file).unwrap();
        assert!(read.output.contains("[workspace]"), "a program reads what it is given");
        assert_eq!(capture(&mut command("cat")).unwrap().output, "", "and else nothing");
        assert!(capture(&mut command("no-such-program-here")).is_err());
    }
}
