//! The measurements of a card at one moment.

use serde::Serialize;

/// Measurements of one card. A sensor that the card lacks is `None`. A sensor that does not answer
/// now (the card sleeps, resets or wakes) is `None` too, and named in `unavailable`.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Telemetry {
    /// Memory on the card.
    pub vram_total_bytes: Option<u64>,
    /// Memory on the card in use by all programs.
    pub vram_used_bytes: Option<u64>,
    /// The part of the card's memory that the processor can address; 256 MiB without resizable BAR.
    pub vram_visible_bytes: Option<u64>,
    /// Host memory that the card may borrow.
    pub gtt_total_bytes: Option<u64>,
    /// Borrowed host memory in use; it grows when the card's memory overflows.
    pub gtt_used_bytes: Option<u64>,
    /// Temperature of the chip.
    pub temperature_celsius: Option<f64>,
    /// Power drawn by the card.
    pub power_watts: Option<f64>,
    /// Power limit of the card.
    pub power_cap_watts: Option<f64>,
    /// Fan speed.
    pub fan_rpm: Option<u64>,
    /// How busy the cores are.
    pub load_percent: Option<u64>,
    /// How busy the memory is.
    pub memory_load_percent: Option<u64>,
    /// Present clock of the cores.
    pub core_clock_mhz: Option<u64>,
    /// Highest clock of the cores.
    pub core_clock_mhz_max: Option<u64>,
    /// Present clock of the memory.
    pub memory_clock_mhz: Option<u64>,
    /// The PCIe link.
    pub link: Option<PcieLink>,
    /// Whether the card sleeps; its sensors are then not read, because reading would wake it.
    pub asleep: bool,
    /// The sensors that are temporarily unavailable, by the names of these fields.
    pub unavailable: Vec<&'static str>,
}

impl Telemetry {
    /// Memory on the card that no program uses.
    #[must_use]
    pub fn vram_free_bytes(&self) -> Option<u64> {
        Some(self.vram_total_bytes?.saturating_sub(self.vram_used_bytes?))
    }
}

/// The present and the best state of a PCIe link.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PcieLink {
    /// Present speed of a lane in GT/s, which falls when the card idles.
    pub speed_gts: f64,
    /// Present number of lanes.
    pub width: u32,
    /// Highest speed of a lane, in GT/s.
    pub speed_gts_max: f64,
    /// Most lanes.
    pub width_max: u32,
}
