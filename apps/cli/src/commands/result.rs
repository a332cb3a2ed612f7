//! `result`: what became of a task.

use crate::failure::Result;
use crate::output::Output;
use crate::rest::{Target, named, segment};
use crate::task;
use serde_json::Value;
use std::path::PathBuf;

/// Flags of `result`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster result --wait 18f3c2a1-7 --output-dir out")]
pub(crate) struct Args {
    /// The task, as submit named it
    #[arg(value_parser = named)]
    id: String,
    /// Wait until it is finished
    #[arg(long)]
    wait: bool,
    /// Write one .npy file per output
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Let the result go once it is written: it is needed no more
    #[arg(long)]
    done: bool,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let task = match args.wait {
        true => task::wait(&client, &args.id)?,
        false => client.get(&format!("tasks/{}", segment(&args.id)))?,
    };
    let reported = task::report(&task, args.output_dir.as_deref(), out);
    let ended = !matches!(task["state"].as_str(), Some("queued" | "running"));
    // A failure has been told as well; one to write down what was fetched leaves it where it is.
    if args.done && ended && (reported.is_ok() || task["state"] != "succeeded") {
        let _: Value = client.delete(&format!("tasks/{}/result", segment(&args.id)))?;
    }
    reported
}
