//! Opens the devices that run a model, by the names that users give.

use lgp_compute::device::Accelerator;
use lgp_hal::{BackendKind, DeviceId, Error as DeviceError, PciAddress};
use std::path::{Path, PathBuf};

/// The smallest limit of device memory, in bytes.
const VRAM_BYTES_MIN: u64 = 1 << 10;

/// Memory limits of a model on each device, and the folder of device caches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The most device memory; all free memory when unset.
    pub vram_bytes: Option<u64>,
    /// The most host memory for the weights of a device; further weights lie in a file that is deleted with the
    /// process. No limit when unset.
    pub host_bytes: Option<u64>,
    /// The cache folder: compiled programs, and the weights that lie in a file.
    pub cache: Option<PathBuf>,
}

impl DeviceLimits {
    /// Keeps a device's compiled programs and tuned schedules in [`DeviceLimits::cache`], as
    /// [`open_device`] does. Without such a folder, each process compiles for itself.
    ///
    /// # Errors
    /// Why they cannot be kept.
    pub fn keep_programs(&self, accelerator: &Accelerator) -> Result<(), String> {
        let cache = self.cache.as_deref().ok_or("this account has no folder for caches")?;
        accelerator.keep_in(&cache.join("devices")).map_err(|error| error.to_string())
    }
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// The text names no device.
    #[error(transparent)]
    Unknown(DeviceError),
    /// The device or its driver is missing, or the device computes wrong results.
    #[error("{source}")]
    Open {
        /// The device that was asked for.
        device: DeviceId,
        /// The device's error.
        source: DeviceError,
    },
    /// The device runs no models.
    #[error(transparent)]
    WithoutModels(lgp_compute::Error),
    /// Weights cannot be stored in a file.
    #[error(transparent)]
    HostMemory(lgp_compute::Error),
    /// Devices or limits contradict each other.
    #[error("{message}")]
    Contradiction {
        /// The contradiction.
        message: String,
        /// How to resolve it.
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
            Self::Open { source: DeviceError::NeedsRestart { .. }, .. } => "device_lost",
            Self::Open { .. } => "device_broken",
            Self::WithoutModels(_) => "device_without_models",
            Self::HostMemory(_) => "file",
            Self::Contradiction { .. } => "usage",
        }
    }

    /// What the user can do about the error. `flag` is the text before a device's name, such as `--device `.
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
            Self::Open { source: DeviceError::NeedsRestart { .. }, .. } => {
                format!("start this program again, or use {flag}auto")
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

/// Opens `auto`, `cpu`, `vulkan:0`, `opencl:0` and so on. The device has passed its self-test and runs models; `None` is the
/// CPU.
///
/// # Errors
/// [`ChoiceError`], also for memory limits together with the CPU.
pub fn open_device(text: &str, limits: &DeviceLimits) -> Result<Option<Accelerator>, ChoiceError> {
    if let Some(bytes) = limits.vram_bytes.filter(|bytes| *bytes < VRAM_BYTES_MIN) {
        let message = format!("vram is {bytes} bytes, expected {VRAM_BYTES_MIN} at least");
        let hint = "radeon-cluster plan MODEL --device says what a model needs";
        return Err(ChoiceError::contradiction(message, hint));
    }
    let (id, opened) = if text == "auto" {
        (DeviceId::CPU, lgp_hal::open_auto_by(&|ways| limits.fastest_way(ways)))
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
                let hint = "leave the limit out, or name a card, such as vulkan:0";
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
    if let Some(most) = limits.host_bytes {
        let folder = spill_folder(limits.cache.as_deref());
        let limited = accelerator.limit_host(bytes(most), &folder);
        limited.map_err(ChoiceError::HostMemory)?;
    }
    if let Err(reason) = limits.keep_programs(&accelerator) {
        tracing::warn!(reason, "programs are compiled each time");
    }
    Ok(Some(accelerator))
}

/// Opens a list such as `vulkan:0,vulkan:1`; a model is split over the devices if one lacks the memory for it. An
/// empty result is the CPU. The limits apply to each device.
///
/// # Errors
/// As [`open_device`]; also for a list with the CPU in it, with one device twice, or with a limit of host memory.
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
    let again = others.iter().enumerate().find_map(|(i, one)| {
        let is_same = |other: &&Accelerator| is_one_card(place(one), place(other));
        Some((one.id(), others[..i].iter().find(is_same)?.id()))
    });
    if let Some((one, other)) = again {
        let message = format!("the devices {text} have one card twice, as {other} and as {one}");
        let hint = "each card counts once, with all its memory";
        return Err(ChoiceError::contradiction(message, hint));
    }
    Ok(others)
}

/// A way to use a card, and the card's place in the machine, if the driver tells it.
type Place = (DeviceId, Option<PciAddress>);

fn place(device: &Accelerator) -> Place {
    (device.id(), device.device().caps().pci)
}

/// Whether two devices are ways to use one card.
fn is_one_card(one: Place, other: Place) -> bool {
    one.0 == other.0 || one.1.is_some() && one.1 == other.1
}

/// The names of the devices that [`open_devices`] opened; the CPU for an empty slice.
#[must_use]
pub fn device_names(accelerators: &[Accelerator]) -> String {
    let ids: Vec<String> = accelerators.iter().map(|device| device.id().to_string()).collect();
    if ids.is_empty() { DeviceId::CPU.to_string() } else { ids.join(",") }
}

/// The folder for weights that are kept on disk. Prefers the cache folder, because many systems keep temporary
/// files in memory.
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
        let code = "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned();
        let poisoned = DeviceError::NeedsRestart { device, code };
        for (source, code, part) in [
            (not_compiled, "device_not_compiled", "cuda"),
            (missing, "device_missing", "no driver"),
            (broken, "device_broken", "1 + 1 = 3"),
            (poisoned, "device_lost", "CUDA_ERROR_ILLEGAL_ADDRESS"),
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
    fn ways_to_use_one_card_are_told_from_other_cards() {
        let [vulkan, opencl] = ["vulkan:0", "opencl:0"].map(|id| id.parse().expect(id));
        let [one, two] =
            [1, 2].map(|bus| Some(PciAddress { domain: 0, bus, device: 0, function: 0 }));
        for (a, b, same) in [
            ((vulkan, one), (opencl, one), true),
            ((vulkan, one), (opencl, two), false),
            ((vulkan, one), (opencl, None), false),
            ((vulkan, None), (opencl, None), false),
            // `auto` and the name of the device that it took.
            ((vulkan, None), (vulkan, None), true),
        ] {
            assert_eq!(is_one_card(a, b), same, "{a:?} {b:?}");
        }
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
