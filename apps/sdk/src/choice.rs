//! Which devices run a model, by the names that people give them.

use lgp_compute::device::Accelerator;
use lgp_hal::{BackendKind, DeviceId, Error as DeviceError};
use std::path::{Path, PathBuf};

/// The least that a device's memory is managed in.
const VRAM_BYTES_MIN: u64 = 1 << 10;

/// What a model may take of memory on each device, and where what belongs to devices is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// What it may take of the device's memory; all that is free without it.
    pub vram_bytes: Option<u64>,
    /// What weights may take of the host's memory for a device: the others lie in a file that goes with
    /// the process. All without it.
    pub host_bytes: Option<u64>,
    /// The folder for what can be made again: compiled programs, and weights that take no memory.
    pub cache: Option<PathBuf>,
}

/// Why no device was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The text names no device.
    #[error(transparent)]
    Unknown(DeviceError),
    /// The device, or its driver, is not there or calculates wrongly.
    #[error("{source}")]
    Open {
        /// The device that was asked for.
        device: DeviceId,
        /// What is wrong with it.
        source: DeviceError,
    },
    /// The device runs no models.
    #[error(transparent)]
    WithoutModels(lgp_compute::Error),
    /// Weights cannot be kept in a file.
    #[error(transparent)]
    HostMemory(lgp_compute::Error),
    /// Devices or limits that contradict each other.
    #[error("{message}")]
    Contradiction {
        /// What contradicts what.
        message: String,
        /// What would not.
        hint: &'static str,
    },
}

impl ChoiceError {
    fn contradiction(message: String, hint: &'static str) -> Self {
        Self::Contradiction { message, hint }
    }

    /// A stable identifier in snake case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "device_unknown",
            Self::Open { source: DeviceError::BackendNotCompiled { .. }, .. } => {
                "device_not_compiled"
            }
            Self::Open { source: DeviceError::NoDevice { .. }, .. } => "device_missing",
            Self::Open { .. } => "device_broken",
            Self::WithoutModels(_) => "device_without_models",
            Self::HostMemory(_) => "file",
            Self::Contradiction { .. } => "usage",
        }
    }

    /// What can be done about it. `flag` is what stands before a device where one is named, as in
    /// `--device `.
    #[must_use]
    pub fn hint(&self, flag: &str) -> String {
        match self {
            Self::Unknown(_) => {
                "radeon-cluster devices lists the devices of this machine".to_owned()
            }
            Self::Open { source: DeviceError::BackendNotCompiled { feature, .. }, .. } => {
                format!("build with --features {feature}, or use {flag}auto")
            }
            Self::Open { source: DeviceError::NoDevice { .. }, .. } => {
                format!("radeon-cluster doctor says what is missing; {flag}auto always works")
            }
            Self::Open { device, .. } => {
                format!("radeon-cluster doctor checks {device}; {flag}auto always works")
            }
            Self::WithoutModels(_) => {
                format!("use {flag}cpu, or auto to take the best device that runs models")
            }
            Self::HostMemory(_) => "choose a folder for caches that can be written".to_owned(),
            Self::Contradiction { hint, .. } => (*hint).to_owned(),
        }
    }
}

/// Opens `auto`, `cpu`, `opencl:0` and so on, each of which passes its self-test and runs models;
/// `None` is the processor.
///
/// # Errors
/// [`ChoiceError`], for limits of the processor too.
pub fn open_device(text: &str, limits: &DeviceLimits) -> Result<Option<Accelerator>, ChoiceError> {
    if let Some(bytes) = limits.vram_bytes.filter(|bytes| *bytes < VRAM_BYTES_MIN) {
        let message = format!("vram is {bytes} bytes, expected {VRAM_BYTES_MIN} at least");
        let hint = "radeon-cluster plan MODEL --device says what a model needs";
        return Err(ChoiceError::contradiction(message, hint));
    }
    let (id, opened) = if text == "auto" {
        (DeviceId::CPU, lgp_hal::open_auto())
    } else {
        let id: DeviceId = text.parse().map_err(ChoiceError::Unknown)?;
        (id, lgp_hal::open(id))
    };
    let device = opened.map_err(|source| ChoiceError::Open { device: id, source })?;
    if device.id().backend == BackendKind::Cpu {
        return match (limits.vram_bytes, limits.host_bytes) {
            (None, None) => Ok(None),
            _ => {
                let message = "a limit of memory is for graphics cards, and this is the processor";
                let hint = "leave the limit out, or name a card, such as opencl:0";
                Err(ChoiceError::contradiction(message.to_owned(), hint))
            }
        };
    }
    let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let accelerator = match limits.vram_bytes {
        None => Accelerator::new(device),
        Some(most) => Accelerator::with_memory(device, bytes(most)),
    };
    let accelerator = accelerator.map_err(ChoiceError::WithoutModels)?;
    let cache = limits.cache.as_deref();
    if let Some(most) = limits.host_bytes {
        let limited = accelerator.limit_host(bytes(most), &spill_folder(cache));
        limited.map_err(ChoiceError::HostMemory)?;
    }
    if let Err(reason) = keep_programs(&accelerator, cache) {
        tracing::warn!(reason, "programs are compiled each time");
    }
    Ok(Some(accelerator))
}

/// Opens a list, `opencl:0,opencl:1`, of devices that a model is cut over if one has not the memory for
/// it; none is the processor. The limits are each device's.
///
/// # Errors
/// As [`open_device`]; also for a list with the processor in it, or with one device twice.
pub fn open_devices(text: &str, limits: &DeviceLimits) -> Result<Vec<Accelerator>, ChoiceError> {
    let texts: Vec<&str> = text.split(',').collect();
    let again = texts.iter().enumerate().find(|(i, one)| texts[..*i].contains(one));
    if let Some((_, one)) = again {
        let message = format!("the devices {text} have {one} twice");
        let hint = "each device counts once, with all its memory";
        return Err(ChoiceError::contradiction(message, hint));
    }
    if texts.len() > 1 && limits.host_bytes.is_some() {
        let message = "a limit of the host's memory is for one device, and several are named";
        let hint = "leave that limit out, or name one device";
        return Err(ChoiceError::contradiction(message.to_owned(), hint));
    }
    let one = |text: &&str| open_device(text, limits);
    let all = texts.iter().map(one).collect::<Result<Vec<_>, _>>()?;
    let (count, others) = (all.len(), all.into_iter().flatten().collect::<Vec<_>>());
    if count > 1 && others.len() < count {
        let message = format!("the devices {text} have the processor beside graphics cards");
        let hint = "leave the processor out: it runs by itself what the cards cannot";
        return Err(ChoiceError::contradiction(message, hint));
    }
    Ok(others)
}

/// What [`open_devices`] opened, as it is named; the processor where that is nothing.
#[must_use]
pub fn device_names(accelerators: &[Accelerator]) -> String {
    let ids: Vec<String> = accelerators.iter().map(|device| device.id().to_string()).collect();
    if ids.is_empty() { DeviceId::CPU.to_string() } else { ids.join(",") }
}

/// Keeps compiled programs and tuned schedules in a folder for what can be made again. Without one,
/// each process compiles for itself.
///
/// # Errors
/// Why they are not kept.
pub fn keep_programs(accelerator: &Accelerator, cache: Option<&Path>) -> Result<(), String> {
    let cache = cache.ok_or("this account has no folder for caches")?;
    accelerator.keep_in(&cache.join("devices")).map_err(|error| error.to_string())
}

/// Where weights lie that are to take no memory: not among temporary files, which many systems keep in
/// memory, where there is another place.
fn spill_folder(cache: Option<&Path>) -> PathBuf {
    let made = cache.and_then(|cache| {
        let folder = cache.join("weights");
        std::fs::create_dir_all(&folder).ok().map(|()| folder)
    });
    made.unwrap_or_else(std::env::temp_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_code() {
        let device = DeviceId { backend: BackendKind::Cuda, ordinal: 0 };
        let not_compiled =
            DeviceError::BackendNotCompiled { backend: BackendKind::Cuda, feature: "cuda" };
        let missing = DeviceError::NoDevice { device, reason: "no driver".to_owned() };
        let broken = DeviceError::SelfTest { device, op: "add", detail: "1 + 1 = 3".to_owned() };
        for (source, code, part) in [
            (not_compiled, "device_not_compiled", "cuda"),
            (missing, "device_missing", "no driver"),
            (broken, "device_broken", "1 + 1 = 3"),
        ] {
            let error = ChoiceError::Open { device, source };
            assert_eq!(error.code(), code);
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.hint("--device ").contains("--device auto"), "{code}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let limits = DeviceLimits::default();
        let small = DeviceLimits { vram_bytes: Some(1023), ..limits.clone() };
        let vram = DeviceLimits { vram_bytes: Some(1 << 20), ..limits.clone() };
        let host = DeviceLimits { host_bytes: Some(1), ..limits.clone() };
        for (text, limits, part) in [
            ("cpu,cpu", &limits, "have cpu twice"),
            ("cpu", &small, "vram is 1023 bytes, expected 1024"),
            ("cpu", &vram, "this is the processor"),
            ("cpu,opencl:0", &host, "several are named"),
        ] {
            let error = open_devices(text, limits).expect_err(part);
            assert_eq!(error.code(), "usage", "{text}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = open_devices("gpu", &limits).expect_err("no such backend");
        assert_eq!(error.code(), "device_unknown");
    }

    #[test]
    fn the_processor_is_no_accelerator() {
        for text in ["cpu", "cpu:0"] {
            let opened =
                open_devices(text, &DeviceLimits::default()).expect("each machine has one");
            assert_eq!((opened.len(), device_names(&opened)), (0, "cpu".to_owned()));
        }
    }
}
