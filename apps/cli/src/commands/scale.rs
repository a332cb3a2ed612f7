//! `scale`: more or fewer local workers.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::Target;
use serde_json::{Value, json};

/// Flags of `scale`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster scale --workers 4\n\n\
    Returns once the workers were started or asked to leave; one that leaves finishes what it has.")]
pub(crate) struct Args {
    /// Worker processes on the coordinator's machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    workers: u16,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let body = json!({ "workers": args.workers });
    let scaled: Value = args.target.connect()?.post("scale", &body)?;
    out.emit(&scaled, |scaled| {
        let [before, after] = ["before", "workers"].map(|key| scaled[key].as_u64().unwrap_or(0));
        let before = output::counted(before, "local worker");
        format!("there were {before}; from now on there are {after}\n")
    })
}
