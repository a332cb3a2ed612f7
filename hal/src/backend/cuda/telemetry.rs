//! Measurements of a card by NVIDIA's management library (NVML), which comes with the driver.

use crate::id::PciAddress;
use crate::telemetry::{PcieLink, Telemetry};
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// The measurements of the card at `pci`; `None` without the library or the card.
pub(super) fn read(pci: PciAddress) -> Option<Telemetry> {
    let library = Nvml::init().ok()?;
    let card = library.device_by_pci_bus_id(pci.to_string()).ok()?;
    Some(measure(&card))
}

fn measure(card: &Device<'_>) -> Telemetry {
    let mut sensors = Sensors::default();
    let memory = sensors.get("vram_total_bytes", card.memory_info());
    let visible = sensors.get("vram_visible_bytes", card.bar1_memory_info());
    let temperature = sensors.get("temperature_celsius", card.temperature(TemperatureSensor::Gpu));
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    let load = sensors.get("load_percent", card.utilization_rates());
    Telemetry {
        vram_total_bytes: memory.as_ref().map(|memory| memory.total),
        vram_used_bytes: memory.map(|memory| memory.used),
        vram_visible_bytes: visible.map(|memory| memory.total),
        gtt_total_bytes: None,
        gtt_used_bytes: None,
        temperature_celsius: temperature.map(f64::from),
        power_watts: sensors.get("power_watts", card.power_usage()).map(watts),
        power_cap_watts: sensors.get("power_cap_watts", card.enforced_power_limit()).map(watts),
        fan_rpm: sensors.get("fan_rpm", fan(card)).map(u64::from),
        load_percent: load.as_ref().map(|load| u64::from(load.gpu)),
        memory_load_percent: load.map(|load| u64::from(load.memory)),
        core_clock_mhz: sensors.get("core_clock_mhz", card.clock_info(Clock::SM)).map(u64::from),
        core_clock_mhz_max: sensors
            .get("core_clock_mhz_max", card.max_clock_info(Clock::SM))
            .map(u64::from),
        memory_clock_mhz: sensors
            .get("memory_clock_mhz", card.clock_info(Clock::Memory))
            .map(u64::from),
        link: sensors.get("link", link(card)),
        asleep: false,
        unavailable: sensors.unavailable,
    }
}

/// Distinguishes sensors that a card lacks from sensors that do not answer now.
#[derive(Default)]
struct Sensors {
    unavailable: Vec<&'static str>,
}

impl Sensors {
    fn get<T>(&mut self, name: &'static str, answer: Result<T, NvmlError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => None,
            Err(_) => {
                self.unavailable.push(name);
                None
            }
        }
    }
}

/// The speed of the first fan; cards for servers have none.
fn fan(card: &Device<'_>) -> Result<u32, NvmlError> {
    match card.num_fans() {
        Ok(0) => Err(NvmlError::NotSupported),
        _ => card.fan_speed_rpm(0),
    }
}

fn link(card: &Device<'_>) -> Result<PcieLink, NvmlError> {
    Ok(PcieLink {
        speed_gts: speed_gts(card.current_pcie_link_gen()?),
        width: card.current_pcie_link_width()?,
        speed_gts_max: speed_gts(card.max_pcie_link_gen()?),
        width_max: card.max_pcie_link_width()?,
    })
}

/// The speed of a lane by the generation of PCI Express.
fn speed_gts(generation: u32) -> f64 {
    match generation {
        0 => 0.0,
        1 => 2.5,
        2 => 5.0,
        // Each later generation doubles the speed.
        later => f64::from(8 << (later - 3).min(8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_have_the_speed_of_their_generation() {
        let speeds = [1, 2, 3, 4, 5].map(speed_gts);
        assert_eq!(speeds, [2.5, 5.0, 8.0, 16.0, 32.0]);
    }

    #[test]
    fn lacking_sensors_are_not_unavailable_ones() {
        let mut sensors = Sensors::default();
        assert_eq!(sensors.get("fan_rpm", Ok(900)), Some(900));
        assert_eq!(sensors.get("load_percent", Err::<u32, _>(NvmlError::NotSupported)), None);
        assert_eq!(sensors.get("power_watts", Err::<u32, _>(NvmlError::GpuLost)), None);
        assert_eq!(sensors.unavailable, ["power_watts"]);
    }

    #[test]
    fn an_absent_card_has_no_telemetry() {
        let nowhere = PciAddress { domain: 0xffff, bus: 0xff, device: 0x1f, function: 7 };
        assert_eq!(read(nowhere), None);
    }
}
