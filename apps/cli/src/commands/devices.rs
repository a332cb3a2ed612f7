//! `devices`: what hardware was found, and why a device is not used.

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Flags of `devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster devices --json")]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) fn run(_args: &Args, _out: Output) -> Result<()> {
    Err(Failure::new("unavailable", "not built yet"))
}
