//! `tasks`: lists the coordinator's tasks, or shows one.

use crate::failure::Result;
use crate::output::{self, Output};
use crate::rest::{Target, named, segment};
use serde_json::{Value, json};

/// The most tasks that a coordinator lists at once.
const LIMIT_MAX: u64 = 1_000;
/// The number of tasks that is listed by default.
const LIMIT: u64 = 100;

/// Flags of `tasks`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster tasks show 18f3c2a1-7 --why")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Only tasks in this state
    #[arg(long, value_parser = ["queued", "running", "succeeded", "failed", "cancelled"])]
    state: Option<String>,
    /// Only tasks of this model, NAME or NAME/VERSION
    #[arg(short, long, value_parser = named)]
    model: Option<String>,
    /// At most so many, the newest first
    #[arg(short = 'n', long, value_name = "N", default_value_t = LIMIT,
          value_parser = clap::value_parser!(u64).range(1..=LIMIT_MAX))]
    limit: u64,
    /// Only tasks that were submitted before this one
    #[arg(long, value_name = "ID", value_parser = named)]
    after: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    /// The path of a page with one extra task, which shows whether there are more.
    fn page(&self) -> String {
        let limit = (self.limit + 1).min(LIMIT_MAX);
        let given = [("state", &self.state), ("model", &self.model), ("after", &self.after)];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?)));
        given.fold(format!("tasks?limit={limit}"), |path, (key, value)| {
            path + &format!("&{key}={}", segment(value))
        })
    }

    /// The command that lists the tasks after `last`, with the same filters.
    fn next(&self, last: &str) -> String {
        let limit = Some(self.limit).filter(|limit| *limit != LIMIT).map(|n| n.to_string());
        let given =
            [("state", self.state.clone()), ("model", self.model.clone()), ("limit", limit)];
        let given = given.into_iter().filter_map(|(flag, value)| Some((flag, value?)));
        given.fold("radeon-cluster tasks".to_owned(), |line, (flag, value)| {
            line + &format!(" --{flag} {value}")
        }) + &format!(" --after {last}{}", self.target.words())
    }
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
    /// Run a task again that failed or was cancelled, as a new task
    Retry {
        /// The task, as submit named it
        #[arg(value_parser = named)]
        id: String,
        #[command(flatten)]
        target: Target,
    },
    /// Copy the journal of durable tasks, with their large inputs and outputs, while they go on
    Backup {
        #[command(flatten)]
        target: Target,
    },
    /// Free the disk space that the journal of durable tasks no longer needs
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
        Some(Action::Retry { id, target }) => {
            let made: Value =
                target.connect()?.post(&format!("tasks/{}/retry", segment(id)), &json!({}))?;
            out.emit(&made, |made| {
                let again = output::cell(&made["task_id"]);
                let here = target.words();
                format!(
                    "task {again} runs task {id} again\n\
                     get its result with: radeon-cluster result --wait {again}{here}\n"
                )
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
            let mut tasks: Vec<Value> = args.target.connect()?.get(&args.page())?;
            let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
            let more = tasks.len() > limit || (args.limit == LIMIT_MAX && tasks.len() == limit);
            tasks.truncate(limit);
            out.emit(&tasks, |tasks| table(tasks))?;
            if let Some(last) = tasks.last().filter(|_| more) {
                let last = output::cell(&last["task_id"]);
                out.note(format!("there may be older ones: {}", args.next(&last)));
            }
            Ok(())
        }
    }
}

fn table(tasks: &[Value]) -> String {
    if tasks.is_empty() {
        return "no tasks\n".to_owned();
    }
    let rows = tasks.iter().map(|task| {
        ["task_id", "model", "state", "attempts", "worker"].map(|key| output::cell(&task[key]))
    });
    output::table(["id", "model", "state", "attempts", "worker"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, FromArgMatches};

    #[test]
    fn the_next_page_is_of_the_same_tasks() {
        let next = |flags: &[&str]| {
            let command = Args::augment_args(clap::Command::new("tasks"));
            let matches = command.get_matches_from([&["tasks"], flags].concat());
            Args::from_arg_matches(&matches).expect("they are parsed").next("1-9")
        };
        assert_eq!(next(&[]), "radeon-cluster tasks --after 1-9");
        let flags = ["--after", "1-20", "--limit", "5", "--model", "digits/1", "--state", "failed"];
        assert_eq!(
            next(&flags),
            "radeon-cluster tasks --state failed --model digits/1 --limit 5 --after 1-9"
        );
        assert_eq!(next(&["--data", "d"]), "radeon-cluster tasks --after 1-9 --data d");
    }
}
