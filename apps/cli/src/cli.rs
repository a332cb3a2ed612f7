//! The command line: one enum variant per command; each command's flags live with the command.

mod usage;

use crate::commands;
use crate::failure::Result;
use crate::output;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::io::Write;

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
    /// Make a model file smaller or faster within a bound, and say what that cost
    Optimize(commands::optimize::Args),
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
            output::written(error.print().and_then(|()| std::io::stdout().flush()))
        }
        _ => Err(usage::failure(error, &std::env::args_os().skip(1).collect::<Vec<_>>())),
    }
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
}
