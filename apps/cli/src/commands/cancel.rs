//! `cancel`: stops a task that is not finished.

use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::rest::{Target, named, segment};
use serde_json::{Value, json};

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
    let answer = args.target.connect()?.delete(&format!("tasks/{}", segment(&args.id)));
    let task: Value = answer.or_else(|failure| finished(&args.id, failure))?;
    out.emit(&task, |task| text(&args.id, task))
}

/// A task whose result is gone, or cannot be read, is finished all the same.
fn finished(id: &str, failure: Failure) -> Result<Value> {
    match &*failure.code {
        "expired" => Ok(json!({ "task_id": id, "state": EXPIRED })),
        // Only tasks that have succeeded have outputs.
        "result_lost" | "result_unread" => Ok(json!({ "task_id": id, "state": "succeeded" })),
        _ => Err(failure),
    }
}

/// Stands for the state, where the coordinator knows only that the task has ended.
const EXPIRED: &str = "expired";

fn text(id: &str, task: &Value) -> String {
    match task["state"].as_str() {
        // A durable task's end is journalled before answers show it.
        Some("queued" | "running") => format!("task {id} is being cancelled\n"),
        Some(EXPIRED) => format!("task {id} is finished, and its result is not kept any more\n"),
        Some("cancelled") => format!("task {id} is cancelled\n"),
        _ => format!("task {id} has {} already\n", output::cell(&task["state"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_over_is_being_cancelled() {
        for (state, part) in [
            ("queued", "being cancelled"),
            ("running", "being cancelled"),
            ("cancelled", "is cancelled"),
            ("succeeded", "has succeeded already"),
            ("expired", "is finished"),
        ] {
            assert!(text("0-7", &json!({ "state": state })).contains(part), "{state}");
        }
    }

    #[test]
    fn what_has_no_result_any_more_is_over() {
        for (code, state) in
            [("expired", "expired"), ("result_lost", "succeeded"), ("result_unread", "succeeded")]
        {
            let task = finished("0-7", Failure::new(code, "")).expect("it is over");
            assert_eq!(task, json!({ "task_id": "0-7", "state": state }));
        }
        finished("0-7", Failure::new("unknown_task", "")).expect_err("nobody knows it");
    }
}
