//! Graphics cards as the kernel lists them under `class/drm`, and the sensors of amdgpu.

use super::ids::{AmdChip, identify};
use super::kfd::{self, KfdNode};
use super::{VENDOR_AMD, VENDOR_NVIDIA};
use crate::id::PciAddress;
use crate::telemetry::{PcieLink, Telemetry};
use serde::Serialize;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

/// Reads one file of sysfs. A parameter, because a test cannot make a file answer EPERM to root.
pub(crate) type Reader = fn(&Path) -> io::Result<String>;

/// A tree in the shape of `/sys`.
pub(crate) struct Sysfs<'a> {
    root: &'a Path,
    read: Reader,
}

/// A graphics card that the kernel sees.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Card {
    /// The kernel's name: `card0`; `None` without a graphics driver.
    pub node: Option<String>,
    /// PCI vendor: 0x1002 is AMD, 0x10de NVIDIA.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// PCI revision, which distinguishes products of one device id.
    pub revision: u8,
    /// Where it sits on the PCI bus.
    pub pci: Option<PciAddress>,
    /// The kernel driver that holds the card: `amdgpu`, `radeon`, `nvidia`, `vfio-pci`.
    pub driver: Option<String>,
    /// Its render node: `renderD128`.
    pub render_node: Option<String>,
    /// The product's name.
    pub name: String,
    /// The chip, of an AMD card.
    pub chip: Option<AmdChip>,
    /// The card's node in AMD's compute driver.
    pub kfd: Option<KfdNode>,
    /// The folder of the card's files, below the root of sysfs.
    #[serde(skip)]
    pub(crate) folder: String,
}

impl Card {
    /// Whether AMD made it.
    #[must_use]
    pub fn is_amd(&self) -> bool {
        self.vendor == VENDOR_AMD
    }

    /// Whether NVIDIA made it.
    #[must_use]
    pub fn is_nvidia(&self) -> bool {
        self.vendor == VENDOR_NVIDIA
    }
}

impl<'a> Sysfs<'a> {
    /// The tree at `root`, read by `read`.
    pub(crate) fn new(root: &'a Path, read: Reader) -> Self {
        Self { root, read }
    }

    /// The names in a folder; none where there is no such folder.
    pub(crate) fn list(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(folder)).into_iter().flatten();
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// A file's text without the newline at its end; `None` where it cannot be read.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        (self.read)(&self.root.join(path)).ok().map(|text| text.trim_end().to_owned())
    }

    /// The graphics cards: those with a graphics driver by number, then the AMD and NVIDIA ones
    /// without a driver by address. Connectors (`card0-DP-1`) are not cards.
    pub(crate) fn cards(&self) -> Vec<Card> {
        let number = |name: &String| -> Option<u32> { name.strip_prefix("card")?.parse().ok() };
        let mut names: Vec<String> = self.list("class/drm");
        names.retain(|name| number(name).is_some());
        names.sort_by_key(number);
        let kfd = nodes(self);
        let driven = names
            .into_iter()
            .filter_map(|name| self.card(format!("class/drm/{name}/device"), Some(name), &kfd));
        let mut cards: Vec<Card> = driven.collect();
        let mut addresses = self.list("bus/pci/devices");
        addresses.sort();
        for address in addresses {
            let folder = format!("bus/pci/devices/{address}");
            // Base class 3 is a display controller.
            let class = self.text(&format!("{folder}/class")).unwrap_or_default();
            let known = |pci| cards.iter().any(|card| card.pci == Some(pci));
            if !class.starts_with("0x03") || address.parse().is_ok_and(known) {
                continue;
            }
            cards.extend(self.card(folder, None, &kfd).filter(|it| it.is_amd() || it.is_nvidia()));
        }
        cards
    }

    fn card(&self, folder: String, node: Option<String>, kfd: &[KfdNode]) -> Option<Card> {
        let hex = |file: &str| {
            let text = self.text(&format!("{folder}/{file}"))?;
            u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
        };
        let (vendor, device) = (hex("vendor")?, hex("device")?);
        let revision = hex("revision").and_then(|it| u8::try_from(it).ok()).unwrap_or(0);
        let uevent = self.text(&format!("{folder}/uevent")).unwrap_or_default();
        let field =
            |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let render_node = self
            .list(&format!("{folder}/drm"))
            .into_iter()
            .find(|name| name.starts_with("renderD"));
        let minor =
            render_node.as_deref().and_then(|name| name.strip_prefix("renderD")?.parse().ok());
        let kfd = kfd.iter().find(|node| Some(node.render_minor) == minor).cloned();
        let (chip, name) = match vendor {
            VENDOR_AMD => {
                let (chip, name) = identify(device, revision);
                // The compute driver recognises APUs that the table lacks.
                let is_apu = chip == AmdChip::Other && kfd.as_ref().is_some_and(|it| it.has_cpu);
                (Some(if is_apu { AmdChip::Apu } else { chip }), name)
            }
            VENDOR_NVIDIA => (None, format!("NVIDIA GPU 10de:{device:04x}")),
            _ => (None, format!("graphics card {vendor:04x}:{device:04x}")),
        };
        Some(Card {
            pci: field("PCI_SLOT_NAME").and_then(|text| text.parse().ok()),
            driver: field("DRIVER").map(str::to_owned),
            node,
            vendor,
            device,
            revision,
            render_node,
            name,
            chip,
            kfd,
            folder,
        })
    }

    /// The present sensor values of an AMD card. A sleeping card is not woken.
    pub(crate) fn telemetry(&self, card: &Card) -> Telemetry {
        let folder = card.folder.clone();
        let asleep =
            self.text(&format!("{folder}/power/runtime_status")).as_deref() == Some("suspended");
        let sensors = Sensors { sysfs: self, folder, asleep, unavailable: RefCell::default() };
        let mut telemetry = Telemetry {
            vram_total_bytes: sensors.memory("vram_total_bytes", "mem_info_vram_total"),
            vram_used_bytes: sensors.memory("vram_used_bytes", "mem_info_vram_used"),
            vram_visible_bytes: sensors.memory("vram_visible_bytes", "mem_info_vis_vram_total"),
            gtt_total_bytes: sensors.memory("gtt_total_bytes", "mem_info_gtt_total"),
            gtt_used_bytes: sensors.memory("gtt_used_bytes", "mem_info_gtt_used"),
            load_percent: sensors.number("load_percent", "gpu_busy_percent"),
            memory_load_percent: sensors.number("memory_load_percent", "mem_busy_percent"),
            memory_clock_mhz: sensors.clocks("memory_clock_mhz", "pp_dpm_mclk").0,
            link: self.link(&sensors.folder),
            asleep,
            ..Telemetry::default()
        };
        (telemetry.core_clock_mhz, telemetry.core_clock_mhz_max) =
            sensors.clocks("core_clock_mhz", "pp_dpm_sclk");
        let monitors = self.list(&format!("{}/hwmon", sensors.folder));
        if let Some(name) = monitors.iter().min() {
            let scaled = |field, file: &str, unit: f64| {
                let value = sensors.number(field, &format!("hwmon/{name}/{file}"));
                value.map(|value| value as f64 / unit)
            };
            telemetry.temperature_celsius = scaled("temperature_celsius", "temp1_input", 1e3);
            telemetry.power_watts = scaled("power_watts", "power1_average", 1e6);
            telemetry.power_cap_watts = scaled("power_cap_watts", "power1_cap", 1e6);
            telemetry.fan_rpm = sensors.number("fan_rpm", &format!("hwmon/{name}/fan1_input"));
        }
        telemetry.unavailable = sensors.unavailable.into_inner();
        telemetry
    }

    /// The PCIe link. The PCI core reports it without waking the card.
    fn link(&self, folder: &str) -> Option<PcieLink> {
        let speed = |file: &str| {
            // "8.0 GT/s PCIe"; older kernels omit the last word.
            let text = self.text(&format!("{folder}/{file}"))?;
            text.split_whitespace().next()?.parse::<f64>().ok()
        };
        let width = |file: &str| self.text(&format!("{folder}/{file}"))?.trim().parse().ok();
        Some(PcieLink {
            speed_gts: speed("current_link_speed")?,
            width: width("current_link_width")?,
            speed_gts_max: speed("max_link_speed")?,
            width_max: width("max_link_width")?,
        })
    }
}

/// The sensor files of one card.
struct Sensors<'a> {
    sysfs: &'a Sysfs<'a>,
    folder: String,
    asleep: bool,
    unavailable: RefCell<Vec<&'static str>>,
}

impl Sensors<'_> {
    fn path(&self, file: &str) -> PathBuf {
        self.sysfs.root.join(&self.folder).join(file)
    }

    /// The text of a sensor on the card; not read while the card sleeps.
    fn text(&self, field: &'static str, file: &str) -> Option<String> {
        if !self.asleep {
            return self.note(field, file);
        }
        if self.path(file).exists() {
            self.unavailable.borrow_mut().push(field);
        }
        None
    }

    /// A file's text. The name of an existing sensor that does not answer now is recorded.
    fn note(&self, field: &'static str, file: &str) -> Option<String> {
        match (self.sysfs.read)(&self.path(file)) {
            Ok(text) => Some(text),
            Err(error) if is_temporary(&error) => {
                self.unavailable.borrow_mut().push(field);
                None
            }
            Err(_) => None,
        }
    }

    /// A value of the memory manager, which reports it without waking the card.
    fn memory(&self, field: &'static str, file: &str) -> Option<u64> {
        self.note(field, file)?.trim().parse().ok()
    }

    fn number(&self, field: &'static str, file: &str) -> Option<u64> {
        self.text(field, file)?.trim().parse().ok()
    }

    /// The present and the highest clock of a table like `1: 600Mhz *`, in MHz.
    fn clocks(&self, field: &'static str, file: &str) -> (Option<u64>, Option<u64>) {
        self.text(field, file).map_or((None, None), |text| parse_clocks(&text))
    }
}

/// amdgpu answers EPERM while the card resets, suspends or sleeps, and EBUSY in between.
fn is_temporary(error: &io::Error) -> bool {
    const EPERM: i32 = 1;
    const EBUSY: i32 = 16;
    matches!(error.raw_os_error(), Some(EPERM | EBUSY))
}

/// The GPU nodes under `class/kfd`.
fn nodes(sysfs: &Sysfs<'_>) -> Vec<KfdNode> {
    let folder = "class/kfd/kfd/topology/nodes";
    let mut names = sysfs.list(folder);
    names.sort_by_key(|name| name.parse::<u32>().unwrap_or(u32::MAX));
    let texts = names.iter().filter_map(|name| sysfs.text(&format!("{folder}/{name}/properties")));
    texts.filter_map(|text| kfd::parse(&text)).collect()
}

fn parse_clocks(text: &str) -> (Option<u64>, Option<u64>) {
    let clock = |line: &str| -> Option<u64> {
        let (_, value) = line.split_once(':')?;
        let value = value.trim().trim_end_matches('*').trim().to_ascii_lowercase();
        value.strip_suffix("mhz")?.parse().ok()
    };
    let present = text.lines().find(|line| line.trim_end().ends_with('*')).and_then(clock);
    (present, text.lines().filter_map(clock).max())
}

#[cfg(test)]
mod tests;
