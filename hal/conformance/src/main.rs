//! `lgp-hal-conformance`: tries the laws of the hardware layer on this machine's devices.

use std::process::ExitCode;

fn main() -> ExitCode {
    lgp_hal_conformance::main_with(std::env::args().skip(1))
}
