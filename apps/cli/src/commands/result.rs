//! `result`: the outcome of a task.

use crate::classes::Wanted;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::registered::Registered;
use crate::rest::{Client, Target, named, segment};
use crate::task;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Flags of `result`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster result --wait 18f3c2a1-7 --output-dir out")]
pub(crate) struct Args {
    /// The task, as submit named it
    #[arg(value_parser = named)]
    id: String,
    /// Wait until it is finished
    #[arg(short, long)]
    wait: bool,
    /// Write one .npy file per output
    #[arg(short, long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// Let the result go once it is written, by --output-dir or --json: it is needed no more
    #[arg(long)]
    done: bool,
    #[command(flatten)]
    classes: Wanted,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    if args.done {
        check_kept(args, out)?;
    }
    let client = args.target.connect()?;
    let found = match args.wait {
        true => task::wait(&client, &args.id, Some(out)),
        false => client.get(&format!("tasks/{}", segment(&args.id))),
    };
    let task = found.map_err(|failure| match args.done {
        true => unread(failure, args, &client),
        false => failure,
    })?;
    let model = task["model"].as_str().unwrap_or_default().to_owned();
    let known = || Ok(Registered::of(&client, &model).map(|it| it.labels()).unwrap_or_default());
    let classes = args.classes.of(known, BTreeSet::new())?;
    let reported = task::report(&task, args.output_dir.as_deref(), &classes, out);
    let reported = reported.map_err(|failure| match &*failure.code {
        "task_not_finished" => {
            let (id, here) = (&args.id, args.target.words());
            failure.hint(format!("wait for it with: radeon-cluster result --wait {id}{here}"))
        }
        _ => failure,
    });
    match args.done {
        true => let_go(args, &client, &task, reported, out),
        false => reported,
    }
}

/// Refuses to let a result go that is not written as a whole.
fn check_kept(args: &Args, out: Output) -> Result<()> {
    let why = match (&args.output_dir, out.is_json()) {
        (Some(_), _) => return Ok(()),
        (None, true) if !out.is_lost() => return Ok(()),
        (None, true) => "stdout is closed or goes nowhere",
        (None, false) => "only the first values of its outputs would be shown",
    };
    let message = format!("--done would lose the result of task {}: {why}", args.id);
    Err(Failure::usage(message)
        .hint("write it to files with --output-dir DIR, or all of it to stdout with --json"))
}

/// Lets the result go, once it was written or reported.
fn let_go(
    args: &Args,
    client: &Client,
    task: &Value,
    reported: Result<()>,
    out: Output,
) -> Result<()> {
    let id = &args.id;
    let told = match reported {
        Ok(()) => Ok(()),
        Err(failure) if failure.is_broken_pipe() => {
            let message = format!("the result of task {id} is kept: the reader of stdout has gone");
            return Err(Failure::new("not_written", message));
        }
        // The error of a task is its result.
        Err(failure) if matches!(task["state"].as_str(), Some("failed" | "cancelled")) => {
            Err(failure.tell(out.is_json()).map_err(|error| {
                let message =
                    format!("the result of task {id} is kept: stderr has failed: {error}");
                Failure::new("not_written", message)
            })?)
        }
        Err(failure) => return Err(failure),
    };
    let _: Value = client.delete(&format!("tasks/{}/result", segment(id)))?;
    told
}

/// An unreadable result is kept, since its file may come back; the hint names the request that
/// gives it up.
fn unread(failure: Failure, args: &Args, client: &Client) -> Failure {
    if failure.code != "result_lost" {
        return failure;
    }
    let (base, id) = (client.base(), segment(&args.id));
    let hint = failure.hint.as_ref().map_or_else(String::new, |hint| format!("{hint}; "));
    let hint = format!(
        "{hint}--done lets go what it has written, and not this: DELETE \
         {base}/api/v1/cluster/tasks/{id}/result gives it up"
    );
    failure.hint(hint)
}
