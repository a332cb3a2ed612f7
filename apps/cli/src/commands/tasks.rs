//! `tasks`: the tasks that the coordinator knows, or one of them.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::{Target, named, segment};
use serde_json::{Value, json};

/// Tasks that a person is shown, newest first.
const SHOWN_MAX: usize = 30;

/// Flags of `tasks`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster tasks show 18f3c2a1-7 --why")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show one task
    Show {
        /// The task, as submit named it
        #[arg(value_parser = named)]
        id: String,
        /// Show each decision about it, and what it waits for
        #[arg(long)]
        why: bool,
        #[command(flatten)]
        target: Target,
    },
    /// Copy the journal of durable tasks, and large inputs of theirs, while they go on
    Backup {
        #[command(flatten)]
        target: Target,
    },
    /// Give the disk what the journal of durable tasks no longer needs
    Compact {
        #[command(flatten)]
        target: Target,
    },
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    match &args.action {
        Some(Action::Show { id, why: true, target }) => {
            let why: Value = target.connect()?.get(&format!("tasks/{}/why", segment(id)))?;
            out.emit(&why, |why| {
                let lines = why["decisions"].as_array().into_iter().flatten();
                lines.fold(String::new(), |all, line| {
                    let ms = line["at_ms"].as_f64().unwrap_or_default();
                    all + &format!("{ms:>12.3} ms  {}\n", output::cell(&line["what"]))
                })
            })
        }
        Some(Action::Show { id, why: false, target }) => {
            let task: Value = target.connect()?.get(&format!("tasks/{}", segment(id)))?;
            out.emit(&task, |task| {
                let lines = task.as_object().into_iter().flatten();
                lines
                    .filter(|(key, _)| *key != "outputs")
                    .fold(String::new(), |all, (key, value)| {
                        all + &format!("{key:<12} {}\n", output::cell(value))
                    })
            })
        }
        Some(Action::Backup { target }) => {
            let made: Value = target.connect()?.post("journal/backup", &json!({}))?;
            out.emit(&made, |made| {
                let bytes = output::bytes(made["bytes"].as_u64().unwrap_or(0));
                format!("{bytes} in {}\n", output::cell(&made["path"]))
            })
        }
        Some(Action::Compact { target }) => {
            let done: Value = target.connect()?.post("journal/compact", &json!({}))?;
            out.emit(&done, |done| {
                let [before, after] = ["before_bytes", "after_bytes"]
                    .map(|key| output::bytes(done[key].as_u64().unwrap_or(0)));
                format!("{before} before, {after} now\n")
            })
        }
        None => {
            let tasks: Vec<Value> = args.target.connect()?.get("tasks")?;
            out.emit(&tasks, |tasks| table(tasks))
        }
    }
}

fn table(tasks: &[Value]) -> String {
    if tasks.is_empty() {
        return "no tasks\n".to_owned();
    }
    let rows = tasks.iter().take(SHOWN_MAX).map(|task| {
        ["task_id", "model", "state", "attempts", "worker"].map(|key| output::cell(&task[key]))
    });
    let shown = output::table(["id", "model", "state", "attempts", "worker"], rows);
    match tasks.len().saturating_sub(SHOWN_MAX) {
        0 => shown,
        more => shown + &format!("and {more} older ones; --json has them all\n"),
    }
}
