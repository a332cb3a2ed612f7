//! `--device`: which device runs models, and why the others do not.

use crate::failure::{Failure, Result};
use crate::size;
use etcetera::BaseStrategy;
use lgp_sdk::{
    Accelerator, BackendKind, DeviceError, DeviceId, DeviceInfo, DeviceKind, ModelExecutor,
    MultiExecutor, ProbeOptions,
};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// What a model may take of memory on a device, and beside it.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Limits {
    /// What it may take of the device's memory, such as 2GiB: weights that find no room come from
    /// the host in each run; of several devices, what it may take of each, and there all weights must
    /// find room [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) vram: Option<u64>,
    /// What weights may take of the host's RAM for a device: the others lie in a file that goes
    /// with the process
    /// [default: all]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) host_memory: Option<u64>,
}

/// The least that a device's memory is managed in.
const VRAM_MIN: u64 = 1 << 10;

/// A device that was found and is not used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct NotUsed {
    pub(crate) id: String,
    pub(crate) reason: String,
}

/// Resolves `auto`, `cpu`, `opencl:0` … to a device that opens, passes its self-test and runs
/// models; `None` is the processor.
///
/// # Errors
/// `device_unknown` for a text that names no device, `device_not_compiled`, `device_missing`,
/// `device_broken`, and `device_without_models`.
pub(crate) fn resolve(text: &str) -> Result<Option<Accelerator>> {
    resolve_within(text, &Limits::default())
}

/// As [`resolve`], within limits.
///
/// # Errors
/// As [`resolve`]; `usage` for limits of the processor, and for one too small for anything.
pub(crate) fn resolve_within(text: &str, limits: &Limits) -> Result<Option<Accelerator>> {
    if text.contains(',') {
        let message = format!("--device {text} names several, this command takes one");
        return Err(Failure::usage(message).hint("run, bench, profile and inspect take a list"));
    }
    if let Some(bytes) = limits.vram.filter(|bytes| *bytes < VRAM_MIN) {
        let message = format!("--vram is {bytes} bytes, expected {VRAM_MIN} at least");
        return Err(Failure::usage(message).hint("plan MODEL --device says what a model needs"));
    }
    let (id, opened) = if text == "auto" {
        (DeviceId::CPU, lgp_sdk::open_auto())
    } else {
        let id: DeviceId = text.parse().map_err(|error: DeviceError| {
            Failure { exit: 2, ..Failure::from_error("device_unknown", &error) }
                .hint("radeon-cluster devices lists the devices of this machine")
        })?;
        (id, lgp_sdk::open(id))
    };
    let device = opened.map_err(|error| cannot_open(id, &error))?;
    if device.id().backend == BackendKind::Cpu {
        return match limits {
            Limits { vram: None, host_memory: None } => Ok(None),
            _ => Err(Failure::usage("memory is limited for devices, and this is the processor")
                .hint("name a device, such as --device opencl:0")),
        };
    }
    let accelerator = match limits.vram {
        None => Accelerator::new(device),
        Some(bytes) => {
            let bytes = usize::try_from(bytes).map_err(Failure::internal)?;
            Accelerator::with_memory(device, bytes)
        }
    };
    let accelerator = accelerator.map_err(|error| {
        Failure::from_error("device_without_models", &error)
            .hint("use --device cpu, or auto to take the best device that runs models")
    })?;
    if let Some(bytes) = limits.host_memory {
        let bytes = usize::try_from(bytes).map_err(Failure::internal)?;
        let limited = accelerator.limit_host(bytes, &spill_folder());
        limited.map_err(|error| Failure::from_error("file", &error))?;
    }
    if let Err(failure) = keep_programs(&accelerator) {
        tracing::warn!(reason = failure.message, "programs are compiled each time");
    }
    Ok(Some(accelerator))
}

/// Where weights lie that are to take no RAM: not among temporary files, which many systems keep
/// in RAM, where there is another place.
fn spill_folder() -> PathBuf {
    let made = etcetera::choose_base_strategy().ok().and_then(|strategy| {
        let folder = strategy.cache_dir().join("radeon-cluster").join("weights");
        std::fs::create_dir_all(&folder).ok().map(|()| folder)
    });
    made.unwrap_or_else(std::env::temp_dir)
}

/// Compiled programs and tuned schedules stay in the platform's folder for what can be made again.
/// Without one, each process compiles for itself.
///
/// # Errors
/// `cache`: why they do not.
pub(crate) fn keep_programs(accelerator: &Accelerator) -> Result<()> {
    let kept = etcetera::choose_base_strategy().map_err(|error| error.to_string());
    let kept = kept.and_then(|strategy| {
        let folder = strategy.cache_dir().join("radeon-cluster").join("devices");
        accelerator.keep_in(&folder).map_err(|error| error.to_string())
    });
    kept.map_err(|reason| {
        Failure::new("cache", reason)
            .hint("give this user alone the folder, or another one with XDG_CACHE_HOME")
    })
}

/// Resolves a list, `opencl:0,opencl:1`, to devices that a model is cut over if one has not the
/// memory for it; none is the processor. The limits are each device's.
///
/// # Errors
/// As [`resolve`]; `usage` for a list with the processor in it.
pub(crate) fn resolve_all(text: &str, limits: &Limits) -> Result<Vec<Accelerator>> {
    let texts: Vec<&str> = text.split(',').collect();
    let again = texts.iter().enumerate().find(|(i, one)| texts[..*i].contains(one));
    if let Some((_, one)) = again {
        let message = format!("--device {text} names {one} twice");
        return Err(Failure::usage(message).hint("each device counts once, with all its memory"));
    }
    if texts.len() > 1 && limits.host_memory.is_some() {
        let message = "--host-memory is for one device: over several, weights stay where they are";
        return Err(Failure::usage(message).hint("leave it out, or name one device"));
    }
    let one = |text: &&str| resolve_within(text, limits);
    let all = texts.iter().map(one).collect::<Result<Vec<_>>>()?;
    let (count, others) = (all.len(), all.into_iter().flatten().collect::<Vec<_>>());
    if count > 1 && others.len() < count {
        let message = format!("--device {text} cuts a model over the processor and other devices");
        return Err(
            Failure::usage(message).hint("what has no kernels on a device runs there anyway")
        );
    }
    Ok(others)
}

/// Resolves a list, `opencl:0,opencl:1`, to devices that take tasks side by side; `None` is the
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

/// An executor for each device, as `one` makes it; there is at least one device.
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

/// What [`resolve_all`] resolves to these devices.
pub(crate) fn names(accelerators: &[Accelerator]) -> String {
    let ids: Vec<String> = accelerators.iter().map(|device| device.id().to_string()).collect();
    if ids.is_empty() { DeviceId::CPU.to_string() } else { ids.join(",") }
}

/// The device that is meant: the processor where there is no other.
pub(crate) fn id(accelerator: Option<&Accelerator>) -> DeviceId {
    accelerator.map_or(DeviceId::CPU, Accelerator::id)
}

fn cannot_open(id: DeviceId, error: &DeviceError) -> Failure {
    match error {
        DeviceError::BackendNotCompiled { feature, .. } => {
            Failure::from_error("device_not_compiled", error)
                .hint(format!("build with --features {feature}, or use --device auto"))
        }
        DeviceError::NoDevice { .. } => Failure::from_error("device_missing", error)
            .hint("radeon-cluster doctor says what is missing; --device auto always works"),
        _ => Failure::from_error("device_broken", error)
            .hint(format!("radeon-cluster doctor checks {id}; --device auto always works")),
    }
}

/// Every device of this machine other than `used`, with the reason.
pub(crate) fn not_used(used: DeviceId) -> Vec<NotUsed> {
    lgp_sdk::probe(&ProbeOptions::default())
        .iter()
        .filter(|device| device.device != Some(used))
        .map(|device| NotUsed { id: device.id.clone(), reason: reason(device, used) })
        .collect()
}

fn reason(device: &DeviceInfo, used: DeviceId) -> String {
    let mirrored = device.caps.kind == DeviceKind::Cpu && device.device != Some(DeviceId::CPU);
    why_not(device.reason.clone(), device.usable, mirrored, Some(used))
}

/// Why a device is not used that may be usable, or the processor once more (`mirrored`).
pub(crate) fn why_not(
    reason: Option<String>,
    usable: bool,
    mirrored: bool,
    used: Option<DeviceId>,
) -> String {
    match (reason, usable) {
        (Some(reason), _) => reason,
        (None, true) if mirrored => {
            "works; it is the processor seen through OpenCL, which auto takes itself".to_owned()
        }
        (None, true) => format!("works; auto takes {}", used.unwrap_or(DeviceId::CPU)),
        (None, false) => "not usable".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::BackendKind;

    #[test]
    fn each_reason_has_its_code() {
        let id = DeviceId { backend: BackendKind::Cuda, ordinal: 0 };
        let not_compiled =
            DeviceError::BackendNotCompiled { backend: BackendKind::Cuda, feature: "cuda" };
        let missing = DeviceError::NoDevice { device: id, reason: "no driver".to_owned() };
        let broken =
            DeviceError::SelfTest { device: id, op: "add", detail: "1 + 1 = 3".to_owned() };
        for (error, code, part) in [
            (not_compiled, "device_not_compiled", "cuda"),
            (missing, "device_missing", "no driver"),
            (broken, "device_broken", "1 + 1 = 3"),
        ] {
            let failure = cannot_open(id, &error);
            assert_eq!((failure.code.as_ref(), failure.exit), (code, 1));
            assert!(failure.message.contains(part), "{:?}", failure.message);
            assert!(failure.hint.is_some());
        }
    }

    #[test]
    fn cpu_is_the_processor() {
        for text in ["cpu", "cpu:0"] {
            assert!(resolve(text).expect("every machine has one").is_none());
        }
        assert_eq!((id(None), names(&[])), (DeviceId::CPU, "cpu".to_owned()));
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
