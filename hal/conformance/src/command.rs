//! The command line of the laws, shared by the program and the test.

use crate::backends::{Report, run};
use lgp_hal::BackendKind;
use std::process::ExitCode;

/// The backends that a machine may lack, by name.
fn backends() -> String {
    let always = [BackendKind::Null, BackendKind::Cpu];
    let others = BackendKind::ALL.into_iter().filter(|kind| !always.contains(kind));
    others.map(BackendKind::name).collect::<Vec<_>>().join(", ")
}

/// Runs the program: 0 when every law is kept, 1 when one is broken or a required backend is
/// absent, 2 for a faulty command line.
pub fn main_with(args: impl IntoIterator<Item = String>) -> ExitCode {
    match required(args.into_iter(), true) {
        Ok(required) => print(&run(&required)),
        Err(complaint) => {
            let backends = backends();
            eprintln!(
                "{complaint}\nusage: lgp-hal-conformance [--require BACKEND]…   ({backends})"
            );
            ExitCode::from(2)
        }
    }
}

/// Runs as a test: like [`main_with`], but ignores options of the standard test harness (filters,
/// `--nocapture`).
pub fn main_of_test(args: impl IntoIterator<Item = String>) -> ExitCode {
    match required(args.into_iter(), false) {
        Ok(required) => print(&run(&required)),
        Err(complaint) => {
            eprintln!("{complaint}");
            ExitCode::FAILURE
        }
    }
}

/// The backends that must have a device.
fn required(
    mut args: impl Iterator<Item = String>,
    strict: bool,
) -> Result<Vec<BackendKind>, String> {
    let mut all = Vec::new();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--require" => {
                let name = args.next().ok_or("--require needs a backend")?;
                let kind = name.parse();
                let expected =
                    || format!("unknown backend {name:?}, expected one of {}", backends());
                all.push(kind.map_err(|_| expected())?);
            }
            _ if strict => return Err(format!("unexpected argument {arg:?}")),
            _ => {}
        }
    }
    Ok(all)
}

fn print(report: &Report) -> ExitCode {
    for line in &report.lines {
        println!("{line}");
    }
    println!("{}", report.summary());
    if report.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let parse =
            |line: &str, strict| required(line.split_whitespace().map(str::to_owned), strict);
        assert_eq!(parse("", true), Ok(vec![]));
        let both = vec![BackendKind::OpenCl, BackendKind::Cuda];
        assert_eq!(parse("--require opencl --require cuda", true), Ok(both));
        assert!(parse("--require", true).is_err());
        assert!(parse("--require metal", false).is_err());
        assert!(parse("--nocapture", true).is_err());
        assert_eq!(parse("--nocapture some_filter", false), Ok(vec![]));
    }
}
