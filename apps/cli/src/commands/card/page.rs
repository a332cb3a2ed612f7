//! A card as a page to read.

use super::Card;
use super::examine::{Check, Examined, Measured};
use crate::measure;
use crate::output::{self, bytes};
use lgp_hal::Telemetry;

/// The whole page, Markdown.
pub(super) fn markdown(card: &Card) -> String {
    let Card { program, at, quick, system, devices, .. } = card;
    let mut text = format!(
        "# What was measured on this machine\n\n\
         radeon-cluster {} ({} build), {at}, {}, kernel {}, {}, {}.\n",
        program.version,
        program.build,
        system.os,
        system.kernel,
        system.architecture,
        output::counted(system.threads, "thread"),
    );
    if *quick || program.build != "release" {
        text += "\nA look whether all works: figures of small networks, or of a debug build, are no \
                 figures of the device.\n";
    }
    devices.iter().for_each(|device| text += &section(device));
    text
}

/// One line for each device.
pub(super) fn summary(card: &Card) -> String {
    let line = |device: &Examined| {
        let Examined { id, name, checks, measured, reason, .. } = device;
        let right = checks.iter().filter(|check| check.passed).count();
        match reason {
            Some(reason) => format!("{id}: {name}: not used: {reason}\n"),
            None => format!(
                "{id}: {name}: {right} of {} checks passed, {} measured\n",
                checks.len(),
                output::counted(measured.len(), "figure")
            ),
        }
    };
    card.devices.iter().map(line).collect()
}

fn section(device: &Examined) -> String {
    let Examined { id, name, driver, chip, pci, memory_bytes, reason, checks, measured, .. } =
        device;
    let facts = [
        (!driver.is_empty()).then(|| format!("driver {driver}")),
        chip.clone(),
        pci.as_ref().map(|pci| format!("PCI {pci}")),
        memory_bytes.map(bytes),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let mut text = format!("\n## {id}: {}\n\n{}\n", cell(name), cell(&facts.join(", ")));
    if let Some(reason) = reason {
        return text + &format!("\nNot used: {}\n", cell(reason));
    }
    for (when, telemetry) in ["before", "after"].iter().zip(&device.sensors) {
        if let Some(line) = telemetry.as_ref().and_then(sensors) {
            text += &format!("\nSensors {when}: {line}.\n");
        }
    }
    text += "\n| compared with the processor | off by | limit | |\n|---|---|---|---|\n";
    for Check { name, passed, error, tolerance, note } in checks {
        let error = error.map_or_else(|| "no number".to_owned(), |error| format!("{error:.1e}"));
        let verdict = if *passed { "right" } else { "**wrong**" };
        let note = if note.is_empty() { String::new() } else { format!(", {}", cell(note)) };
        text += &format!("| {} | {error} | {tolerance:.0e} | {verdict}{note} |\n", cell(name));
    }
    text += "\n| measured | runs | least ms | median ms | rate |\n|---|---|---|---|---|\n";
    for Measured { name, runs, gflops, gb_per_s } in measured {
        let rate = match (gflops, gb_per_s) {
            (Some(rate), _) => format!("{} GFLOP/s", measure::shown(*rate)),
            (_, Some(rate)) => format!("{} GB/s", measure::shown(*rate)),
            _ => String::new(),
        };
        let [least, median] = [runs.min_ms, runs.median_ms].map(measure::shown);
        text += &format!("| {} | {} | {least} | {median} | {rate} |\n", cell(name), runs.runs);
    }
    for failure in &device.failures {
        text += &format!("\nNot measured: {}\n", cell(failure));
    }
    text
}

/// The sensor values that affect speed.
fn sensors(telemetry: &Telemetry) -> Option<String> {
    let parts = [
        telemetry.temperature_celsius.map(|it| format!("{it:.0} °C")),
        telemetry.power_watts.map(|it| format!("{it:.0} W")),
        telemetry.load_percent.map(|it| format!("{it} % busy")),
        telemetry.core_clock_mhz.map(|it| format!("core {it} MHz")),
        telemetry.memory_clock_mhz.map(|it| format!("memory {it} MHz")),
        telemetry.vram_used_bytes.map(|it| format!("{} in use", bytes(it))),
        telemetry.link.as_ref().map(|it| format!("PCIe {} GT/s x{}", it.speed_gts, it.width)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Text that neither ends a table's cell nor steers a terminal.
fn cell(text: &str) -> String {
    output::plain(text).replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::card::Program;
    use crate::measure::Runs;
    use crate::redact::Redactor;
    use crate::system::System;
    use lgp_hal::SelfTest;

    #[test]
    fn a_page_has_what_was_seen_and_what_was_not() {
        let used = Examined {
            id: "opencl:0".to_owned(),
            name: "AMD Radeon RX 580".to_owned(),
            backend: "opencl".to_owned(),
            driver: "25.0.7".to_owned(),
            chip: Some("Polaris 10".to_owned()),
            pci: Some("1002:67df rev e7".to_owned()),
            memory_bytes: Some(8 << 30),
            self_test: SelfTest::Passed,
            reason: None,
            sensors: [
                Some(Telemetry { temperature_celsius: Some(40.0), ..Telemetry::default() }),
                Some(Telemetry { core_clock_mhz: Some(1340), ..Telemetry::default() }),
            ],
            checks: vec![
                Check {
                    name: "gemm-96".into(),
                    passed: true,
                    error: Some(2e-7),
                    tolerance: 1e-4,
                    note: String::new(),
                },
                Check {
                    name: "gemv".into(),
                    passed: false,
                    error: None,
                    tolerance: 1e-4,
                    note: "a | b".into(),
                },
            ],
            measured: vec![Measured {
                name: "gemm-512".into(),
                runs: Runs { runs: 50, min_ms: 1.0, median_ms: 1.25 },
                gflops: Some(858.993),
                gb_per_s: None,
            }],
            failures: vec!["big: no room".into()],
        };
        let unused = Examined {
            id: "pci:0000:02:00.0".to_owned(),
            reason: Some("rusticl is off, says /opt/acme/lib.so: really".to_owned()),
            ..used.clone()
        }
        .without_places(&Redactor::without_places());
        let card = Card {
            schema: 1,
            program: Program { version: "0.1.0", build: "debug" },
            at: "Fri, 27 Nov 2026 16:00:00 GMT".to_owned(),
            quick: true,
            system: System {
                os: "Debian GNU/Linux 12".to_owned(),
                kernel: "6.1".to_owned(),
                architecture: "x86_64",
                threads: 2,
            },
            devices: vec![used, unused],
        };
        insta::assert_snapshot!(markdown(&card));
        assert_eq!(
            summary(&card),
            "opencl:0: AMD Radeon RX 580: 1 of 2 checks passed, 1 figure measured\n\
             pci:0000:02:00.0: AMD Radeon RX 580: not used: rusticl is off, says [path]: really\n"
        );
        assert_eq!(card.devices[0].status(), lgp_hal::Status::Fail);
    }
}
