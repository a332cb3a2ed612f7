//! `bench`: six kinds of measurement in a common frame, which later runs are compared with.

mod cluster;
mod compare;
mod devices;
mod end_to_end;
mod frame;
mod local;
mod memory;
mod sample;
mod serving;

use crate::failure::Result;
use crate::near::near;
use crate::output::Output;
use clap::{Command, Subcommand};
use std::path::PathBuf;

/// Flags of `bench`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_value_name = "KIND",
    subcommand_help_heading = "Kinds",
    disable_help_subcommand = true,
    after_help = "Example:\n  radeon-cluster bench resnet50.onnx --batch 4 --json\n  \
        radeon-cluster bench cluster -o before.json\n  \
        radeon-cluster bench cluster --baseline before.json\n\n\
        A word of the six means that kind, and anything else a model file, as bench local takes it; a\n\
        file of such a name is given as ./NAME.\n\
        Inputs that are not given are random where they are floats, and 0 where they are not;\n\
        the random numbers are the same in every run.\n\
        With --baseline each quantity is compared by an interval of 95 %: the command fails where the\n\
        whole of one lies beyond the tolerance."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Option<Kind>,
    #[command(flatten)]
    local: local::Args,
}

/// What can be measured. One line here and one file each.
#[derive(Debug, Subcommand)]
enum Kind {
    /// A model file's load time, latency and memory; the bundled model where none is named
    Local(local::Args),
    /// A cluster of this machine: tasks a second, what they wait for, and how workers scale
    Cluster(cluster::Args),
    /// Answers over HTTP and gRPC, one after the other and at a rate
    Serving(serving::Args),
    /// Pools, arenas and the allocator of device memory, and what a model takes of RAM
    Memory(memory::Args),
    /// Each device beside the processor: copies, products, convolutions, the bundled model
    Devices(devices::Args),
    /// What demo does: images to answers, with a worker killed halfway
    EndToEnd(end_to_end::Args),
}

/// What every kind takes.
#[derive(Debug, clap::Args)]
struct Common {
    /// Write the JSON there too, for a later --baseline; a file that is there is replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with the JSON of an earlier run of the same kind
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// What may get worse by so much without the command failing
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = compare::share)]
    tolerance: f64,
    /// A few short rounds, which show that all works
    #[arg(long)]
    quick: bool,
}

/// The probable kind, if the argument is a word and no existing model file.
fn kind_meant(args: &local::Args) -> Option<String> {
    let word = args.model().filter(|path| !path.exists())?.to_str()?;
    let command = Kind::augment_subcommands(Command::new("bench"));
    near(word, command.get_subcommands().map(Command::get_name)).map(str::to_owned)
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    match &args.kind {
        None => local::run(&args.local, out).map_err(|failure| match kind_meant(&args.local) {
            Some(kind) if failure.code == "file_not_found" => {
                failure.hint(format!("did you mean radeon-cluster bench {kind}?"))
            }
            _ => failure,
        }),
        Some(Kind::Local(args)) => local::run(args, out),
        Some(Kind::Cluster(args)) => cluster::run(args, out),
        Some(Kind::Serving(args)) => serving::run(args, out),
        Some(Kind::Memory(args)) => memory::run(args, out),
        Some(Kind::Devices(args)) => devices::run(args, out),
        Some(Kind::EndToEnd(args)) => end_to_end::run(args, out),
    }
}
