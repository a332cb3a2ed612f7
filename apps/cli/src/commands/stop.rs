//! `stop`: ends a coordinator and its workers.

use crate::failure::Result;
use crate::folder;
use crate::output::Output;
use crate::rest::{Client, Target};
use serde_json::{Value, json};
use std::time::Duration;

/// Flags of `stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster stop\n\n\
    Returns when the coordinator has ended. Accepts no new tasks and finishes those that it has,\n\
    unless told --now.")]
pub(crate) struct Args {
    /// Do not wait for tasks to finish; they fail
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let _: Value = client.post("coordinator/stop", &json!({ "now": args.now }))?;
    while lives(&client) {
        std::thread::sleep(Duration::from_millis(20));
    }
    out.emit(&json!({ "stopped": client.base() }), |_| {
        format!("the coordinator at {} has stopped\n", client.base())
    })
}

/// By its lock where the data folder is known, else by whether it answers.
fn lives(client: &Client) -> bool {
    match client.data() {
        Some(data) => folder::is_owned(data),
        None => client.get_any("health").is_ok(),
    }
}
