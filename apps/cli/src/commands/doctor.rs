//! `doctor`: checks this machine, and a cluster if one runs, and names the line to set for each fault. It changes
//! nothing.

mod cluster;
mod firewall;
mod quic;
mod speed;
mod ways;

use super::devices::options;
use crate::failure::{Failure, Result};
use crate::loopback;
use crate::output::Output;
use crate::rest::Target;
use lgp_hal::{Finding, Status as FindingStatus, examine};
use serde::Serialize;
use std::path::PathBuf;

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster doctor\n\n\
    Each usable device is measured beside the processor, which takes some seconds. Where a\n\
    coordinator runs, or --server names one, the cluster is checked too. Nothing is changed.\n\
    Only what fails makes it exit 1.")]
pub(crate) struct Args {
    /// Read what the kernel says of graphics cards from this folder instead of /sys, and check nothing
    /// else
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// The command's result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    /// Whether nothing failed; warnings do not count.
    ok: bool,
    pub(super) findings: Vec<Finding>,
}

/// Runs the command; it fails when a device fails its self-test, or a cluster cannot work.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let (devices, mut findings) = examine(&options(args.sysfs_root.as_deref())?);
    let mut of_machine = findings.len();
    if args.sysfs_root.is_none() {
        ways::check(&devices, &mut findings);
        of_machine = findings.len();
        findings.push(loopback::finding());
        findings.extend(speed::check(&devices));
        findings.extend(cluster::check(&args.target));
    }
    let failure = failure(&findings, of_machine);
    out.emit(&Report { ok: failure.is_none(), findings }, |report| text(&report.findings))?;
    failure.map_or(Ok(()), Err)
}

/// All findings on this machine and its cluster.
pub(crate) fn findings(target: &Target) -> Vec<Finding> {
    let (devices, mut findings) = examine(&lgp_sdk::device::ProbeOptions::default());
    ways::check(&devices, &mut findings);
    findings.push(loopback::finding());
    findings.extend(speed::check(&devices));
    findings.extend(cluster::check(target));
    findings
}

/// The failure for findings, of which the first `of_machine` are about devices.
fn failure(findings: &[Finding], of_machine: usize) -> Option<Failure> {
    let failed = |findings: &[Finding]| -> Vec<String> {
        let failed = findings.iter().filter(|finding| finding.status == FindingStatus::Fail);
        failed.map(|finding| finding.subject.clone()).collect()
    };
    let (devices, others) = findings.split_at(of_machine.min(findings.len()));
    let (devices, others) = (failed(devices), failed(others));
    if !devices.is_empty() {
        let all = [devices, others].concat().join(", ");
        let failure = Failure::new("device_faulty", format!("not working: {all}"));
        return Some(failure.hint("the other devices can be used all the same"));
    }
    (!others.is_empty()).then(|| {
        Failure::new("cluster_faulty", format!("not working: {}", others.join(", ")))
            .hint("the findings name what to do about each")
    })
}

/// One line per finding, and below it what to type.
pub(super) fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|it| it.subject.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { subject, status, message, fix } in findings {
        let (subject, message) = (crate::output::plain(subject), crate::output::plain(message));
        text.push_str(&format!("{status:<4}  {subject:<width$}  {message}\n"));
        if let Some(fix) = fix {
            let fix = crate::output::plain(fix);
            text.push_str(&format!("{:<4}  {:<width$}  try: {fix}\n", "", ""));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_aligned_and_followed_by_what_to_type() {
        let findings = vec![
            Finding::new("cpu", FindingStatus::Ok, "a processor: models run here"),
            Finding::new(
                "pci:0000:01:00.0",
                FindingStatus::Warn,
                "AMD Radeon RX 580: rusticl is off",
            )
            .fix("export RUSTICL_ENABLE=radeonsi"),
        ];
        insta::assert_snapshot!(text(&findings), @r"
        ok    cpu               a processor: models run here
        warn  pci:0000:01:00.0  AMD Radeon RX 580: rusticl is off
                                try: export RUSTICL_ENABLE=radeonsi
        ");
    }

    #[test]
    fn only_what_fails_is_a_failure_and_devices_come_first() {
        let finding = |status| Finding::new("x", status, "");
        let [warn, fail] = [FindingStatus::Warn, FindingStatus::Fail].map(finding);
        for (findings, of_machine, code) in [
            (vec![warn.clone(), warn.clone()], 1, None),
            (vec![fail.clone(), warn.clone()], 1, Some("device_faulty")),
            (vec![warn.clone(), fail.clone()], 1, Some("cluster_faulty")),
            (vec![fail.clone(), fail], 1, Some("device_faulty")),
        ] {
            let found = failure(&findings, of_machine);
            assert_eq!(found.as_ref().map(|failure| failure.code.as_ref()), code);
        }
    }
}
