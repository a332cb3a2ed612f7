//! `cancel`: stops a task that is not finished.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::{Target, named, segment};
use serde_json::Value;

/// Flags of `cancel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster cancel 18f3c2a1-7\n\n\
    A task that is finished stays as it is, which is no error.")]
pub(crate) struct Args {
    /// The task, as submit named it
    #[arg(value_parser = named)]
    id: String,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let task: Value = args.target.connect()?.delete(&format!("tasks/{}", segment(&args.id)))?;
    out.emit(&task, |task| text(&args.id, task))
}

fn text(id: &str, task: &Value) -> String {
    match task["state"].as_str() {
        // The end of a durable task is in its journal first, and in the answer later.
        Some("queued" | "running") => format!("task {id} is being cancelled\n"),
        _ => format!("task {id} is {}\n", output::cell(&task["state"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_over_is_being_cancelled() {
        for (state, part) in [
            ("queued", "being cancelled"),
            ("running", "being cancelled"),
            ("cancelled", "is cancelled"),
            ("succeeded", "is succeeded"),
        ] {
            assert!(text("0-7", &json!({ "state": state })).contains(part), "{state}");
        }
    }
}
