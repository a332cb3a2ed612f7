//! `devices`: what hardware was found, and why a device is not used.

use crate::device::known_way;
use crate::failure::{Failure, Result};
use crate::output::{Output, bytes, table};
use lgp_hal::{Telemetry, select_auto_by};
use lgp_sdk::device::{DeviceId, DeviceInfo, ProbeOptions, probe};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Flags of `devices`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  radeon-cluster devices --json")]
pub(crate) struct Args {
    /// Read what the kernel says of graphics cards from this folder instead of /sys
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
}

/// The command's result.
#[derive(Debug, Serialize)]
struct Report {
    /// The device that `--device auto` means, as far as its ways were measured.
    auto: DeviceId,
    devices: Vec<DeviceInfo>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let devices = probe(&options(args.sysfs_root.as_deref())?);
    out.emit(&Report { auto: select_auto_by(&devices, &known_way), devices }, text)
}

/// Where to look: this machine, or a folder in the shape of /sys.
pub(super) fn options(sysfs_root: Option<&Path>) -> Result<ProbeOptions> {
    let Some(root) = sysfs_root else { return Ok(ProbeOptions::default()) };
    std::fs::read_dir(root).map_err(|error| Failure::file("read the folder", root, &error))?;
    Ok(ProbeOptions::of_tree(root))
}

fn text(report: &Report) -> String {
    let rows = report.devices.iter().map(|info| {
        let memory = info.memory_bytes.map_or_else(|| "-".to_owned(), bytes);
        let used = if info.usable { "yes" } else { "no" };
        [info.id.clone(), info.name.clone(), memory, used.to_owned()]
    });
    let mut text = table(["id", "name", "memory", "models run here"], rows);
    for info in report.devices.iter().filter(|info| info.ways.len() > 1) {
        let ways = info.ways.iter().map(|way| match way.usable {
            true => way.id.to_string(),
            false => format!("{} (does not work)", way.id),
        });
        text.push_str(&format!(
            "\n{} is reached by {}.\n",
            info.name,
            ways.collect::<Vec<_>>().join(", ")
        ));
    }
    for info in &report.devices {
        let Some(reason) = &info.reason else { continue };
        text.push_str(&format!("\n{} is not used: {reason}\n", info.id));
        if let Some(hint) = &info.hint {
            text.push_str(&format!("  try: {hint}\n"));
        }
        if let Some(line) = info.telemetry.as_ref().and_then(sensors) {
            text.push_str(&format!("  now: {line}\n"));
        }
    }
    text.push_str(&format!("\nModels run on {}.\n", report.auto));
    text
}

/// A card's sensor values in one line.
fn sensors(telemetry: &Telemetry) -> Option<String> {
    let mut parts = Vec::new();
    if telemetry.asleep {
        parts.push("asleep".to_owned());
    }
    parts.extend(telemetry.temperature_celsius.map(|value| format!("{value:.0} °C")));
    parts.extend(telemetry.power_watts.map(|value| format!("{value:.0} W")));
    parts.extend(telemetry.load_percent.map(|value| format!("{value} % busy")));
    parts.extend(telemetry.core_clock_mhz.map(|value| format!("{value} MHz")));
    if let (Some(used), Some(total)) = (telemetry.vram_used_bytes, telemetry.vram_total_bytes) {
        parts.push(format!("{} of {} in use", bytes(used), bytes(total)));
    }
    parts.extend(telemetry.link.as_ref().map(|link| format!("PCIe x{}", link.width)));
    if !telemetry.asleep && !telemetry.unavailable.is_empty() {
        parts.push("some sensors temporarily unavailable".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_hal::{Caps, SelfTest, Way};

    fn device(id: &str, name: &str, reason: Option<&str>) -> DeviceInfo {
        DeviceInfo {
            id: id.to_owned(),
            device: id.parse().ok(),
            name: name.to_owned(),
            backend: "opencl".to_owned(),
            memory_bytes: Some(8 << 30),
            usable: reason.is_none(),
            reason: reason.map(str::to_owned),
            hint: None,
            self_test: SelfTest::Passed,
            caps: Caps::default(),
            telemetry: None,
            card: None,
            ways: Vec::new(),
        }
    }

    fn way(id: &str, usable: bool) -> Way {
        let (id, name, driver) = (id.parse().expect("an id"), String::new(), String::new());
        Way { id, name, driver, usable, reason: None, hint: None, self_test: SelfTest::Passed }
    }

    #[test]
    fn a_person_reads_why_and_what_to_type() {
        let mut card = device("pci:0000:01:00.0", "AMD Radeon RX 580", Some("rusticl is off"));
        card.hint = Some("export RUSTICL_ENABLE=radeonsi".to_owned());
        card.telemetry = Some(Telemetry {
            temperature_celsius: Some(71.0),
            power_watts: Some(142.25),
            load_percent: Some(97),
            vram_used_bytes: Some(1 << 30),
            vram_total_bytes: Some(8 << 30),
            unavailable: vec!["fan_rpm"],
            ..Telemetry::default()
        });
        let mut two = device("vulkan:0", "AMD Radeon RX 570", None);
        two.ways =
            [("vulkan:0", true), ("opencl:0", false)].map(|(id, usable)| way(id, usable)).into();
        let devices = vec![device("cpu", "A processor", None), two, card];
        let report = Report { auto: DeviceId::CPU, devices };
        insta::assert_snapshot!(text(&report), @r"
        id                name               memory   models run here
        cpu               A processor        8.0 GiB  yes
        vulkan:0          AMD Radeon RX 570  8.0 GiB  yes
        pci:0000:01:00.0  AMD Radeon RX 580  8.0 GiB  no

        AMD Radeon RX 570 is reached by vulkan:0, opencl:0 (does not work).

        pci:0000:01:00.0 is not used: rusticl is off
          try: export RUSTICL_ENABLE=radeonsi
          now: 71 °C, 142 W, 97 % busy, 1.0 GiB of 8.0 GiB in use, some sensors temporarily unavailable

        Models run on cpu.
        ");
    }

    #[test]
    fn json_has_the_promised_keys() {
        let devices = vec![device("cpu", "A processor", None)];
        let report = Report { auto: DeviceId::CPU, devices };
        let value = serde_json::to_value(&report).expect("the report is JSON");
        let first = &value["devices"][0];
        for (key, expected) in [
            ("id", serde_json::json!("cpu")),
            ("name", serde_json::json!("A processor")),
            ("backend", serde_json::json!("opencl")),
            ("memory_bytes", serde_json::json!(8u64 << 30)),
            ("usable", serde_json::json!(true)),
            ("reason", serde_json::Value::Null),
        ] {
            assert_eq!(first.get(key), Some(&expected), "{key}");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let failure = options(Some(Path::new("/nonexistent"))).expect_err("is not there");
        assert_eq!(failure.code, "file_not_found");
        assert!(options(None).is_ok());
    }
}
