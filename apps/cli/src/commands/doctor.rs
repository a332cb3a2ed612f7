//! `doctor`: checks this machine and names the line to set where something does not work.

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster doctor")]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: &Args, _out: Output) -> Result<()> {
    Err(Failure::new("unavailable", "not built yet"))
}
