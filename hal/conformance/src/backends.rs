//! The laws on every device of every backend.

use crate::laws::{LAWS, Verdict};
use lgp_hal::{BackendKind, Device, DeviceId, DeviceInfo, Error, ProbeOptions, open, probe};

/// The results of all laws on all devices.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One line per law and device.
    pub lines: Vec<String>,
    /// Laws kept.
    pub passed: usize,
    /// Laws broken, and required backends that are absent.
    pub failed: usize,
    /// Laws and backends that could not be tried.
    pub skipped: usize,
}

impl Report {
    fn add(&mut self, subject: &str, law: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Kept => self.passed += 1,
            Verdict::Broken(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
        }
        self.lines.push(format!("{subject}: {law} … {verdict}"));
    }

    /// `N passed, N failed, N skipped`.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { passed, failed, skipped, .. } = self;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// Tries every law on every device. A backend of `required` that has no device is a failure.
#[must_use]
pub fn run(required: &[BackendKind]) -> Report {
    let mut report = Report::default();
    // The empty tree has no cards, so that only the backends' devices are found.
    let options = ProbeOptions::of_tree("");
    // Sensor readings differ between two probes, so they are left out.
    let look = || -> Vec<DeviceInfo> {
        let devices = probe(&options).into_iter();
        devices.map(|info| DeviceInfo { telemetry: None, ..info }).collect()
    };
    let (first, second) = (look(), look());
    let verdict = match first == second {
        true => Verdict::Kept,
        false => Verdict::Broken(format!("{first:?} and then {second:?}")),
    };
    report.add("all", "probing twice gives the same answer", &verdict);
    for kind in BackendKind::ALL {
        let ways = first.iter().flat_map(|info| info.ways.iter().map(|way| way.id));
        let mut ids: Vec<DeviceId> = ways.filter(|id| id.backend == kind).collect();
        ids.sort();
        if ids.is_empty() {
            // The recording device is not listed, and opening an absent device gives its reason.
            ids.push(DeviceId::new(kind, 0));
        }
        report.add(kind.name(), "an absent device has a type and a reason", &absence(kind));
        for id in ids {
            one(&mut report, id, required.contains(&kind));
        }
    }
    report
}

/// Opens a device that no machine has.
fn absence(kind: BackendKind) -> Verdict {
    match open(DeviceId::new(kind, u32::MAX)) {
        Err(Error::NoDevice { reason, .. }) if !reason.is_empty() => Verdict::Kept,
        Err(error @ Error::BackendNotCompiled { .. }) => Verdict::Skipped(error.to_string()),
        Err(error) => Verdict::Broken(format!("refused with another error: {error}")),
        Ok(_) => Verdict::Broken(format!("{kind}:{} was opened", u32::MAX)),
    }
}

fn one(report: &mut Report, id: DeviceId, required: bool) {
    let verdict = match open(id) {
        Ok(device) => return run_device(report, &*device),
        Err(error @ (Error::NoDevice { .. } | Error::BackendNotCompiled { .. })) => {
            match required {
                true => Verdict::Broken(format!("required, but: {error}")),
                false => Verdict::Skipped(error.to_string()),
            }
        }
        Err(error) => Verdict::Broken(error.to_string()),
    };
    report.add(&id.to_string(), "all laws", &verdict);
}

/// Tries every law on one opened device.
pub fn run_device(report: &mut Report, device: &dyn Device) {
    for law in LAWS {
        report.add(&device.id().to_string(), law.name, &(law.check)(device));
    }
}
