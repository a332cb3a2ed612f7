//! The devices of this machine, whether models can run on them now, and why not.

use crate::advice::{Advice, Environment, unbacked};
use crate::amd::sysfs::{Card, Reader, Sysfs};
use crate::backend::{BACKENDS, BackendKind, Found, Line, Probe};
use crate::caps::{Caps, DeviceKind};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::id::{DeviceId, PciAddress};
use crate::info::{DeviceInfo, SelfTest, Way};
use crate::registry::{backend_of, open_in};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The time limit of a self-test, including slow compilers, after which the driver counts as
/// hanging.
pub(crate) const SELF_TEST_LIMIT: Duration = Duration::from_secs(30);

/// The places that probing reads.
#[derive(Debug, Clone)]
pub struct ProbeOptions {
    /// The root of sysfs.
    pub sysfs_root: PathBuf,
    /// The folder of device nodes, whose permissions are checked; `None` for a sysfs tree of
    /// another machine, whose nodes are unknown.
    pub dev_root: Option<PathBuf>,
    /// The root of the file system, where [`crate::diagnose`] looks for installed drivers and
    /// permissions; `None` for a sysfs tree of another machine.
    pub root: Option<PathBuf>,
    /// Reads a file of sysfs; a test can replace it to imitate a failing driver.
    pub read: fn(&Path) -> std::io::Result<String>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        let read: Reader = |path| std::fs::read_to_string(path);
        let (dev_root, root) = (Some("/dev".into()), Some("/".into()));
        Self { sysfs_root: "/sys".into(), dev_root, root, read }
    }
}

impl ProbeOptions {
    /// Options for a sysfs tree that was copied from another machine or made for a test.
    #[must_use]
    pub fn of_tree(sysfs_root: impl Into<PathBuf>) -> Self {
        Self { sysfs_root: sysfs_root.into(), dev_root: None, root: None, ..Self::default() }
    }
}

/// Finds every device: those of the backends, each opened and self-tested, and the AMD and NVIDIA
/// cards that the kernel sees but no backend does. Probing never fails and never panics: the
/// devices' reasons hold the problems.
#[must_use]
pub fn probe(options: &ProbeOptions) -> Vec<DeviceInfo> {
    Survey::new(BACKENDS, options).devices
}

/// The result of probing once.
pub(crate) struct Survey {
    /// Each backend's result, `None` if the backend is not compiled in.
    pub(crate) probes: Vec<(BackendKind, &'static str, Option<Probe>)>,
    /// The devices; those of the backends come first.
    pub(crate) devices: Vec<DeviceInfo>,
}

impl Survey {
    /// Probes all backends and cards.
    pub(crate) fn new(table: &'static [Line], options: &ProbeOptions) -> Self {
        let sysfs = Sysfs::new(&options.sysfs_root, options.read);
        let mut cards = sysfs.cards();
        cards.retain(|card| card.is_amd() || card.is_nvidia());
        let probes: Vec<_> = table
            .iter()
            .map(|line| (line.kind, line.feature, line.backend.map(|backend| backend.probe())))
            .collect();
        let found: Vec<(DeviceId, &Found)> = probes
            .iter()
            .filter_map(|(kind, _, probe)| Some((*kind, probe.as_ref()?)))
            .flat_map(|(kind, probe)| {
                (0u32..).zip(&probe.found).map(move |(at, found)| (DeviceId::new(kind, at), found))
            })
            .collect();
        let owners = join(&cards, &found);
        let seen: Vec<(Option<PciAddress>, DeviceInfo)> = found
            .iter()
            .zip(&owners)
            .map(|((id, found), owner)| {
                let card = owner.map(|at| &cards[at]);
                let telemetry = match card.filter(|card| card.is_amd()) {
                    Some(card) => Some(sysfs.telemetry(card)),
                    None => backend_of(table, id.backend).ok().and_then(|it| it.telemetry(found)),
                };
                let tested = test_in_time(table, *id, SELF_TEST_LIMIT);
                let pci = card.and_then(|card| card.pci).or(found.caps.pci);
                let pci = pci.filter(|_| found.caps.kind == DeviceKind::Gpu);
                (pci, DeviceInfo { telemetry, ..backed(*id, found, card, tested) })
            })
            .collect();
        let mut devices = merged(seen);
        let environment = Environment::read(&probes);
        let orphans = (0..cards.len()).filter(|at| !owners.contains(&Some(*at)));
        devices.extend(orphans.map(|at| {
            let card = &cards[at];
            orphan(card, &sysfs, unbacked(card, &environment.of(card, options.dev_root.as_deref())))
        }));
        Self { probes, devices }
    }
}

/// The card of each device, by PCI address. If exactly one AMD device reports no address and one
/// AMD card is left, they belong together.
pub(crate) fn join(cards: &[Card], found: &[(DeviceId, &Found)]) -> Vec<Option<usize>> {
    let by_address = |found: &Found| {
        let address = found.caps.pci?;
        cards.iter().position(|card| card.pci == Some(address))
    };
    let mut owners: Vec<Option<usize>> = found.iter().map(|(_, it)| by_address(it)).collect();
    // Vulkan may see the same card, and by its address.
    let by_opencl = |at: usize| {
        let mut all = found.iter().zip(&owners);
        all.any(|((id, _), owner)| id.backend == BackendKind::OpenCl && *owner == Some(at))
    };
    let free: Vec<usize> =
        (0..cards.len()).filter(|&at| cards[at].is_amd() && !by_opencl(at)).collect();
    let homeless: Vec<usize> = (0..found.len())
        .filter(|at| owners[*at].is_none() && found[*at].1.caps.pci.is_none())
        .filter(|at| found[*at].0.backend == BackendKind::OpenCl && found[*at].1.is_amd_gpu())
        .collect();
    if let (&[card], &[device]) = (free.as_slice(), homeless.as_slice()) {
        owners[device] = Some(card);
    }
    owners
}

/// Joins the devices that are one card, by PCI address: the best way describes the card.
fn merged(seen: Vec<(Option<PciAddress>, DeviceInfo)>) -> Vec<DeviceInfo> {
    let mut devices: Vec<(Option<PciAddress>, DeviceInfo)> = Vec::new();
    for (pci, mut info) in seen {
        let same = devices.iter_mut().find(|(other, _)| pci.is_some() && *other == pci);
        let Some((_, known)) = same else {
            devices.push((pci, info));
            continue;
        };
        let rank = |it: &DeviceInfo| (it.usable, it.device.and_then(|id| id.backend.line().rank));
        if rank(&info) > rank(known) {
            std::mem::swap(known, &mut info);
        }
        known.ways.append(&mut info.ways);
        // Stable, so that of equal ways the lower number stays first.
        known.ways.sort_by_key(|way| Reverse((way.usable, way.id.backend.line().rank)));
        known.telemetry = known.telemetry.take().or(info.telemetry);
        known.card = known.card.take().or(info.card);
    }
    devices.into_iter().map(|(_, info)| info).collect()
}

/// An opened device, which has passed its self-test.
#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) device: Arc<dyn Device>,
    /// Why the device compiles no programs, although devices of its kind do.
    no_programs: Option<String>,
}

impl Tested {
    fn new(device: Arc<dyn Device>) -> Self {
        // A CUDA device without a compiler gives the reason before it reads the source. Other
        // devices get no empty program, because a driver may crash on it.
        let lacks_compiler = device.id().backend == BackendKind::Cuda && !device.caps().programs;
        let no_programs = match lacks_compiler.then(|| device.compile("", "")) {
            Some(Err(Error::Unsupported { reason, .. })) => Some(reason),
            _ => None,
        };
        Self { device, no_programs }
    }

    /// Why models do not run on the device; `None` if they do.
    pub(crate) fn unfit(&self) -> Option<String> {
        if self.device.id().backend == BackendKind::Cpu {
            return None;
        }
        if let Some(reason) = &self.no_programs {
            return Some(format!("memory test passed; no kernel compiles: {reason}"));
        }
        Some(format!("self-test passed; {}", self.device.caps().unfit()?))
    }
}

/// Opens and thereby tests a device, on a thread that is abandoned if it hangs.
pub(crate) fn test_in_time(
    table: &'static [Line],
    id: DeviceId,
    limit: Duration,
) -> Result<Tested> {
    let (sender, receiver) = mpsc::channel();
    let test = move || {
        let answer = open_in(table, id).map(Tested::new);
        // The receiver is gone after the time limit.
        let _ = sender.send(answer);
    };
    let failed = |detail: String| Error::SelfTest { device: id, op: "opening", detail };
    std::thread::Builder::new()
        .name(format!("self-test {id}"))
        .spawn(test)
        .map_err(|error| failed(format!("no thread for the test: {error}")))?;
    receiver.recv_timeout(limit).unwrap_or_else(|error| match error {
        mpsc::RecvTimeoutError::Timeout => {
            Err(failed(format!("no answer within {} s", limit.as_secs())))
        }
        mpsc::RecvTimeoutError::Disconnected => Err(failed("the driver ended the test".to_owned())),
    })
}

/// A device that a backend found, without its telemetry.
fn backed(id: DeviceId, found: &Found, card: Option<&Card>, tested: Result<Tested>) -> DeviceInfo {
    let advice = match &tested {
        Ok(tested) => tested.unfit().map(|reason| Advice { reason, hint: None }),
        Err(error) => Some(Advice { reason: error.to_string(), hint: driver_update(id) }),
    };
    let self_test = if tested.is_ok() { SelfTest::Passed } else { SelfTest::Failed };
    // The opened device has more capabilities filled in, such as the wave of an OpenCL 1.2 device.
    let caps = tested.map_or_else(|_| found.caps.clone(), |it| it.device.caps().clone());
    let (reason, hint) = advice.map_or((None, None), |it| (Some(it.reason), it.hint));
    let way = Way {
        id,
        name: found.name.clone(),
        driver: caps.driver.clone(),
        usable: reason.is_none(),
        reason: reason.clone(),
        hint: hint.clone(),
        self_test,
    };
    DeviceInfo {
        id: id.to_string(),
        device: Some(id),
        // The kernel knows the revision, which distinguishes products that the driver names alike.
        name: card.filter(|card| card.is_amd()).map_or(&found.name, |card| &card.name).clone(),
        backend: id.backend.to_string(),
        memory_bytes: caps.memory_bytes,
        usable: reason.is_none(),
        reason,
        hint,
        self_test,
        caps,
        telemetry: None,
        card: card.cloned(),
        ways: vec![way],
    }
}

fn driver_update(id: DeviceId) -> Option<String> {
    let driver = id.backend.line().driver?;
    Some(format!("update {driver}, then: radeon-cluster doctor"))
}

/// The id of a card that no backend sees.
fn place(card: &Card) -> String {
    match (card.pci, &card.node) {
        (Some(pci), _) => format!("pci:{pci}"),
        (None, Some(node)) => format!("drm:{node}"),
        (None, None) => format!("sysfs:{}", card.folder),
    }
}

/// The effect of the advice, so that users do not expect more.
const MENDED: &str = "once mended it is tested, and models run there if it passes";

/// The description of a card that the kernel sees but no backend does.
fn orphan(card: &Card, sysfs: &Sysfs<'_>, advice: Advice) -> DeviceInfo {
    let telemetry = card.is_amd().then(|| sysfs.telemetry(card));
    let backend = if card.is_amd() { BackendKind::OpenCl } else { BackendKind::Cuda };
    let memory_bytes = telemetry.as_ref().and_then(|it| it.vram_total_bytes);
    let vendor = if card.is_amd() { "AMD" } else { "NVIDIA" };
    let compute_units = card.kfd.as_ref().map_or(0, |node| node.simd_count / 4);
    DeviceInfo {
        id: place(card),
        device: None,
        name: card.name.clone(),
        backend: backend.to_string(),
        memory_bytes,
        usable: false,
        reason: Some(format!("{}; {MENDED}", advice.reason)),
        hint: advice.hint,
        self_test: SelfTest::NotRun,
        caps: Caps {
            kind: DeviceKind::Gpu,
            vendor: vendor.to_owned(),
            driver: card.driver.clone().unwrap_or_default(),
            pci: card.pci,
            compute_units: u32::try_from(compute_units).unwrap_or(0),
            memory_bytes,
            ..Caps::default()
        },
        telemetry,
        card: Some(card.clone()),
        ways: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
