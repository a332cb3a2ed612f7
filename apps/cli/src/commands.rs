//! One file per command: its flags as `Args`, and `run`.

pub(crate) mod devices;
pub(crate) mod doctor;

use crate::cli::{Cli, Command};
use crate::failure::Result;
use crate::output::Output;

/// Runs the command that was asked for.
pub(crate) fn dispatch(cli: &Cli) -> Result<()> {
    let out = Output::new(cli.json);
    match &cli.command {
        Command::Devices(args) => devices::run(args, out),
        Command::Doctor(args) => doctor::run(args, out),
    }
}
