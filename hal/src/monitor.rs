//! One device's sensors, for repeated reading.

use crate::amd::sysfs::{Card, Sysfs};
use crate::backend::{BACKENDS, BackendKind, Found, Line};
use crate::id::DeviceId;
use crate::probe::{ProbeOptions, join};
use crate::registry::backend_of;
use crate::telemetry::Telemetry;
use std::path::Path;
use std::time::Instant;

/// Reads the sensors of one device. Finding the device's sensors probes all devices; reading them
/// does not.
///
/// ```
/// use lgp_hal::{DeviceId, Monitor, ProbeOptions};
///
/// let mut monitor = Monitor::new(DeviceId::CPU, ProbeOptions::default());
/// monitor.read();
/// # std::thread::sleep(std::time::Duration::from_millis(30));
/// // How busy the processor was since the last look; nothing where the system does not tell.
/// let load = monitor.read().load_percent;
/// assert!(load.is_none_or(|percent| percent <= 100));
/// ```
pub struct Monitor {
    table: &'static [Line],
    id: DeviceId,
    options: ProbeOptions,
    found: Option<Found>,
    card: Option<Card>,
    /// The processor's counters at the last reading, and its time.
    before: Option<(Instant, Counters)>,
}

impl Monitor {
    /// The sensors of a device; a missing device has no values.
    #[must_use]
    pub fn new(id: DeviceId, options: ProbeOptions) -> Self {
        Self::within(BACKENDS, id, options)
    }

    fn within(table: &'static [Line], id: DeviceId, options: ProbeOptions) -> Self {
        let sysfs = Sysfs::new(&options.sysfs_root, options.read);
        let mut cards = sysfs.cards();
        cards.retain(|card| card.is_amd() || card.is_nvidia());
        let mut probe =
            backend_of(table, id.backend).map(|it| it.probe().found).unwrap_or_default();
        let found: Vec<(DeviceId, &Found)> = (0u32..)
            .zip(&probe)
            .map(|(ordinal, found)| (DeviceId::new(id.backend, ordinal), found))
            .collect();
        let at = found.iter().position(|(other, _)| *other == id);
        let owner = at.and_then(|at| join(&cards, &found).get(at).copied().flatten());
        let card = owner.map(|owner| cards.swap_remove(owner));
        let found = at.map(|at| probe.swap_remove(at));
        Self { table, id, options, found, card, before: None }
    }

    /// The family of the device's chip, such as `Polaris`, where it is known.
    #[must_use]
    pub fn family(&self) -> Option<&'static str> {
        let chip = self.card.as_ref()?.chip?;
        chip.is_polaris().then_some("Polaris")
    }

    /// The device's name for people; empty for a missing device.
    #[must_use]
    pub fn name(&self) -> &str {
        self.found.as_ref().map_or("", |found| &found.name)
    }

    /// The device's driver and its version; empty for a missing device.
    #[must_use]
    pub fn driver(&self) -> &str {
        self.found.as_ref().map_or("", |found| &found.caps.driver)
    }

    /// The present sensor values. For the processor: its load and power since the last reading.
    pub fn read(&mut self) -> Telemetry {
        if self.id.backend == BackendKind::Cpu {
            return self.processor(Instant::now());
        }
        let sysfs = Sysfs::new(&self.options.sysfs_root, self.options.read);
        let by_backend = || {
            let found = self.found.as_ref()?;
            backend_of(self.table, self.id.backend).ok()?.telemetry(found)
        };
        match self.card.as_ref().filter(|card| card.is_amd()) {
            Some(card) => sysfs.telemetry(card),
            None => by_backend().unwrap_or_default(),
        }
    }

    fn processor(&mut self, now: Instant) -> Telemetry {
        let counters = Counters::read(&self.options);
        let mut telemetry = Telemetry::default();
        if let Some((then, before)) = &self.before {
            telemetry.load_percent = counters.load_percent(before);
            telemetry.power_watts = counters.watts(before, now.duration_since(*then).as_secs_f64());
        }
        self.before = Some((now, counters));
        telemetry
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Monitor").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The system's counters of the processor.
#[derive(Debug, Clone, PartialEq, Default)]
struct Counters {
    /// Ticks since the start: all, and those without work.
    ticks: Option<(u64, u64)>,
    /// Energy of each package in microjoules, by its folder; the counters wrap around.
    packages: Vec<(String, u64)>,
}

impl Counters {
    fn read(options: &ProbeOptions) -> Self {
        let ticks = (options.read)(Path::new("/proc/stat")).ok().and_then(|text| ticks(&text));
        let sysfs = Sysfs::new(&options.sysfs_root, options.read);
        let mut names = sysfs.list("class/powercap");
        // `intel-rapl:0` is a package, on AMD's processors too, and `intel-rapl:0:0` a part of it.
        names.retain(|name| {
            let number = name.strip_prefix("intel-rapl:");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        });
        names.sort();
        let energy = |name: String| {
            let text = sysfs.text(&format!("class/powercap/{name}/energy_uj"))?;
            Some((name, text.parse().ok()?))
        };
        Self { ticks, packages: names.into_iter().filter_map(energy).collect() }
    }

    fn load_percent(&self, before: &Self) -> Option<u64> {
        let ((all, idle), (all_before, idle_before)) = (self.ticks?, before.ticks?);
        let all = all.checked_sub(all_before).filter(|ticks| *ticks > 0)?;
        let idle = idle.saturating_sub(idle_before).min(all);
        Some((all - idle) * 100 / all)
    }

    fn watts(&self, before: &Self, seconds: f64) -> Option<f64> {
        if self.packages.is_empty() || self.packages.len() != before.packages.len() {
            return None;
        }
        let mut joules = 0.0;
        for ((name, energy), (other, energy_before)) in self.packages.iter().zip(&before.packages) {
            // A counter that wrapped around gives no value this time.
            let used = energy.checked_sub(*energy_before).filter(|_| name == other)?;
            joules += std::time::Duration::from_micros(used).as_secs_f64();
        }
        (seconds > 0.0).then(|| joules / seconds)
    }
}

/// The first line of `/proc/stat`: all ticks, and those spent idle or waiting for a disk.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|text| text.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest ticks are included in the first two.
    let all = ticks.iter().take(8).copied().fold(0, u64::saturating_add);
    Some((all, ticks.get(3)?.saturating_add(*ticks.get(4)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Backend, Probe};
    use crate::caps::{Caps, DeviceKind};
    use crate::device::Device;
    use crate::error::Result;
    use std::sync::Arc;

    struct Ellesmere;

    impl Backend for Ellesmere {
        fn probe(&self) -> Probe {
            let caps = Caps { kind: DeviceKind::Gpu, vendor: "AMD".to_owned(), ..Caps::default() };
            let found = Found { name: "Ellesmere".to_owned(), caps };
            Probe { found: vec![found], ..Probe::default() }
        }
        fn open(&self, _ordinal: u32) -> Result<Arc<dyn Device>> {
            unreachable!("sensors are read without opening a device")
        }
    }

    #[test]
    fn a_card_says_what_its_files_say() {
        static TABLE: [Line; 1] =
            [Line { backend: Some(&Ellesmere), ..*BackendKind::OpenCl.line() }];
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rx580");
        let monitor = |ordinal| {
            let id = DeviceId::new(BackendKind::OpenCl, ordinal);
            Monitor::within(&TABLE, id, ProbeOptions::of_tree(&tree))
        };
        let mut card = monitor(0);
        assert_eq!(card.family(), Some("Polaris"));
        let telemetry = card.read();
        assert_eq!(telemetry.load_percent, Some(97));
        assert!(telemetry.power_watts.is_some_and(|watts| watts > 0.0));
        assert_eq!(card.read(), telemetry);
        let mut missing = monitor(7);
        assert_eq!((missing.family(), missing.read()), (None, Telemetry::default()));
    }

    #[test]
    fn the_processor_is_measured_between_two_looks() {
        assert_eq!(ticks("cpu  10 0 20 60 10 0 0 0 5 0\ncpu0 1"), Some((100, 70)));
        assert_eq!(ticks("cpu  10 0"), None);
        let counters = |ticks, energy: &[u64]| {
            let named = |(at, energy): (usize, &u64)| (format!("intel-rapl:{at}"), *energy);
            Counters { ticks, packages: energy.iter().enumerate().map(named).collect() }
        };
        let before = counters(Some((100, 70)), &[1_000_000, 500]);
        let after = counters(Some((200, 95)), &[21_000_000, 10_000_500]);
        assert_eq!(after.load_percent(&before), Some(75));
        assert_eq!(after.watts(&before, 0.5), Some(60.0));
        assert_eq!(before.watts(&after, 0.5), None, "a counter that began anew");
        assert_eq!(counters(None, &[]).load_percent(&before), None);
        assert_eq!(counters(None, &[]).watts(&before, 0.5), None);
    }

    #[test]
    fn packages_are_told_from_their_parts() {
        let tree = tempfile::tempdir().expect("a temporary folder");
        for (name, energy) in
            [("intel-rapl:0", "7\n"), ("intel-rapl:0:0", "3\n"), ("intel-rapl", "1\n")]
        {
            let folder = tree.path().join("class/powercap").join(name);
            std::fs::create_dir_all(&folder).expect("ours");
            std::fs::write(folder.join("energy_uj"), energy).expect("ours");
        }
        let counters = Counters::read(&ProbeOptions::of_tree(tree.path()));
        assert_eq!(counters.packages, [("intel-rapl:0".to_owned(), 7)]);
    }
}
