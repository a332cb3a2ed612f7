//! The device that `auto` selects.

use crate::backend::{BACKENDS, BackendKind, Found, Line};
use crate::caps::{Caps, DeviceKind};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::{DeviceId, PciAddress};
use crate::info::{DeviceInfo, SelfTest, Way};
use crate::probe::{ProbeOptions, SELF_TEST_LIMIT, test_in_time};
use crate::registry::open_in;
use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

/// The order of devices: the better one is greater.
type Worth = (u8, Option<u64>, Reverse<u32>);

/// How good a device is for models; `None` for a device that `auto` never selects. A driver's
/// device of type CPU is the processor again, and slower.
fn worth(id: DeviceId, kind: DeviceKind, memory: Option<u64>) -> Option<Worth> {
    if kind == DeviceKind::Cpu && id.backend != BackendKind::Cpu {
        return None;
    }
    // Between equal ranks the larger memory wins, then the lower number.
    Some((id.backend.line().rank?, memory, Reverse(id.ordinal)))
}

/// The device that `auto` selects: the usable device of the fastest kind, or the processor if there
/// is no better one. A driver's device of type CPU is never selected.
#[must_use]
pub fn select_auto(devices: &[DeviceInfo]) -> DeviceId {
    select_auto_by(devices, &by_rank)
}

/// [`select_auto`] with a choice among the ways to use the selected device. `choose` gets all of them
/// if several are usable, the best by rank first; `None`, or an id that is not usable, means the first
/// usable one.
#[must_use]
pub fn select_auto_by(devices: &[DeviceInfo], choose: Choose<'_>) -> DeviceId {
    let usable = devices.iter().filter(|info| info.usable);
    let candidates = usable.filter_map(|info| {
        let id = info.device?;
        Some((worth(id, info.caps.kind, info.memory_bytes)?, id, info))
    });
    let Some((_, id, info)) = candidates.max_by_key(|(worth, ..)| *worth) else {
        return DeviceId::CPU;
    };
    let usable = || info.ways.iter().filter(|way| way.usable);
    let chosen = if usable().count() > 1 { choose(&info.ways) } else { None };
    chosen.filter(|chosen| usable().any(|way| way.id == *chosen)).unwrap_or(id)
}

/// A choice among the ways to use one device.
type Choose<'a> = &'a dyn Fn(&[Way]) -> Option<DeviceId>;

/// Chooses the first way.
fn by_rank(_ways: &[Way]) -> Option<DeviceId> {
    None
}

/// Opens the device that [`select_auto`] would select of all devices. It tests no more devices than
/// necessary, and loads no driver where the system shows no graphics card.
///
/// # Errors
/// The error of opening the processor, when no other device can be used.
pub fn open_auto() -> Result<Arc<dyn Device>> {
    open_auto_by(&by_rank)
}

/// [`open_auto`] with a choice among the ways to use a device, as [`select_auto_by`] has it; they
/// were not tested yet. If the chosen way cannot be used the others are tried.
///
/// # Errors
/// As [`open_auto`].
pub fn open_auto_by(choose: Choose<'_>) -> Result<Arc<dyn Device>> {
    let options = ProbeOptions::default();
    let table = if shows_graphics(&options) { BACKENDS } else { &[] };
    open_best(table, choose).map_or_else(|| open_in(BACKENDS, DeviceId::CPU), Ok)
}

/// The best device of a table that passes its test and runs kernels; `None` for the processor.
fn open_best(table: &'static [Line], choose: Choose<'_>) -> Option<Arc<dyn Device>> {
    let lines = table.iter().filter(|line| line.kind != BackendKind::Cpu);
    let probed = lines.filter_map(|line| Some((line.kind, line.backend?.probe())));
    let mut candidates: Vec<Candidate> = probed
        .flat_map(|(kind, probe)| {
            (0u32..).zip(probe.found).filter_map(move |(at, found)| {
                let id = DeviceId::new(kind, at);
                let worth = worth(id, found.caps.kind, found.caps.memory_bytes)?;
                let (pci, is_amd) = (found.caps.pci, found.is_amd_gpu());
                Some(Candidate { worth, pci, is_amd, way: untested(id, found) })
            })
        })
        .collect();
    find_address(&mut candidates);
    in_order(candidates, choose).find_map(|id| {
        let tested =
            test_in_time(table, id, SELF_TEST_LIMIT).and_then(|tested| match tested.unfit() {
                None => Ok(tested.device),
                Some(reason) => Err(Error::Unsupported { device: id, what: "kernels", reason }),
            });
        tested.inspect_err(|error| tracing::warn!(%id, %error, "a device is not used")).ok()
    })
}

/// A device that a backend found.
struct Candidate {
    worth: Worth,
    pci: Option<PciAddress>,
    is_amd: bool,
    way: Way,
}

/// Gives an AMD card that OpenCL shows without an address the address of the one that Vulkan shows,
/// if each shows one card and gives it the same name.
fn find_address(candidates: &mut [Candidate]) {
    let only = |kind| {
        let mut all = (0..candidates.len())
            .filter(|&at| candidates[at].is_amd && candidates[at].way.id.backend == kind);
        all.next().filter(|_| all.next().is_none())
    };
    let (Some(from), Some(to)) = (only(BackendKind::Vulkan), only(BackendKind::OpenCl)) else {
        return;
    };
    // Mesa's drivers add themselves and the chip in brackets.
    let product = |at: usize| candidates[at].way.name.split(" (").next();
    if candidates[to].pci.is_none() && product(from) == product(to) {
        candidates[to].pci = candidates[from].pci;
    }
}

/// A way that was not tested yet.
fn untested(id: DeviceId, found: Found) -> Way {
    let (name, driver) = (found.name, found.caps.driver);
    let (reason, hint, self_test) = (None, None, SelfTest::NotRun);
    Way { id, name, driver, usable: true, reason, hint, self_test }
}

/// The candidates from the best device to the worst; the ways to use one device stand together, the
/// chosen one first. The ways of a device are compared once all better devices have failed, for
/// that may take some seconds.
fn in_order(
    mut candidates: Vec<Candidate>,
    choose: Choose<'_>,
) -> impl Iterator<Item = DeviceId> + use<'_> {
    candidates.sort_by_key(|candidate| Reverse(candidate.worth));
    let next_device = move || {
        let &Candidate { pci, ref way, .. } = candidates.first()?;
        let id = way.id;
        let is_same = |it: &Candidate| it.way.id == id || pci.is_some() && it.pci == pci;
        let mut ways: Vec<Way> =
            candidates.extract_if(.., |it| is_same(it)).map(|it| it.way).collect();
        if let Some(chosen) = choose(&ways) {
            ways.sort_by_key(|way| way.id != chosen);
        }
        Some(ways.into_iter().map(|way| way.id))
    };
    std::iter::from_fn(next_device).flatten()
}

/// Whether the system shows a graphics card of any vendor, as far as that is known without a
/// driver.
fn shows_graphics(options: &ProbeOptions) -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let card = |name: std::ffi::OsString| name.to_string_lossy().starts_with("card");
    let cards = std::fs::read_dir(options.sysfs_root.join("class/drm"));
    cards.is_ok_and(|mut cards| cards.any(|entry| entry.is_ok_and(|it| card(it.file_name()))))
        // NVIDIA's driver without its display part, and the Windows Subsystem for Linux.
        || ["/dev/nvidiactl", "/dev/dxg"].iter().any(|node| Path::new(node).exists())
}

impl Caps {
    /// Why kernels in the portable language cannot run, whatever they compute; `None` if they can.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        if !self.programs {
            return Some("it compiles no programs".to_owned());
        }
        let (group, local) = (self.work_group_max, self.local_memory_bytes);
        let (items, bytes) = (crate::portable::GROUP_MAX, crate::portable::LOCAL_BYTES);
        ((group as usize) < items || local < bytes).then(|| {
            format!(
                "it has work-groups of {group} and {local} bytes of local memory, expected \
                 {items} and {bytes} at least"
            )
        })
    }
}

#[cfg(test)]
mod tests;
