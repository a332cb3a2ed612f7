//! The command line: a command, then names with values.

use crate::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// The names of all commands' values.
const NAMES: [&str; 12] = [
    "tasks",
    "in-flight",
    "slots",
    "payload",
    "asks-thread",
    "durable",
    "queue",
    "workers",
    "sleep-ms",
    "turns",
    "seconds",
    "steps",
];

/// Values by name.
pub(crate) struct Options(BTreeMap<String, String>);

impl Options {
    /// The command (`run` if none is given), and the values.
    pub(crate) fn parse(arguments: &[String]) -> Result<(String, Self)> {
        let mut arguments = arguments.iter().peekable();
        let named = arguments.next_if(|first| !first.starts_with("--"));
        let command = named.map_or("run", String::as_str).to_owned();
        let mut values = BTreeMap::new();
        while let Some(argument) = arguments.next() {
            // All output is JSON.
            if argument == "--json" {
                continue;
            }
            let name = argument.strip_prefix("--").filter(|name| NAMES.contains(name));
            let name = name.ok_or_else(|| format!("unknown argument {argument:?}"))?;
            let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
            values.insert(name.to_owned(), value.clone());
        }
        Ok((command, Self(values)))
    }

    /// The value of a name, or `default`.
    pub(crate) fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        let Some(text) = self.0.get(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("--{name} {text:?} is not what it must be").into())
    }

    /// A comma-separated list, or `default`.
    pub(crate) fn list(&self, name: &str, default: &[usize]) -> Result<Vec<usize>> {
        let Some(text) = self.0.get(name) else { return Ok(default.to_vec()) };
        let parse = |part: &str| part.parse().map_err(|_| format!("--{name} {part:?}").into());
        text.split(',').map(parse).collect()
    }

    /// The folder of durable tasks, if tasks should be durable.
    pub(crate) fn durable(&self) -> Option<PathBuf> {
        self.0.get("durable").map(PathBuf::from)
    }
}
