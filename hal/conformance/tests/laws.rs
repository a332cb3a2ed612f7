//! The laws as a test without the standard harness, so that skipped laws are reported.

use std::process::ExitCode;

fn main() -> ExitCode {
    lgp_hal_conformance::main_of_test(std::env::args().skip(1))
}
