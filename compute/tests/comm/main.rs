//! Transfers and collectives on devices that record, and on several OpenCL devices of PoCL.

mod collectives;
mod transfers;

use std::process::Command;

/// Runs the test `name` again in a process with three OpenCL devices where OpenCL is PoCL. A new
/// process is needed because PoCL reads its environment when it is loaded. True in that process.
fn with_three_devices(name: &str) -> bool {
    const DEVICES: (&str, &str) = ("POCL_DEVICES", "pthread pthread pthread");
    if std::env::var(DEVICES.0).is_ok_and(|given| given == DEVICES.1) {
        return true;
    }
    let program = std::env::current_exe().expect("this program has a path");
    let mut again = Command::new(program);
    let again = again.args([name, "--exact", "--nocapture"]).env(DEVICES.0, DEVICES.1);
    let output = again.output().expect("this program starts");
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("1 passed"), "{name} was not found: {out}");
    out.lines().filter(|line| line.starts_with("skipped: ")).for_each(|line| println!("{line}"));
    false
}
