//! `models`: which models the cluster has, and which of them its workers have loaded.

mod deploy;

use crate::cluster::digits;
use crate::failure::Result;
use crate::output::{self, Output, Yes};
use crate::rest::{self, Patience, Target, named, segment};
use lgp_sdk::model::Repository;
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;

/// Flags of `models`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster models add resnet50 resnet50.onnx")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

/// What is done with aliases.
#[derive(Debug, clap::Subcommand)]
enum AliasAction {
    /// List the aliases
    Ls {
        #[command(flatten)]
        target: Target,
    },
    /// Make an alias, or have it stand for other models
    Set {
        /// The alias
        #[arg(value_parser = named)]
        name: String,
        /// Models with the same inputs and outputs, each with its share of the requests
        #[arg(required = true, value_name = "NAME[/VERSION]:WEIGHT", value_parser = share)]
        models: Vec<Value>,
        /// A model that runs copies of PERCENT of the requests once they are answered, all of them unless it
        /// is given; the outputs are compared, and differences counted
        #[arg(long, value_name = "NAME[/VERSION][:PERCENT]", value_parser = shadow)]
        shadow: Option<Value>,
        #[command(flatten)]
        target: Target,
    },
    /// Remove an alias; its models stay
    Rm {
        /// The alias
        #[arg(value_parser = named)]
        name: String,
        #[command(flatten)]
        target: Target,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the registered models
    Ls {
        #[command(flatten)]
        target: Target,
    },
    /// Register an ONNX file with its weights as the newest version of a model, and load it
    Add {
        /// The model's name
        #[arg(value_parser = named)]
        name: String,
        /// The ONNX file
        file: PathBuf,
        #[command(flatten)]
        target: Target,
    },
    /// Delete a model with all its versions, or one of them
    Rm {
        /// The model's name, or NAME/VERSION
        #[arg(value_parser = versioned)]
        name: Versioned,
        #[command(flatten)]
        yes: Yes,
        #[command(flatten)]
        target: Target,
    },
    /// Have every worker load a version of a model; where none is named, those that its policy chooses, or
    /// the newest
    Load {
        /// The model's name, or NAME/VERSION
        #[arg(value_parser = versioned)]
        name: Versioned,
        #[command(flatten)]
        target: Target,
    },
    /// Set where a model runs best, and what may answer in its place; what is not given stays as it is
    Deploy(deploy::Args),
    /// Names that stand for one model or share requests between several
    Alias {
        #[command(subcommand)]
        action: AliasAction,
    },
    /// Have every worker let go of a model or one of its versions, and wait for that; the files stay
    Unload {
        /// The model's name, or NAME/VERSION
        #[arg(value_parser = versioned)]
        name: Versioned,
        #[command(flatten)]
        patience: Patience,
        #[command(flatten)]
        target: Target,
    },
}

/// A model, or one of its versions.
#[derive(Debug, Clone)]
struct Versioned {
    name: String,
    version: Option<u64>,
}

impl fmt::Display for Versioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}/{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Versioned {
    /// The model's path in the REST interface.
    fn path(&self, action: &str) -> String {
        let name = segment(&self.name);
        match self.version {
            Some(version) => format!("models/{name}/versions/{version}{action}"),
            None => format!("models/{name}{action}"),
        }
    }
}

fn versioned(text: &str) -> std::result::Result<Versioned, String> {
    let (name, version) = match text.split_once('/') {
        None => (text, None),
        Some((name, version)) => (name, Some(version)),
    };
    let version = version.map(|version| {
        let parsed = version.parse().ok().filter(|version| *version > 0);
        parsed.ok_or_else(|| format!("the version is '{version}', expected a number from 1"))
    });
    Ok(Versioned { name: named(name)?, version: version.transpose()? })
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let path = |name: &str, action: &str| format!("models/{}{action}", segment(name));
    let empty = json!({});
    let answer: Value = match &args.action {
        Action::Ls { target } => {
            let models: Vec<Value> = target.connect()?.get("models")?;
            return out.emit(&models, |models| table(models));
        }
        Action::Add { name, file, target } => {
            let client = target.connect()?;
            let weights = Repository::external_files(file)?;
            let bar = out.progress_bytes(0, "sent");
            let _waiting = out.waiting(format!("the workers to get and load model {name}"));
            let added = client.upload(&path(name, ""), file, &weights, &bar);
            bar.finish_and_clear();
            added?
        }
        Action::Rm { name, yes, target } => {
            let client = target.connect()?;
            out.confirm(format!("model {name} is deleted, with its files"), *yes)?;
            let removed: Value = client.delete(&name.path(""))?;
            if name.name == digits::NAME && name.version.is_none() {
                out.note("the bundled model is there again at the next start");
            }
            removed
        }
        Action::Load { name, target } => {
            let client = target.connect()?;
            let _waiting = out.waiting(format!("the workers to load model {name}"));
            client.post(&name.path("/load"), &empty)?
        }
        Action::Deploy(args) => args.run()?,
        Action::Alias { action } => return alias(action, out),
        Action::Unload { name, patience, target } => {
            let client = target.connect()?;
            let _waiting = out.waiting(format!("runs of model {name} to end, {patience}"));
            client.post(&name.path("/unload"), &patience.body())?
        }
    };
    out.emit(&answer, |answer| match answer["removed"].as_bool() {
        Some(true) => match answer["version"].as_u64() {
            Some(version) => {
                format!("version {version} of model {} is gone\n", output::cell(&answer["name"]))
            }
            None => format!("model {} is gone\n", output::cell(&answer["name"])),
        },
        _ => table(std::slice::from_ref(answer)) + &rest::ended(answer),
    })
}

fn alias(action: &AliasAction, out: Output) -> Result<()> {
    let path = |name: &str| format!("aliases/{}", segment(name));
    match action {
        AliasAction::Ls { target } => {
            let all: Vec<Value> = target.connect()?.get("aliases")?;
            out.emit(&all, |all| shares(all))
        }
        AliasAction::Set { name, models, shadow, target } => {
            let wish = json!({ "targets": models, "shadow": shadow });
            let answer: Value = target.connect()?.put(&path(name), &wish)?;
            out.emit(&answer, |answer| shares(std::slice::from_ref(answer)))
        }
        AliasAction::Rm { name, target } => {
            let answer: Value = target.connect()?.delete(&path(name))?;
            let gone =
                |answer: &Value| format!("alias {} is gone\n", output::cell(&answer["name"]));
            out.emit(&answer, gone)
        }
    }
}

/// Parses `NAME[/VERSION]:WEIGHT` into REST's form; the server checks names and weights.
fn share(text: &str) -> std::result::Result<Value, String> {
    let parsed = || {
        let (model, weight) = text.rsplit_once(':')?;
        let weight: u32 = weight.parse().ok()?;
        let (model, version) = match model.split_once('/') {
            Some((model, version)) => (model, Some(version.parse::<u64>().ok()?)),
            None => (model, None),
        };
        Some(json!({ "model": model, "version": version, "weight": weight }))
    };
    parsed()
        .ok_or_else(|| "expected NAME:WEIGHT or NAME/VERSION:WEIGHT, such as clf/2:10".to_owned())
}

/// Parses `NAME[/VERSION][:PERCENT]` into REST's form.
fn shadow(text: &str) -> std::result::Result<Value, String> {
    let whole = if text.contains(':') { text.to_owned() } else { format!("{text}:100") };
    let mut value =
        share(&whole).map_err(|_| "expected NAME, NAME/VERSION or NAME/VERSION:PERCENT")?;
    if let Some(fields) = value.as_object_mut()
        && let Some(percent) = fields.remove("weight")
    {
        fields.insert("percent".to_owned(), percent);
    }
    Ok(value)
}

fn shares(aliases: &[Value]) -> String {
    if aliases.is_empty() {
        return "no aliases\n".to_owned();
    }
    let rows = aliases.iter().flat_map(|alias| {
        let targets = output::array(&alias["targets"]);
        targets.iter().map(|target| {
            let version = match &target["version"] {
                Value::Null => "newest".to_owned(),
                version => output::cell(version),
            };
            let [model, weight] = ["model", "weight"].map(|key| output::cell(&target[key]));
            [output::cell(&alias["name"]), model, version, weight]
        })
    });
    output::table(["alias", "model", "version", "weight"], rows)
}

fn table(models: &[Value]) -> String {
    if models.is_empty() {
        return "no models\n".to_owned();
    }
    let rows = models.iter().map(|model| {
        let workers = model["workers"].as_array().map_or(0, Vec::len).to_string();
        let [name, version, state, reason] =
            ["name", "version", "state", "reason"].map(|key| output::cell(&model[key]));
        [name, version, state, workers, reason]
    });
    output::table(["name", "version", "state", "workers", "reason"], rows)
}
