//! `cancel`: stops a task that is not finished.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::{Target, segment};
use serde_json::Value;

/// Flags of `cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster cancel 18f3c2a1-7")]
pub(crate) struct Args {
    /// The task, as submit named it
    id: String,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let task: Value = args.target.connect()?.delete(&format!("tasks/{}", segment(&args.id)))?;
    out.emit(&task, |task| format!("task {} is {}\n", args.id, output::cell(&task["state"])))
}
