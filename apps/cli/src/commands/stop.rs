//! `stop`: ends a coordinator and its workers.

use crate::failure::Result;
use crate::folder;
use crate::output::{self, Output, Yes};
use crate::rest::{Client, NOT_ANSWERING, Target};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The wait before the command says what it waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Flags of `stop`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster stop\n\n\
    Returns when the coordinator has ended. Accepts no new tasks and finishes those that it has,\n\
    unless told --now. Where no worker is left to run what is queued, it is given up: at once\n\
    without local workers, else when none was ready for 30 s. Durable tasks are kept for the next\n\
    start.")]
pub(crate) struct Args {
    /// Do not wait for tasks to finish; they fail
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    yes: Yes,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    if args.now {
        confirm_loss(&client, args.yes, out)?;
    }
    let stopping: Value = client.post("coordinator/stop", &json!({ "now": args.now }))?;
    let (mut asked, mut is_told) = (Instant::now(), false);
    while lives(&client)? {
        std::thread::sleep(Duration::from_millis(20));
        if asked.elapsed() > PATIENCE {
            let why = waits_for(&client)?;
            if !std::mem::replace(&mut is_told, true) {
                out.note(why);
            }
            asked = Instant::now();
        }
    }
    let given_up = stopping["given_up"].as_u64().unwrap_or(0);
    out.emit(&json!({ "stopped": client.base(), "given_up": given_up }), |_| {
        let tasks = match given_up {
            0 => String::new(),
            count => format!("; unfinished tasks that were given up: {count}"),
        };
        format!("the coordinator at {} has stopped{tasks}\n", client.base())
    })
}

/// Asks for confirmation where tasks would be lost.
fn confirm_loss(client: &Client, yes: Yes, out: Output) -> Result<()> {
    // Tasks that cannot be counted do not keep the stop from going on.
    let stats: Value = client.get("stats").unwrap_or_default();
    let count = |state: &str| stats["tasks"][state].as_u64().unwrap_or(0);
    let unfinished = count("queued") + count("running");
    if unfinished == 0 {
        return Ok(());
    }
    let tasks = output::counted(unfinished, "task");
    out.confirm(format!("{tasks} not finished: those that are not durable are lost"), yes)
}

/// What the coordinator waits for, as a text for people.
///
/// # Errors
/// `not_answering` where the coordinator is silent: it will not end by itself.
fn waits_for(client: &Client) -> Result<String> {
    let stats: Value = match client.get("stats") {
        Err(failure) if failure.code == NOT_ANSWERING => return Err(failure),
        // A coordinator that is about to end takes no more requests.
        answered => answered.unwrap_or_default(),
    };
    let count = |state: &str| stats["tasks"][state].as_u64();
    let waiting = match (count("queued"), count("running")) {
        (Some(0), Some(0)) => "no task is left; waiting for programs to take their answers".into(),
        (Some(queued), Some(running)) => {
            let ready = stats["workers"]["ready"].as_u64().unwrap_or(0);
            format!(
                "waiting for tasks to finish: {queued} queued, {running} running, ready workers: \
                 {ready}"
            )
        }
        _ => "waiting for what is under way".to_owned(),
    };
    Ok(format!("{waiting}; radeon-cluster stop --now does not wait"))
}

/// Whether the coordinator lives: by its lock where the data folder is known, else by its answer.
fn lives(client: &Client) -> Result<bool> {
    match client.data() {
        Some(data) => Ok(folder::is_owned(data)),
        None => match client.get_any("health") {
            Err(failure) if failure.code == NOT_ANSWERING => Err(failure),
            answered => Ok(answered.is_ok()),
        },
    }
}
