//! `submit`: gives the cluster one task.

use crate::cluster::on_interrupt;
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::picture;
use crate::rest::{Client, Target, segment};
use crate::wire::{self, WireSpec};
use crate::{files, folder, inputs, rest, task};
use lgp_sdk::ValueSpec;
use lgp_server::ServerConfig;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Flags of `submit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    radeon-cluster submit --model digits --input image.npy --wait --output-dir out")]
pub(crate) struct Args {
    /// The model's name, or NAME/VERSION
    #[arg(long, value_parser = rest::named)]
    model: String,
    /// A .npy file, an image, or a .json file of strings; NAME= may be left out where the model has one
    /// input
    #[arg(long = "input", value_name = "NAME=FILE", required = true)]
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
    /// The same key with the same inputs stands for the same task
    #[arg(long)]
    key: Option<String>,
    /// How urgent it is
    #[arg(long, value_parser = ["critical", "high", "normal", "low", "background"])]
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
    #[arg(long)]
    wait: bool,
    /// Write one .npy file per output
    #[arg(long, value_name = "DIR", requires = "wait")]
    output_dir: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// What coordinators of this program take at most; they have no setting for it.
fn deadline_ms_max() -> u64 {
    ServerConfig::default().deadline_ms_max
}

/// A registered model, as the cluster API describes it.
#[derive(Debug, Deserialize)]
struct Registered {
    name: String,
    version: u64,
    inputs: Vec<WireSpec>,
}

/// The version that NAME/VERSION means; the newest for a bare NAME.
fn registered(client: &Client, text: &str) -> Result<Registered> {
    let Some((name, version)) = text.split_once('/') else {
        return client.get(&format!("models/{}", segment(text)));
    };
    let version: u64 = version.parse().map_err(|_| {
        Failure::usage(format!("model {text:?} is not valid, expected NAME or NAME/VERSION"))
    })?;
    let all: Vec<Registered> = client.get("models")?;
    all.into_iter().find(|m| m.name == name && m.version == version).ok_or_else(|| {
        Failure::new("model_unknown", format!("no version {version} of a model '{name}'"))
            .hint("radeon-cluster models ls lists the models and their versions")
    })
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let client = args.target.connect()?;
    let model = registered(&client, &args.model)?;
    let specs: Vec<ValueSpec> = model.inputs.iter().map(WireSpec::spec).collect::<Result<_>>()?;
    let scaling = match client.data() {
        Some(data) => picture::scaling_of(&folder::model_file(data, &model.name, model.version))?,
        None => lgp_sdk::vision::Scaling::default(),
    };
    let inputs = inputs::read(&args.inputs, &specs, &scaling)?;
    let described: Vec<Value> = inputs.iter().map(wire::describe).collect();
    let mut body = json!({ "model": args.model, "inputs": described });
    let optional = [
        ("durable", args.durable.then_some(json!(true))),
        ("depends_on", (!args.depends_on.is_empty()).then(|| json!(args.depends_on))),
        ("affinity", args.affinity.as_ref().map(|text| json!(text))),
        ("idempotency_key", args.key.as_ref().map(|key| json!(key))),
        ("priority", args.priority.as_ref().map(|priority| json!(priority))),
        ("deadline_ms", args.deadline_ms.map(|ms| json!(ms))),
        ("max_attempts", args.max_attempts.map(|count| json!(count))),
        ("retry_base_ms", args.retry_base_ms.map(|ms| json!(ms))),
        ("retry_max_ms", args.retry_max_ms.map(|ms| json!(ms))),
        ("run_limit_ms", args.run_limit_ms.map(|ms| json!(ms))),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            body[key] = value;
        }
    }
    if let Some(folder) = &args.output_dir {
        files::make_writable_folder(folder)?;
    }
    let tensors = inputs.iter().map(|input| input.tensor.packed());
    let accepted: Value = client.post_binary("tasks", &body, tensors)?;
    let id = output::cell(&accepted["task_id"]);
    if !args.wait {
        let shown = out.emit(&accepted, |accepted| {
            let state = output::cell(&accepted["state"]);
            format!(
                "task {id} is {state}\nget its result with: radeon-cluster result --wait {id}\n"
            )
        });
        return shown.map_err(|failure| named(failure, &id));
    }
    on_interrupt(interrupted(&id), out).map_err(|failure| named(failure, &id))?;
    out.note(format!("task {id} is accepted; ctrl-C stops the waiting, not the task"));
    let done =
        task::wait(&client, &id, out).map_err(|failure| unheard_of(failure, &id, args.durable))?;
    let reported = task::report(&done, args.output_dir.as_deref(), out);
    reported.map_err(|failure| named(failure, &id))
}

/// Nobody waits for the task any more.
fn interrupted(id: &str) -> Failure {
    let failure = Failure::interrupted();
    let message = format!("{}: task {id} goes on", failure.message);
    Failure { message, ..failure }
        .hint(format!("get its result with: radeon-cluster result --wait {id}"))
}

/// A failure to hear of a task that was accepted: what becomes of it, and how to find it again.
fn unheard_of(failure: Failure, id: &str, durable: bool) -> Failure {
    let fate = match durable {
        true => "a durable task goes on once the coordinator runs again",
        false => "a task that is not --durable is lost with its coordinator",
    };
    let ask = format!("{fate}; ask for it with: radeon-cluster result --wait {id}");
    let message = format!("task {id} was accepted, but: {}", failure.message);
    let hint = failure.hint.map_or_else(|| ask.clone(), |hint| format!("{ask}; {hint}"));
    Failure { code: failure.code, message, hint: Some(hint), exit: failure.exit }
}

/// A failure after a task was accepted, with the id, for nothing else has told it.
fn named(failure: Failure, id: &str) -> Failure {
    if failure.message.contains(id) {
        return failure;
    }
    let message = format!("task {id} was accepted, but: {}", failure.message);
    Failure { message, ..failure }.hint(format!("get its result with: radeon-cluster result {id}"))
}
