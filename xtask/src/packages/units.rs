//! The systemd units: their syntax, their exposure, and whether they can be enabled.

use super::debian::shown;
use super::folder;
use crate::cmd;
use crate::dist::Made;
use crate::report::{Outcome, Skip};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// The units, by the names with which they are started.
const UNITS: [&str; 2] = ["radeon-cluster.service", "radeon-cluster-worker@192.168.1.10.service"];
/// systemd's measure goes from 0 to 10; a unit without restrictions has 9.6.
const EXPOSURE_MAX: f64 = 4.0;

pub(super) fn check(made: &Made) -> Result<Outcome> {
    let found = cmd::capture(cmd::command("systemd-analyze").arg("--version"));
    if !found.is_ok_and(|finished| finished.ok) {
        let reason = "systemd-analyze is not installed; it comes with systemd";
        return Ok(Outcome::skip(Skip::new("systemd", reason)));
    }
    let root = folder("units")?;
    shown(cmd::command("dpkg-deb").arg("--extract").arg(made.file(".deb")?).arg(&root))?;
    let units = root.join("usr/lib/systemd/system");
    // The units' dependencies come with systemd itself.
    for target in
        fs::read_dir("/usr/lib/systemd/system").or_else(|_| fs::read_dir("/lib/systemd/system"))?
    {
        let path = target?.path();
        if path.extension().is_some_and(|extension| extension == "target") && path.is_file() {
            fs::copy(&path, units.join(path.file_name().unwrap_or_default()))?;
        }
    }
    for unit in UNITS {
        let said = verify(&root, unit)?;
        ensure!(said.is_empty(), "systemd-analyze verify {unit}: {said}");
        let exposure = exposure(&root, unit)?;
        ensure!(exposure <= EXPOSURE_MAX, "{unit} is exposed at {exposure}");
        let mut enable = cmd::command("systemctl");
        shown(enable.arg(format!("--root={}", root.display())).args(["enable", unit]))?;
        let wanted = root.join("etc/systemd/system/multi-user.target.wants").join(unit);
        ensure!(wanted.symlink_metadata().is_ok(), "{unit} is not enabled");
    }
    let planted = "[Service]\nExecStart=/usr/bin/radeon-cluster\nProtectSytem=strict\n";
    fs::write(units.join("planted.service"), planted)?;
    let said = verify(&root, "planted.service")?;
    ensure!(said.contains("ProtectSytem"), "a wrong key is not noticed: {said}");
    let open = exposure(&root, "planted.service")?;
    ensure!(open > EXPOSURE_MAX, "an open unit is taken for a closed one, at {open}");
    Ok(Outcome::pass())
}

fn verify(root: &Path, unit: &str) -> Result<String> {
    let mut verify = cmd::command("systemd-analyze");
    let root = format!("--root={}", root.display());
    Ok(cmd::capture(verify.args(["verify", "--man=no", &root, unit]))?.output.trim().to_owned())
}

fn exposure(root: &Path, unit: &str) -> Result<f64> {
    let mut analyze = cmd::command("systemd-analyze");
    let root = format!("--root={}", root.display());
    let text = shown(analyze.args(["security", "--offline=true", "--no-pager", &root, unit]))?;
    let line = text.lines().find(|line| line.contains("Overall exposure level"));
    let level = line.and_then(|line| line.split(": ").nth(1)?.split(' ').next()?.parse().ok());
    level.with_context(|| format!("systemd-analyze tells no level: {text}"))
}
