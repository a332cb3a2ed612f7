//! `top`: an overview of a cluster in the terminal, updated until ended.

mod pages;
mod screen;
mod snapshot;
mod view;

use crate::failure::Result;
use crate::output::Output;
use crate::rest::Target;
use snapshot::Snapshot;
use std::io::IsTerminal;
use std::time::Duration;

/// Flags of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster top --interval 1\n\n\
    Keys: tab and the arrows move, q and ctrl-C end it. It changes nothing. Where stdout is no\n\
    terminal, or with --json, what the cluster looks like now is printed once.")]
pub(crate) struct Args {
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    #[command(flatten)]
    target: Target,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    // Taken before the terminal, which is of no use without a snapshot.
    let first = Snapshot::take(&args.target.connect()?)?;
    let is_watched = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if out.is_json() || !is_watched {
        return out.emit(&first, pages::text);
    }
    screen::watch(first, args.target.clone(), Duration::from_secs(args.interval))
}
