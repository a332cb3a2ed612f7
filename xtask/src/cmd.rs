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

/// A program to be run in the workspace's root, without what cargo told this process about xtask.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// What cargo knows of the workspace and of all that it is made of.
pub(crate) fn metadata() -> Result<cargo_metadata::Metadata> {
    let mut command = cargo_metadata::MetadataCommand::new();
    command.current_dir(root()).other_options(["--locked".to_owned()]);
    command.exec().context("cargo metadata does not work here")
}

/// The folder of the workspace's programs, with their `examples` below, built now as the tests are,
/// but without what the simulation opens and plants in the cluster's crate.
/// All at once: a package built alone unifies other features, and compiles what it needs again.
pub(crate) fn programs() -> Result<PathBuf> {
    run(&mut build_programs())?;
    Ok(root().join("target/debug"))
}

/// The cargo that does so.
pub(crate) fn build_programs() -> Command {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--exclude", "lgp-distributed-sim"]);
    build.args(["--bins", "--examples"]);
    build
}

/// An example of the simulation's crate, built now as the tests are.
pub(crate) fn simulation(example: &str) -> Result<PathBuf> {
    run(cargo().args(["build", "--quiet", "--workspace", "--example", example]))?;
    Ok(root().join("target/debug/examples").join(example))
}

/// What a finished program left.
pub(crate) struct Finished {
    /// Standard output and, where it was captured, standard error after it.
    pub(crate) output: String,
    /// Whether it exited with 0.
    pub(crate) ok: bool,
}

/// Runs to the end with output going where ours goes; a failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", line(command));
    let status = command.status().with_context(|| format!("cannot run {}", line(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", line(command));
    }
    Ok(())
}

/// Runs to the end and keeps standard output; errors still show as they come.
pub(crate) fn stdout(command: &mut Command) -> Result<Finished> {
    eprintln!("$ {}", line(command));
    finish(command.stdin(Stdio::null()).stderr(Stdio::inherit()))
}

/// Runs to the end and keeps all that it prints.
pub(crate) fn capture(command: &mut Command) -> Result<Finished> {
    capture_of(command, Stdio::null())
}

/// The same of a program that reads `input`.
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
