//! `--device`: which device runs models, and why the others do not.

use crate::failure::{Failure, Result};
use etcetera::BaseStrategy;
use lgp_hal::{DeviceKind, Way};
use lgp_sdk::cluster::{ModelExecutor, MultiExecutor};
use lgp_sdk::device::{Accelerator, DeviceId, DeviceInfo, DeviceLimits, ProbeOptions};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// What a model may take of memory on a device, and beside it.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Limits {
    /// What it may take of the device's memory, such as 2GiB: weights that find no room come from
    /// the host in each run; of several devices, what it may take of each, and there all weights must
    /// find room [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = lgp_common::parse_size)]
    pub(crate) vram: Option<u64>,
    /// What weights may take of the host's RAM for a device: the others lie in a file that goes
    /// with the process
    /// [default: all]
    #[arg(long, value_name = "SIZE", value_parser = lgp_common::parse_size)]
    pub(crate) host_memory: Option<u64>,
}

impl Limits {
    fn of_sdk(&self) -> DeviceLimits {
        let Self { vram: vram_bytes, host_memory: host_bytes } = *self;
        DeviceLimits { vram_bytes, host_bytes, cache: cache_folder() }
    }
}

/// The platform's cache folder.
fn cache_folder() -> Option<PathBuf> {
    let strategy = etcetera::choose_base_strategy().ok()?;
    Some(strategy.cache_dir().join("radeon-cluster"))
}

/// A device that was found and is not used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NotUsed {
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// Resolves `auto`, `cpu`, `vulkan:0` … to a device that opens, passes its self-test and runs
/// models; `None` is the processor.
///
/// # Errors
/// `device_unknown` for a text that names no device, `device_not_compiled`, `device_missing`,
/// `device_broken`, `device_lost` and `device_without_models`.
pub(crate) fn resolve(text: &str) -> Result<Option<Accelerator>> {
    resolve_within(text, &Limits::default())
}

/// As [`resolve`], within limits.
///
/// # Errors
/// As [`resolve`]; `usage` for limits on the processor, and for a limit that is too small.
pub(crate) fn resolve_within(text: &str, limits: &Limits) -> Result<Option<Accelerator>> {
    if text.contains(',') {
        let message = format!("--device {text} names several, this command takes one");
        return Err(Failure::usage(message).hint("run, bench, profile and inspect take a list"));
    }
    Ok(lgp_sdk::device::open_device(text, &limits.of_sdk())?)
}

/// Keeps compiled programs and tuned schedules in the platform's cache folder. Without one, each process compiles for
/// itself.
///
/// # Errors
/// `cache`: why they are not kept.
pub(crate) fn keep_programs(accelerator: &Accelerator) -> Result<()> {
    Limits::default().of_sdk().keep_programs(accelerator).map_err(|reason| {
        Failure::new("cache", reason).hint(
            "have the folder belong to this user alone, or choose another one with XDG_CACHE_HOME",
        )
    })
}

/// Resolves a list, `vulkan:0,vulkan:1`, to devices over which a model is split where one has too little memory; an
/// empty list is the processor. The limits apply to each device.
///
/// # Errors
/// As [`resolve`]; `usage` for a list with the processor in it.
pub(crate) fn resolve_all(text: &str, limits: &Limits) -> Result<Vec<Accelerator>> {
    Ok(lgp_sdk::device::open_devices(text, &limits.of_sdk())?)
}

/// Resolves a list, `vulkan:0,vulkan:1`, to devices that take tasks side by side; `None` is the
/// processor.
///
/// # Errors
/// As [`resolve`]; `usage` for a list that names a device twice.
pub(crate) fn resolve_each(text: &str) -> Result<Vec<Option<Accelerator>>> {
    let all = text.split(',').map(resolve).collect::<Result<Vec<_>>>()?;
    let ids: Vec<DeviceId> = all.iter().map(|device| id(device.as_ref())).collect();
    match ids.iter().enumerate().find(|(i, one)| ids[..*i].contains(one)) {
        Some((_, one)) => Err(Failure::usage(format!("--device {text} means {one} twice"))
            .hint("each device counts once, with all its memory")),
        None => Ok(all),
    }
}

/// An executor for each device, made by `one`. There must be at least one device.
///
/// # Errors
/// As `one`.
pub(crate) fn executors(
    devices: Vec<Option<Accelerator>>,
    one: impl Fn(Option<Accelerator>) -> Result<ModelExecutor>,
) -> Result<Arc<MultiExecutor>> {
    let mut devices = devices.into_iter();
    let first = one(devices.next().flatten())?;
    let others = devices.map(one).collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(MultiExecutor::new(first, others)))
}

/// The id of an accelerator; without one, the processor's.
pub(crate) fn id(accelerator: Option<&Accelerator>) -> DeviceId {
    accelerator.map_or(DeviceId::CPU, Accelerator::id)
}

/// The fastest of the ways to use a card, by measurements that the platform's cache folder keeps; `None` for the first.
pub(crate) fn fastest_way(ways: &[Way]) -> Option<DeviceId> {
    Limits::default().of_sdk().fastest_way(ways)
}

/// As [`fastest_way`], without measuring.
pub(crate) fn known_way(ways: &[Way]) -> Option<DeviceId> {
    Limits::default().of_sdk().known_way(ways)
}

/// What [`fastest_way`] compares: milliseconds, or why a way does not run.
pub(crate) fn way_times(ways: &[Way]) -> Vec<(DeviceId, std::result::Result<f64, String>)> {
    Limits::default().of_sdk().way_times(ways)
}

/// Every other device of this machine, with the reason why it is not used.
pub(crate) fn not_used(used: DeviceId) -> Vec<NotUsed> {
    lgp_sdk::device::probe(&ProbeOptions::default())
        .iter()
        .filter(|device| !device.is(used))
        .map(|device| NotUsed { id: device.id.clone(), reason: reason(device, used) })
        .collect()
}

fn reason(device: &DeviceInfo, used: DeviceId) -> String {
    let mirrored = device.caps.kind == DeviceKind::Cpu && device.device != Some(DeviceId::CPU);
    why_not(device.reason.clone(), device.usable, mirrored, Some(used))
}

/// Why a device is not used, though it may be usable or be the processor once more (`mirrored`).
pub(crate) fn why_not(
    reason: Option<String>,
    usable: bool,
    mirrored: bool,
    used: Option<DeviceId>,
) -> String {
    match (reason, usable) {
        (Some(reason), _) => reason,
        (None, true) if mirrored => {
            "works; it is the processor through a driver, and auto uses the processor directly"
                .to_owned()
        }
        (None, true) => format!("works; auto takes {}", used.unwrap_or(DeviceId::CPU)),
        (None, false) => "not usable".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_the_processor() {
        for text in ["cpu", "cpu:0"] {
            assert!(resolve(text).expect("every machine has one").is_none());
        }
        assert_eq!(id(None), DeviceId::CPU);
        assert!(resolve_all("cpu", &Limits::default()).expect("every machine has one").is_empty());
        let failure =
            resolve_all("cpu,cpu", &Limits::default()).expect_err("there is nothing to cut for");
        assert_eq!((failure.code.as_ref(), failure.exit), ("usage", 2));
        let failure = resolve_each("cpu,auto,cpu:0").expect_err("the same again");
        assert_eq!((failure.code.as_ref(), failure.exit), ("usage", 2));
        assert_eq!(resolve_each("cpu").expect("every machine has one").len(), 1);
        let failure = resolve("gpu").expect_err("no such backend");
        assert_eq!((failure.code.as_ref(), failure.exit), ("device_unknown", 2));
    }
}
