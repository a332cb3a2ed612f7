//! `models deploy`: sets a model's deployment, field by field.

use crate::failure::{Failure, Result};
use crate::rest::{Target, named, segment};
use clap::builder::PossibleValuesParser;
use lgp_hal::BackendKind;
use lgp_server::VersionPolicy;
use serde_json::{Map, Value, json};

/// The backends that models run on.
fn backends() -> PossibleValuesParser {
    let real = BackendKind::ALL.into_iter().filter(|kind| *kind != BackendKind::Null);
    PossibleValuesParser::new(real.map(BackendKind::name))
}

/// Flags of `models deploy`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model's name
    #[arg(value_parser = named)]
    name: String,
    /// Device memory that it takes, such as 2GiB [default: measured when it loads]
    #[arg(long, value_name = "SIZE", value_parser = lgp_common::parse_size)]
    memory: Option<u64>,
    /// The backend that it runs best on
    #[arg(long, value_parser = backends())]
    backend: Option<String>,
    /// The family of chips that it runs best on, such as Polaris
    #[arg(long)]
    family: Option<String>,
    /// Models with the same inputs and outputs, such as quantised ones, of which the strategy
    /// adaptive takes the one that is done first
    #[arg(long, value_name = "NAME,NAME", value_delimiter = ',')]
    variants: Vec<String>,
    /// How long one run may take before it is stopped, for tasks that say nothing [default: what the
    /// setting run_limit_s says]
    #[arg(long, value_name = "MS")]
    run_limit_ms: Option<u64>,
    /// The versions to load: all, latest:N, or a list such as 1,3 [default: those that are loaded, and
    /// each that is added]
    #[arg(long, value_name = "VERSIONS")]
    versions: Option<VersionPolicy>,
    /// Keep so much of its answers, such as 64MiB, and give them again to inferences with the same
    /// inputs [default: none]
    #[arg(long, value_name = "SIZE", value_parser = lgp_common::parse_size)]
    cache: Option<u64>,
    /// How long an answer is kept [default: until others need its room]
    #[arg(long, value_name = "MS")]
    cache_ttl_ms: Option<u64>,
    /// Fields to leave open again, by their names over REST, such as cache_bytes,batching
    #[arg(long, value_name = "FIELD,FIELD", value_delimiter = ',')]
    clear: Vec<String>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub(super) fn run(&self) -> Result<Value> {
        let patch = self.patch()?;
        self.target.connect()?.patch(&format!("models/{}/deployment", segment(&self.name)), &patch)
    }

    /// The given fields, and null for the fields to clear.
    fn patch(&self) -> Result<Value> {
        let variants = Some(&self.variants).filter(|variants| !variants.is_empty());
        let given = [
            ("memory_bytes", json!(self.memory)),
            ("backend", json!(self.backend)),
            ("family", json!(self.family)),
            ("variants", json!(variants)),
            ("run_limit_ms", json!(self.run_limit_ms)),
            ("version_policy", json!(self.versions)),
            ("cache_bytes", json!(self.cache)),
            ("cache_ttl_ms", json!(self.cache_ttl_ms)),
        ];
        let given = given.into_iter().filter(|(_, value)| !value.is_null());
        let mut patch: Map<_, _> = given.map(|(name, value)| (name.to_owned(), value)).collect();
        for field in &self.clear {
            if patch.insert(field.clone(), Value::Null).is_some_and(|given| !given.is_null()) {
                let what =
                    format!("{field} is given a value and is in --clear, expected one of the two");
                return Err(Failure::usage(what));
            }
        }
        if patch.is_empty() {
            let what = "nothing is to be changed, expected a flag such as --cache or --clear";
            return Err(Failure::usage(what));
        }
        Ok(patch.into())
    }
}
