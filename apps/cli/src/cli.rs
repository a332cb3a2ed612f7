//! The command line: one enum variant per command; each command's flags live with the command.

use crate::commands;
use crate::failure::{Failure, Result};
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

/// Modern neural networks on the GPUs that people already own.
#[derive(Debug, Parser)]
#[command(
    name = "radeon-cluster",
    version,
    propagate_version = false,
    max_term_width = 100,
    after_help = "Example:\n  radeon-cluster demo"
)]
pub(crate) struct Cli {
    /// Print one JSON value on stdout; errors become JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands, in the order in which `--help` lists them.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Try a whole cluster on this machine, which loses a worker and still answers every image
    Demo(commands::demo::Args),
    /// List the devices found, and why one is not used
    Devices(commands::devices::Args),
    /// Check this machine and the cluster, and say how to mend what does not work
    Doctor(commands::doctor::Args),
    /// Run a model file on files or folders: outputs as .npy files, and classes
    Run(commands::run::Args),
    /// Measure a model file's load time, latency and memory
    Bench(commands::bench::Args),
    /// Measure how a model file runs fastest on a graphics card, and run it so from now on
    Tune(commands::tune::Args),
    /// Show what a run of a model file spends its time on
    Profile(commands::profile::Args),
    /// Show what a model file takes, gives and is made of
    Inspect(commands::inspect::Args),
    /// Show what a model takes of memory, and which batch fits
    Plan(commands::plan::Args),
    /// Put weights from elsewhere into a model file, or store its weights differently
    Convert(commands::convert::Args),
    /// Try and measure every device of this machine, and write the result to pass on
    Card(commands::card::Args),
    /// Gather what a maintainer needs to know into one file, without secrets
    Report(commands::report::Args),
    /// Write a settings file in which every setting is explained
    Init(commands::init::Args),
    /// Start a coordinator with local workers
    Start(commands::start::Args),
    /// Let other machines join: make, list and revoke tokens
    Token(commands::token::Args),
    /// Let programs use the cluster: make, list and revoke API keys
    Keys(commands::keys::Args),
    /// Show where a cluster's state is kept, and move it elsewhere
    Control(commands::control::Args),
    /// Make this machine a worker of a cluster elsewhere
    Join(commands::join::Args),
    /// Show what a coordinator and its local workers have logged
    Logs(commands::logs::Args),
    /// Open the cluster's page in a browser, signed in
    Dashboard(commands::dashboard::Args),
    /// Stop a coordinator and its workers
    Stop(commands::stop::Args),
    /// Show how a coordinator is doing
    Status(commands::status::Args),
    /// Show what a coordinator has done since it started
    Stats(commands::stats::Args),
    /// Watch workers, devices, queues and the log in the terminal
    Top(commands::top::Args),
    /// Change how many local workers there are
    Scale(commands::scale::Args),
    /// Replace the local workers by new processes without a pause in service
    Restart(commands::restart::Args),
    /// List the workers, show one, or let one leave
    Workers(commands::workers::Args),
    /// Give the cluster a task, or one for each of many files
    Submit(commands::submit::Args),
    /// Get the outputs of a task
    Result(commands::result::Args),
    /// List the tasks, show one, or copy the journal of durable ones
    Tasks(commands::tasks::Args),
    /// Stop a task that is not finished
    Cancel(commands::cancel::Args),
    /// List, add, remove, load and unload models
    Models(commands::models::Args),
    /// Print what a shell needs to complete commands
    Completions(commands::completions::Args),
    /// Write a manual page for each command
    #[command(hide = true)]
    Manual(commands::manual::Args),
    /// The process that start leaves running
    #[command(hide = true)]
    Coordinator,
    /// A worker process of a local cluster
    #[command(hide = true)]
    Worker,
}

/// Prints help and version on stdout as asked for; turns everything else into a usage failure.
pub(crate) fn report_usage(error: &clap::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has gone does not want the rest.
            let _ = error.print();
            Ok(())
        }
        _ => Err(usage_failure(error, std::env::args_os().skip(1))),
    }
}

/// clap's message without its decoration: what is wrong in one line, what to do in the hint.
fn usage_failure(error: &clap::Error, words: impl Iterator<Item = OsString>) -> Failure {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing".to_owned(),
        _ => {
            let first = paragraphs.next().unwrap_or("the command line does not parse");
            let first = first.strip_prefix("error: ").unwrap_or(first);
            with_range(&first.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    };
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    // A flag that there is not was hardly meant as a file of that name.
    let tips = tips.filter(|tip| !tip.starts_with("to pass '"));
    let mut hint: Vec<String> = tips.map(str::to_owned).collect();
    if let Some(usage) = error.get(ContextKind::Usage) {
        hint.push(usage.to_string().trim().replace("Usage: ", "usage: "));
    }
    if hint.is_empty() {
        hint.push(format!("see radeon-cluster{} --help", command_of(words)));
    }
    Failure::usage(message).hint(hint.join("; "))
}

/// A message whose range is as people write it: `expected 1 to 256` in place of `0 is not in 1..=256`.
fn with_range(message: &str) -> String {
    let parts = message.rsplit_once(": ").and_then(|(what, why)| {
        let (_, range) = why.split_once(" is not in ")?;
        let (least, most) = range.split_once("..=")?;
        Some((what, least, most))
    });
    match parts {
        Some((what, least, most)) => format!("{what}: expected {least} to {most}"),
        None => message.to_owned(),
    }
}

/// The words of a command line that name its command, each with a space before it: ` token create`.
fn command_of(words: impl Iterator<Item = OsString>) -> String {
    let mut command = Cli::command();
    let mut named = String::new();
    for word in words {
        if let Some(inner) = command.find_subcommand(&word).cloned() {
            named.push(' ');
            named.push_str(inner.get_name());
            command = inner;
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let name = command.get_name();
            assert!(after.contains(&format!("radeon-cluster {name}")), "{name} has no example");
        }
    }

    #[test]
    fn usage_failures_say_what_and_how() {
        for (line, part) in [
            (vec!["radeon-cluster"], "a command is missing"),
            (vec!["radeon-cluster", "nope"], "unrecognized subcommand 'nope'"),
            (vec!["radeon-cluster", "devices", "--nope"], "unexpected argument '--nope' found"),
        ] {
            let failure = failure_of(&line);
            assert_eq!(failure.message, part);
            assert_eq!((failure.code.as_ref(), failure.exit), ("usage", 2));
            assert!(failure.hint.is_some());
        }
    }

    fn failure_of(line: &[&str]) -> Failure {
        let error = Cli::try_parse_from(line).expect_err("the line is wrong");
        usage_failure(&error, line[1..].iter().map(OsString::from))
    }

    #[test]
    fn a_wrong_value_says_what_is_expected_and_where_that_is_explained() {
        let failure = failure_of(&["radeon-cluster", "--json", "start", "--workers", "257"]);
        assert_eq!(failure.message, "invalid value '257' for '--workers <N>': expected 0 to 256");
        assert_eq!(failure.hint.as_deref(), Some("see radeon-cluster start --help"));
        let failure = failure_of(&["radeon-cluster", "token", "create", "--ttl", "1"]);
        assert!(failure.message.contains("'1' is not a time"), "{failure}");
        assert_eq!(failure.hint.as_deref(), Some("see radeon-cluster token create --help"));
    }

    #[test]
    fn a_flag_that_there_is_not_is_no_file() {
        let failure = failure_of(&["radeon-cluster", "run", "model.onnx", "--zzz"]);
        let hint = failure.hint.unwrap_or_default();
        assert!(hint.starts_with("usage: ") && !hint.contains("to pass"), "{hint}");
    }
}
