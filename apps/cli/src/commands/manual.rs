//! `manual`: writes a manual page for each command, for packagers.

use crate::failure::{Failure, Result};
use crate::output::Output;
use clap::Command;
use serde_json::json;
use std::path::PathBuf;

/// Flags of `manual`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster manual /usr/local/share/man/man1")]
pub(crate) struct Args {
    /// The folder for the pages, one a command; it is made where it is not there
    folder: PathBuf,
}

/// Runs the command; `program` is the whole command line.
pub(crate) fn run(args: &Args, program: Command, out: Output) -> Result<()> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(program, folder))
        .map_err(|error| Failure::file("write manual pages to", folder, &error))?;
    out.emit(&json!({ "folder": folder }), |_| {
        format!("manual pages are in {}\n", folder.display())
    })
}
