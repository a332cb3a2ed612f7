//! `submit`: submits a task, or one task for each of many files.

mod each;

use crate::classes::{Classes, Wanted};
use crate::cluster::on_interrupt;
use crate::failure::{Failure, Result};
use crate::inputs::{self, Given};
use crate::output::{self, Output};
use crate::registered::Registered;
use crate::rest::{Client, Target};
use crate::wire;
use crate::{files, rest, task};
use lgp_sdk::tensor::NamedTensor;
use lgp_server::ServerConfig;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Flags of `submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    radeon-cluster submit --model digits --input image.npy --wait --output-dir out\n  \
    radeon-cluster submit -m resnet50 photos --wait --top 3\n\n\
    Of several files each is a task and a row of its own; the rows come in the order in which the tasks\n\
    end, or are accepted without --wait. An image is turned upright as its EXIF data say, and laid over\n\
    white where the model takes no alpha. After ctrl-C tasks that were accepted go on.")]
pub(crate) struct Args {
    /// The model's name, or NAME/VERSION
    #[arg(short, long, value_parser = rest::named)]
    model: String,
    /// Files, or folders of them, for a model with one input
    #[arg(value_name = "FILE", required_unless_present = "inputs")]
    files: Vec<String>,
    /// A .npy file, an image, or a .json file of strings; NAME= may be left out where the model has one
    /// input, which takes several files and folders
    #[arg(short, long = "input", value_name = "NAME=FILE")]
    inputs: Vec<String>,
    /// Keep the task, and its inputs, through a crash of the coordinator
    #[arg(long)]
    durable: bool,
    /// Run it once this task has succeeded; may be given several times
    #[arg(long, value_name = "ID")]
    depends_on: Vec<String>,
    /// Tasks of one model with the same text go to the same device while it is not too busy
    #[arg(long, value_name = "TEXT")]
    affinity: Option<String>,
    /// The same key with the same inputs stands for the same task; of several files each has KEY/FILE
    #[arg(long)]
    key: Option<String>,
    /// How urgent it is
    #[arg(short, long, value_parser = ["critical", "high", "normal", "low", "background"])]
    priority: Option<String>,
    /// Fail the task if it is not done in time
    #[arg(long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=deadline_ms_max()))]
    deadline_ms: Option<u64>,
    /// Try it so often before it fails, where attempts end without an answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    max_attempts: Option<u32>,
    /// The first wait between two attempts is at most so long; it doubles with each
    #[arg(long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=deadline_ms_max()))]
    retry_base_ms: Option<u64>,
    /// No wait between two attempts is longer
    #[arg(long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=deadline_ms_max()))]
    retry_max_ms: Option<u64>,
    /// How long one attempt may run
    #[arg(long, value_name = "MS",
          value_parser = clap::value_parser!(u64).range(1..=deadline_ms_max()))]
    run_limit_ms: Option<u64>,
    /// Wait for the result
    #[arg(short, long)]
    wait: bool,
    /// Write one .npy file per output; of several files as FILE.OUTPUT.npy
    #[arg(short, long, value_name = "DIR", requires = "wait")]
    output_dir: Option<PathBuf>,
    #[command(flatten)]
    classes: Wanted,
    #[command(flatten)]
    target: Target,
}

/// The longest deadline that coordinators of this version accept; no setting changes it.
fn deadline_ms_max() -> u64 {
    ServerConfig::default().deadline_ms_max
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let model = Registered::of(&client, &args.model)?;
    let specs = model.inputs()?;
    let scaling = &model.scaling(&client)?;
    let classes = args.classes.of(|| Ok(model.labels()), BTreeSet::new())?;
    let texts: Vec<String> = args.inputs.iter().chain(&args.files).cloned().collect();
    let given = inputs::given(&texts, &specs, |others| out.note(others))?;
    if let Some(folder) = &args.output_dir {
        files::make_writable_folder(folder)?;
    }
    match given {
        Given::Once(files) => {
            let inputs = inputs::read_all(&files, scaling)?;
            once(args, out, &client, &classes, &inputs)
        }
        Given::Each(input, files) => {
            let each = each::Each { args, client: &client, classes: &classes, input, scaling };
            each.run(&files, out)
        }
    }
}

/// Submits one task.
fn once(
    args: &Args,
    out: Output,
    client: &Client,
    classes: &Classes,
    inputs: &[NamedTensor],
) -> Result<()> {
    let accepted = args.submit(client, inputs, args.key.clone())?;
    let id = output::cell(&accepted["task_id"]);
    let here = &args.target.words();
    if !args.wait {
        let shown = out.emit(&accepted, |accepted| {
            let state = output::cell(&accepted["state"]);
            format!(
                "task {id} is {state}\nget its result with: radeon-cluster result --wait {id}{here}\n"
            )
        });
        return shown.map_err(|failure| named(failure, &id, here));
    }
    let word = interrupted(std::slice::from_ref(&id), here);
    on_interrupt(move || word, out).map_err(|failure| named(failure, &id, here))?;
    out.note(format!("task {id} is accepted; ctrl-C stops the waiting, not the task"));
    let done = task::wait(client, &id, Some(out))
        .map_err(|failure| unheard_of(failure, &id, here, args.durable))?;
    let reported = task::report(&done, args.output_dir.as_deref(), classes, out);
    reported.map_err(|failure| named(failure, &id, here))
}

impl Args {
    /// Submits a task; answers the coordinator's response.
    fn submit(
        &self,
        client: &Client,
        inputs: &[NamedTensor],
        key: Option<String>,
    ) -> Result<Value> {
        let described: Vec<Value> = inputs.iter().map(wire::describe).collect();
        let mut body = json!({ "model": self.model, "inputs": described });
        let optional = [
            ("durable", self.durable.then_some(json!(true))),
            ("depends_on", (!self.depends_on.is_empty()).then(|| json!(self.depends_on))),
            ("affinity", self.affinity.as_ref().map(|text| json!(text))),
            ("idempotency_key", key.map(|key| json!(key))),
            ("priority", self.priority.as_ref().map(|priority| json!(priority))),
            ("deadline_ms", self.deadline_ms.map(|ms| json!(ms))),
            ("max_attempts", self.max_attempts.map(|count| json!(count))),
            ("retry_base_ms", self.retry_base_ms.map(|ms| json!(ms))),
            ("retry_max_ms", self.retry_max_ms.map(|ms| json!(ms))),
            ("run_limit_ms", self.run_limit_ms.map(|ms| json!(ms))),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                body[key] = value;
            }
        }
        client.post_binary("tasks", &body, inputs.iter().map(|input| input.tensor.packed()))
    }
}

/// The failure of an interrupted wait.
fn interrupted(ids: &[String], here: &str) -> Failure {
    const SHOWN: usize = 20;
    let failure = Failure::interrupted();
    let shown = ids.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let what = match ids.len() {
        0 => return failure.hint("no task of it goes on"),
        1 => format!("task {shown} goes on"),
        count if count <= SHOWN => format!("tasks {shown} go on"),
        count => format!("tasks {shown} and {} more go on", count - SHOWN),
    };
    let id = ids.first().map_or("ID", String::as_str);
    Failure { message: format!("{}: {what}", failure.message), ..failure }
        .hint(format!("get a result with: radeon-cluster result --wait {id}{here}"))
}

/// The failure to follow an accepted task, with the task's fate and how to find it again.
fn unheard_of(failure: Failure, id: &str, here: &str, durable: bool) -> Failure {
    let fate = match durable {
        true => "a durable task goes on once the coordinator runs again",
        false => "a task that is not --durable is lost with its coordinator",
    };
    let ask = format!(
        "{fate}; where that runs, ask for it with: radeon-cluster result --wait {id}{here}"
    );
    let message = format!("task {id} was accepted, but: {}", failure.message);
    let hint = failure.hint.map_or_else(|| ask.clone(), |hint| format!("{ask}; {hint}"));
    Failure { code: failure.code, message, hint: Some(hint), exit: failure.exit }
}

/// A failure after a task was accepted; adds the id, which was not shown before.
fn named(failure: Failure, id: &str, here: &str) -> Failure {
    if failure.message.contains(id) {
        return failure;
    }
    let message = format!("task {id} was accepted, but: {}", failure.message);
    Failure { message, ..failure }
        .hint(format!("get its result with: radeon-cluster result {id}{here}"))
}
