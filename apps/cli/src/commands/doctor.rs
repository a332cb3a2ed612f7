//! `doctor`: checks this machine and names the line to set where something does not work.

use super::devices::options;
use crate::failure::{Failure, Result};
use crate::output::Output;
use lgp_sdk::{Finding, FindingStatus, diagnose};
use serde::Serialize;
use std::path::PathBuf;

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster doctor")]
pub(crate) struct Args {
    /// Read what the kernel says of graphics cards from this folder instead of /sys
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
}

/// The command's result.
#[derive(Debug, Serialize)]
struct Report {
    /// Whether nothing failed; warnings do not count.
    ok: bool,
    findings: Vec<Finding>,
}

/// Runs the command; it fails when a device fails its self-test.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let findings = diagnose(&options(args.sysfs_root.as_deref())?);
    let failed: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.status == FindingStatus::Fail)
        .map(|finding| finding.subject.as_str())
        .collect();
    let failure = (!failed.is_empty()).then(|| {
        Failure::new("device_faulty", format!("not working: {}", failed.join(", ")))
            .hint("the other devices can be used all the same")
    });
    out.emit(&Report { ok: failure.is_none(), findings }, text)?;
    failure.map_or(Ok(()), Err)
}

/// One line per finding, and below it what to type.
fn text(report: &Report) -> String {
    let width = report.findings.iter().map(|it| it.subject.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { subject, status, message, fix } in &report.findings {
        text.push_str(&format!("{status:<4}  {subject:<width$}  {message}\n"));
        if let Some(fix) = fix {
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
        let finding = |subject: &str, status, message: &str, fix: Option<&str>| Finding {
            subject: subject.to_owned(),
            status,
            message: message.to_owned(),
            fix: fix.map(str::to_owned),
        };
        let findings = vec![
            finding("cpu", FindingStatus::Ok, "a processor: models run here", None),
            finding(
                "pci:0000:01:00.0",
                FindingStatus::Warn,
                "AMD Radeon RX 580: rusticl is off",
                Some("export RUSTICL_ENABLE=radeonsi"),
            ),
        ];
        let report = Report { ok: true, findings };
        insta::assert_snapshot!(text(&report), @r"
        ok    cpu               a processor: models run here
        warn  pci:0000:01:00.0  AMD Radeon RX 580: rusticl is off
                                try: export RUSTICL_ENABLE=radeonsi
        ");
    }
}
