//! The doctor's findings: the subject, its status, and the line that fixes it.

mod access;
mod bar;
mod drivers;
mod layers;
mod scene;

use crate::advice::Environment;
use crate::amd::sysfs::Card;
use crate::auto::select_auto;
use crate::backend::{BACKENDS, BackendKind, Fault, Missing, Probe};
use crate::caps::DeviceKind;
use crate::id::DeviceId;
use crate::info::{DeviceInfo, SelfTest};
use crate::probe::{ProbeOptions, Survey};
use crate::telemetry::Telemetry;
use scene::Scene;
use serde::Serialize;
use std::fmt;

/// The status of a subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing to fix.
    Info,
    /// It works less well than it could.
    Warn,
    /// It does not work.
    Fail,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject: `cpu`, `opencl`, `opencl:0`, `pci:0000:01:00.0`, `vulkan-layers`, `auto`.
    pub subject: String,
    /// The subject's status.
    pub status: Status,
    /// The finding, for people.
    pub message: String,
    /// The line to type or to set, if there is something to fix.
    pub fix: Option<String>,
}

impl Finding {
    /// A finding without a line to type.
    pub fn new(subject: impl Into<String>, status: Status, message: impl Into<String>) -> Self {
        Self { subject: subject.into(), status, message: message.into(), fix: None }
    }

    /// Adds the line to type or to set.
    #[must_use]
    pub fn fix(mut self, line: impl Into<String>) -> Self {
        self.fix = Some(line.into());
        self
    }
}

/// Checks everything that affects the use of devices.
#[must_use]
pub fn diagnose(options: &ProbeOptions) -> Vec<Finding> {
    examine(options).1
}

/// The devices and the findings of [`diagnose`], from one probe.
#[must_use]
pub fn examine(options: &ProbeOptions) -> (Vec<DeviceInfo>, Vec<Finding>) {
    let survey = Survey::new(BACKENDS, options);
    let findings = findings(&survey, options);
    (survey.devices, findings)
}

fn finding(subject: &str, status: Status, message: impl Into<String>) -> Finding {
    Finding::new(subject, status, message)
}

/// The checks besides the devices themselves: a file each.
const CHECKS: &[fn(&Scene<'_>) -> Vec<Finding>] =
    &[access::check, bar::check, drivers::check, layers::check];

/// The findings of a survey.
pub(crate) fn findings(survey: &Survey, options: &ProbeOptions) -> Vec<Finding> {
    let mut all = Vec::new();
    for (kind, feature, probe) in &survey.probes {
        if kind.line().driver.is_some() {
            all.push(backend(*kind, feature, probe.as_ref()));
        }
        for Fault { ordinal, reason, fix } in probe.iter().flat_map(|probe| &probe.faults) {
            let id = DeviceId::new(*kind, *ordinal).to_string();
            all.push(finding(&id, Status::Warn, reason.as_ref()).fix(*fix));
        }
    }
    for info in &survey.devices {
        all.push(device(info));
        if let (Some(card), Some(telemetry)) = (&info.card, &info.telemetry) {
            all.extend(sensors(&info.id, card, telemetry));
        }
        all.extend(ways(info, survey, options));
    }
    if !survey.devices.iter().any(|info| info.card.is_some()) {
        let folder = options.sysfs_root.join("class/drm");
        let message = format!("the kernel shows no AMD or NVIDIA card ({})", folder.display());
        all.push(finding("cards", Status::Info, message));
    }
    let scene = Scene::new(&survey.devices, options);
    let probes = survey.probes.iter().filter_map(|(.., probe)| probe.as_ref());
    let faults: Vec<&Fault> = probes.flat_map(|probe| &probe.faults).collect();
    // A package's fault that its driver has shown already would be told twice.
    let is_told =
        |it: &Finding| faults.iter().any(|fault| it.message.ends_with(fault.reason.as_ref()));
    let checked = CHECKS.iter().flat_map(|check| check(&scene));
    all.extend(checked.filter(|finding| !is_told(finding)));
    let auto = select_auto(&survey.devices);
    all.push(finding("auto", Status::Ok, format!("models run on {auto}")));
    // The processor comes first, because it always works.
    all.sort_by_key(|finding| finding.subject != "cpu");
    all
}

fn backend(kind: BackendKind, feature: &str, probe: Option<&Probe>) -> Finding {
    let subject = kind.name();
    let Some(probe) = probe else {
        let message = format!("the {kind} backend is not compiled in");
        let fix = Some(format!("cargo build --release --features {feature}"));
        return Finding { fix, ..finding(subject, Status::Info, message) };
    };
    match &probe.missing {
        None => {
            let names: Vec<&str> = probe.platforms.iter().map(|it| it.name.as_str()).collect();
            let platforms = match names.as_slice() {
                [] => String::new(),
                names => format!(" (platforms: {})", names.join(", ")),
            };
            let count = probe.found.len();
            let noun = if count == 1 { "device" } else { "devices" };
            finding(subject, Status::Ok, format!("{count} {noun} found{platforms}"))
        }
        // A machine without such cards lacks nothing; a card without a driver has its own finding.
        Some(Missing::Library(reason) | Missing::Driver(reason) | Missing::Devices(reason)) => {
            finding(subject, Status::Info, reason.clone())
        }
    }
}

fn device(info: &DeviceInfo) -> Finding {
    let is_processor = info.device.is_some_and(|id| id.backend == BackendKind::Cpu);
    let status = match info.self_test {
        SelfTest::Failed => Status::Fail,
        SelfTest::NotRun => Status::Warn,
        SelfTest::Passed if is_processor && lacks_avx2(info) => Status::Warn,
        SelfTest::Passed if info.usable => Status::Ok,
        SelfTest::Passed => Status::Info,
    };
    let mut message = describe(info);
    match &info.reason {
        Some(reason) => message.push_str(&format!(": {reason}")),
        None => message.push_str(": self-test passed, models run here"),
    }
    if status == Status::Warn && is_processor {
        message.push_str("; without AVX2 they run several times slower");
    }
    Finding { fix: info.hint.clone(), ..finding(&info.id, status, message) }
}

/// The other ways to use a card, and why it lacks one of them.
fn ways(info: &DeviceInfo, survey: &Survey, options: &ProbeOptions) -> Vec<Finding> {
    let others = info.ways.iter().filter(|way| Some(way.id) != info.device);
    let mut all: Vec<Finding> = others
        .map(|way| {
            let id = way.id;
            let (status, state) = match &way.reason {
                None => (Status::Ok, "self-test passed, models run here too"),
                Some(reason) => (Status::Info, reason.as_str()),
            };
            let message = format!("another way to use {}, {}: {state}", info.id, way.driver);
            Finding { fix: way.hint.clone(), ..finding(&id.to_string(), status, message) }
        })
        .collect();
    let Some(card) = info.card.as_ref().filter(|_| info.device.is_some()) else {
        return all;
    };
    let environment = Environment::read(&survey.probes);
    let lacks = |kind| !info.ways.iter().any(|way| way.id.backend == kind);
    for kind in BackendKind::ALL.into_iter().filter(|kind| lacks(*kind)) {
        let Some(advice) = environment.lacking(kind, card, options.dev_root.as_deref()) else {
            continue;
        };
        let message = format!("{kind} does not show it: {}", advice.reason);
        all.push(Finding { fix: advice.hint, ..finding(&info.id, Status::Info, message) });
    }
    all
}

fn lacks_avx2(info: &DeviceInfo) -> bool {
    cfg!(target_arch = "x86_64") && !info.caps.features.iter().any(|name| name == "avx2")
}

/// Name, units, memory and instructions in a few words.
fn describe(info: &DeviceInfo) -> String {
    let mut parts = vec![info.name.clone()];
    if info.caps.compute_units > 0 {
        let unit = match info.caps.kind {
            DeviceKind::Cpu => "threads",
            _ => "compute units",
        };
        parts.push(format!("{} {unit}", info.caps.compute_units));
    }
    parts.extend(info.memory_bytes.map(|bytes| format!("{:.1} GiB", gib(bytes))));
    if info.device.is_some() && !info.caps.driver.is_empty() {
        parts.push(info.caps.driver.clone());
    }
    parts.extend(info.card.as_ref().and_then(|card| card.chip).map(|chip| chip.to_string()));
    parts.join(", ")
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1u32 << 30)
}

/// The findings from the sensors of an AMD card.
fn sensors(subject: &str, card: &Card, telemetry: &Telemetry) -> Vec<Finding> {
    let mut all = Vec::new();
    let mut say = |status, message: String| all.push(finding(subject, status, message));
    if telemetry.asleep {
        say(
            Status::Info,
            "the card sleeps; its sensors are not read, for that would wake it".into(),
        );
    } else if !telemetry.unavailable.is_empty() {
        let names = telemetry.unavailable.join(", ");
        say(Status::Info, format!("temporarily unavailable: {names} (reset or suspend)"));
    }
    if let Some(link) = telemetry.link.as_ref().filter(|link| link.width <= 1 && link.width_max > 1)
    {
        let lanes = link.width_max;
        say(
            Status::Warn,
            format!(
                "the PCIe link has 1 of {lanes} lanes (a riser?); loading a model takes that much longer"
            ),
        );
    }
    if let Some(celsius) = telemetry.temperature_celsius.filter(|&celsius| celsius >= 90.0) {
        say(Status::Warn, format!("the chip is at {celsius:.0} °C and will slow down"));
    }
    if let (Some(used), Some(total)) = (telemetry.vram_used_bytes, telemetry.vram_total_bytes)
        && used > total / 10 * 9
    {
        let (used, total) = (gib(used), gib(total));
        say(Status::Warn, format!("other programs use {used:.1} of {total:.1} GiB of its memory"));
    }
    let is_card = card.chip.is_some_and(|chip| chip.is_polaris());
    if is_card && card.kfd.is_none() && card.driver.as_deref() == Some("amdgpu") {
        say(Status::Info, "AMD's compute driver (KFD) does not have the card, as on boards without PCIe atomics; OpenCL through Mesa rusticl does not need it".into());
    }
    all
}

#[cfg(test)]
mod tests;
