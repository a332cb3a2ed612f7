//! `completions`: a script with which a shell completes commands.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Command;
use clap_complete::Shell;
use serde_json::json;

/// Flags of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster completions bash > \
    ~/.local/share/bash-completion/completions/radeon-cluster\n\n\
    zsh reads such files from a folder of $fpath, as _radeon-cluster; fish from\n\
    ~/.config/fish/completions, as radeon-cluster.fish.")]
pub(crate) struct Args {
    /// The shell: bash, elvish, fish, powershell or zsh
    shell: Shell,
}

/// Runs the command; `program` is the whole command line.
pub(crate) fn run(args: &Args, mut program: Command, out: Output) -> Result<()> {
    let mut written = Vec::new();
    clap_complete::generate(args.shell, &mut program, "radeon-cluster", &mut written);
    let script =
        String::from_utf8(written).map_err(|error| Failure::internal(error.to_string()))?;
    let value = json!({ "shell": args.shell.to_string(), "script": script });
    out.emit(&value, |_| script.clone())
}
