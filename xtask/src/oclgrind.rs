//! Small operators on Oclgrind, a simulated OpenCL device that reports faults which hardware
//! tolerates: races, accesses out of bounds, barriers that some work-items miss.

use crate::report::{Outcome, Skip};
use crate::{apt, cmd};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;

/// The driver's path in Debian's oclgrind.
pub(crate) const LIBRARY: &str = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";
/// A program of the same package that runs one kernel without a host program.
const KERNEL: &str = "oclgrind-kernel";
/// The faults that must be found in each simulation of the fixture.
const FIXTURE: &[(&str, &[&str])] = &[
    ("sound", &[]),
    ("race", &["Read-write data race", "Write-write data race"]),
    ("bounds", &["Invalid write"]),
    ("barrier", &["divergence"]),
];

/// Checks that the fixture's faults are found, and none in the operators.
pub(crate) fn suite() -> Result<Outcome> {
    if let Err(error) = apt::oclgrind() {
        return Ok(Outcome::skip(Skip::new("oclgrind", format!("{error:#}"))));
    }
    let mut outcome = fixture()?;
    outcome.and(operators()?);
    Ok(outcome)
}

fn fixture() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let folder = cmd::root().join("xtask/fixtures/oclgrind");
    for (name, wanted) in FIXTURE {
        let mut simulate = cmd::command(KERNEL);
        simulate.current_dir(&folder).arg("--data-races").arg(format!("{name}.sim"));
        let finished = cmd::capture(&mut simulate)?;
        ensure!(finished.ok, "{KERNEL} cannot simulate {name}: {}", finished.output);
        let found = faults(&finished.output);
        let seen = |wanted: &&str| found.iter().any(|fault| fault.contains(*wanted));
        if wanted.iter().all(seen) && found.is_empty() == wanted.is_empty() {
            outcome.passed += 1;
        } else {
            outcome.failed.push(format!("fixture {name}: {found:?}, expected {wanted:?}"));
        }
    }
    Ok(outcome)
}

/// Runs the operators' own test program with the simulator as the only device. The hardware layer's
/// laws are left out: they use a device from several threads, which the simulator does not support.
fn operators() -> Result<Outcome> {
    let vendors = cmd::root().join("target/xtask/oclgrind");
    std::fs::create_dir_all(&vendors)?;
    std::fs::write(vendors.join("oclgrind.icd"), format!("{LIBRARY}\n"))?;
    let mut program = cmd::command(cmd::programs()?.join("examples/device_ops"));
    program.args(["opencl:0", "small"]);
    program.env("OCL_ICD_VENDORS", &vendors).env("OCLGRIND_DATA_RACES", "1");
    // Optimised code has intrinsics that the simulator does not know, such as `llvm.abs`.
    program.env("OCLGRIND_BUILD_OPTIONS", "-cl-opt-disable");
    let finished = cmd::capture(&mut program)?;
    let mut outcome = Outcome::read(&finished.output);
    outcome.failed.extend(faults(&finished.output));
    if outcome.failed.is_empty() && (!finished.ok || outcome.passed == 0) {
        outcome.failed.push("device_ops ended with a failure, or ran nothing".to_owned());
    }
    if !outcome.failed.is_empty() {
        eprintln!("{}", finished.output);
    }
    Ok(outcome)
}

/// The faults in the simulator's output, each kind once for a line of source.
fn faults(output: &str) -> BTreeSet<String> {
    let mut faults = BTreeSet::new();
    let lines: Vec<&str> = output.lines().collect();
    for (index, pair) in lines.windows(2).enumerate() {
        let [title, kernel] = pair else { continue };
        let Some(kernel) = kernel.strip_prefix("\tKernel:") else { continue };
        // Addresses add nothing to the line, and would turn one fault into many.
        let title = title.split(" at ").next().unwrap_or(title);
        let own = lines.iter().skip(index + 2).take_while(|line| line.starts_with('\t'));
        let place = own.filter_map(|line| line.strip_prefix("\tAt line ")).next();
        let place = place
            .map(|place| format!(", line {}", place.trim_end_matches(':')))
            .unwrap_or_default();
        faults.insert(format!("{title} in {}{place}", kernel.trim()));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
ok add

Invalid write of size 4 at global memory address 0x2000000000010
\tKernel: race
\tEntity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
\t  store i32 %conv, i32 addrspace(1)* %arrayidx2, align 4, !dbg !31, !tbaa !24
\tAt line 4 (column 12) of input.cl:
\t  y[i + 1] = i;
\t

Read-write data race at global memory address 0x1000000000000
\tKernel: race
\t
\tFirst entity:  Global(1,0,0) Local(1,0,0) Group(0,0,0)
\t  %0 = load i32, i32 addrspace(1)* %sum, align 4, !dbg !23, !tbaa !24
\tAt line 2 (column 10) of input.cl:
\t  sum[0] += 1;

Read-write data race at global memory address 0x1000000000004
\tKernel: race
\t
\tFirst entity:  Global(2,0,0) Local(1,0,0) Group(0,0,0)
\tAt line 2 (column 10) of input.cl:
";

    #[test]
    fn faults_are_told_once_a_line() {
        let wanted = [
            "Invalid write of size 4 in race, line 4 (column 12) of input.cl",
            "Read-write data race in race, line 2 (column 10) of input.cl",
        ];
        assert_eq!(faults(OUTPUT).into_iter().collect::<Vec<_>>(), wanted);
        assert!(faults("ok add\nok mul\n").is_empty());
    }
}
