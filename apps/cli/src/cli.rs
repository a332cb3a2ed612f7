//! The command line: one enum variant per command; each command's flags live with the command.

use crate::commands;
use crate::failure::{Failure, Result};
use clap::error::{ContextKind, ErrorKind};
use clap::{Parser, Subcommand};

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
    /// List the devices found, and why one is not used
    Devices(commands::devices::Args),
    /// Check this machine and name the line to set where something does not work
    Doctor(commands::doctor::Args),
}

/// Prints help and version on stdout as asked for; turns everything else into a usage failure.
pub(crate) fn report_usage(error: &clap::Error) -> Result<()> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has gone does not want the rest.
            let _ = error.print();
            Ok(())
        }
        _ => Err(usage_failure(error)),
    }
}

/// clap's message without its decoration: what is wrong in one line, what to do in the hint.
fn usage_failure(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let mut paragraphs = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing".to_owned(),
        _ => {
            let first = paragraphs.next().unwrap_or("the command line does not parse");
            let first = first.strip_prefix("error: ").unwrap_or(first);
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    };
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    let mut hint: Vec<String> = tips.map(str::to_owned).collect();
    if let Some(usage) = error.get(ContextKind::Usage) {
        hint.push(usage.to_string().trim().replace("Usage: ", "usage: "));
    }
    if hint.is_empty() {
        hint.push("see radeon-cluster --help".to_owned());
    }
    Failure::usage(message).hint(hint.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

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
            let error = Cli::try_parse_from(line).expect_err("the line is wrong");
            let failure = usage_failure(&error);
            assert_eq!(failure.message, part);
            assert_eq!((failure.code.as_ref(), failure.exit), ("usage", 2));
            assert!(failure.hint.is_some());
        }
    }
}
