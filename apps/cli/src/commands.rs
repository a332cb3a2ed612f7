//! One file per command: its flags as `Args`, and `run`.

pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod card;
pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod coordinator;
pub(crate) mod dashboard;
pub(crate) mod demo;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod init;
pub(crate) mod inspect;
pub(crate) mod join;
pub(crate) mod keys;
pub(crate) mod logs;
pub(crate) mod manual;
pub(crate) mod models;
pub(crate) mod optimize;
pub(crate) mod plan;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod restart;
pub(crate) mod result;
pub(crate) mod run;
pub(crate) mod scale;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod submit;
pub(crate) mod tasks;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod tune;
pub(crate) mod worker;
pub(crate) mod workers;

use crate::cli::{Cli, Command};
use crate::failure::Result;
use crate::output::Output;
use clap::CommandFactory;

/// Runs the command that was asked for.
pub(crate) fn dispatch(cli: &Cli) -> Result<()> {
    let out = Output::new(cli.json);
    match &cli.command {
        Command::Demo(args) => demo::run(args, out),
        Command::Devices(args) => devices::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
        Command::Run(args) => run::run(args, out),
        Command::Bench(args) => bench::run(args, out),
        Command::Tune(args) => tune::run(args, out),
        Command::Profile(args) => profile::run(args, out),
        Command::Inspect(args) => inspect::run(args, out),
        Command::Plan(args) => plan::run(args, out),
        Command::Convert(args) => convert::run(args, out),
        Command::Optimize(args) => optimize::run(args, out),
        Command::Card(args) => card::run(args, out),
        Command::Report(args) => report::run(args, out),
        Command::Init(args) => init::run(args, out),
        Command::Start(args) => start::run(args, out),
        Command::Token(args) => token::run(args, out),
        Command::Keys(args) => keys::run(args, out),
        Command::Control(args) => control::run(args, out),
        Command::Join(args) => join::run(args, out),
        Command::Logs(args) => logs::run(args, out),
        Command::Dashboard(args) => dashboard::run(args, out),
        Command::Stop(args) => stop::run(args, out),
        Command::Status(args) => status::run(args, out),
        Command::Stats(args) => stats::run(args, out),
        Command::Top(args) => top::run(args, out),
        Command::Scale(args) => scale::run(args, out),
        Command::Restart(args) => restart::run(args, out),
        Command::Workers(args) => workers::run(args, out),
        Command::Submit(args) => submit::run(args, out),
        Command::Result(args) => result::run(args, out),
        Command::Tasks(args) => tasks::run(args, out),
        Command::Cancel(args) => cancel::run(args, out),
        Command::Models(args) => models::run(args, out),
        Command::Completions(args) => completions::run(args, Cli::command(), out),
        Command::Manual(args) => manual::run(args, Cli::command(), out),
        Command::Coordinator => coordinator::run(),
        Command::Worker => worker::run(),
    }
}
