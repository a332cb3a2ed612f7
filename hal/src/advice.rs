//! Why a graphics card that the kernel sees is not used, and the exact line that fixes it. The
//! reasoning is pure; the facts about the machine are collected first.

mod nvidia;

use crate::amd::ids::AmdChip;
use crate::amd::sysfs::Card;
use crate::backend::{BackendKind, Hides, Missing, Platform, Probe};
use std::io;
use std::path::Path;

/// A reason, and the line to type or to set that fixes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) reason: String,
    pub(crate) hint: Option<String>,
}

/// Whether this process may open a card's render node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RenderNode {
    /// The node can be opened.
    Open,
    /// This process has no permission for the node at this path.
    Denied(String),
    /// There is no node at this path.
    Absent(String),
}

/// The facts that the advice depends on, besides the card.
#[derive(Debug, Clone)]
pub(crate) struct Situation<'a> {
    /// Whether the card's backend is in this build.
    pub(crate) compiled: bool,
    /// The OpenCL platforms seen.
    pub(crate) platforms: &'a [Platform],
    /// Why the card's backend has no devices.
    pub(crate) missing: Option<&'a Missing>,
    /// The environment variables that OpenCL drivers read.
    pub(crate) variables: &'a Variables,
    /// The result of Vulkan's search, if the backend is in this build.
    pub(crate) vulkan: Option<&'a Probe>,
    /// The card's render node.
    pub(crate) render_node: RenderNode,
}

/// The variables by which drivers show or hide cards; `None` where one is not set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables {
    /// rusticl's own switch, `RUSTICL_ENABLE`: the drivers whose cards it shows.
    rusticl_enable: Option<String>,
    /// AMD's switch, `ROC_ENABLE_PRE_VEGA`: 1 shows cards older than Vega.
    enable_pre_vega: Option<String>,
    /// The loader's path, `OCL_ICD_VENDORS`: the only folder or file where the loader looks for
    /// drivers.
    icd_vendors: Option<String>,
    /// The Vulkan loader's list, `VK_DRIVER_FILES`, or by its older name `VK_ICD_FILENAMES`: the
    /// only drivers that it loads. The variable's name and its value.
    vulkan_drivers: Option<(&'static str, String)>,
    /// The parts of NVIDIA's driver that a container gets, `NVIDIA_DRIVER_CAPABILITIES`.
    nvidia_capabilities: Option<String>,
}

impl Variables {
    fn read() -> Self {
        let read = |name: &str| std::env::var(name).ok();
        Self {
            rusticl_enable: read("RUSTICL_ENABLE"),
            enable_pre_vega: read("ROC_ENABLE_PRE_VEGA"),
            icd_vendors: read("OCL_ICD_VENDORS"),
            nvidia_capabilities: read("NVIDIA_DRIVER_CAPABILITIES"),
            vulkan_drivers: ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"]
                .into_iter()
                .find_map(|name| Some((name, read(name)?))),
        }
    }
}

/// The facts that hold for every card of the machine.
pub(crate) struct Environment<'a> {
    opencl: Option<&'a Probe>,
    cuda: Option<&'a Probe>,
    vulkan: Option<&'a Probe>,
    variables: Variables,
}

impl<'a> Environment<'a> {
    /// Collects the facts.
    pub(crate) fn read(probes: &'a [(BackendKind, &'static str, Option<Probe>)]) -> Self {
        let of = |kind| probes.iter().find(|line| line.0 == kind).and_then(|line| line.2.as_ref());
        Self {
            opencl: of(BackendKind::OpenCl),
            cuda: of(BackendKind::Cuda),
            vulkan: of(BackendKind::Vulkan),
            variables: Variables::read(),
        }
    }

    /// Why a backend does not show a card that another shows; `None` if the backend is not in this
    /// build, or not for such cards.
    pub(crate) fn lacking(
        &self,
        kind: BackendKind,
        card: &Card,
        dev_root: Option<&Path>,
    ) -> Option<Advice> {
        let situation = || self.of(card, dev_root);
        // NVIDIA's libraries need its own kernel driver.
        let is_foreign = matches!(card.driver.as_deref(), Some("nouveau" | "vfio-pci"));
        match kind {
            BackendKind::Vulkan if card.is_amd() => Some(vulkan(self.vulkan?, &self.variables)),
            BackendKind::OpenCl if card.is_amd() => self.opencl.map(|_| opencl(card, &situation())),
            BackendKind::Cuda if card.is_nvidia() => {
                self.cuda.map(|_| nvidia::cuda(card, &situation()))
            }
            BackendKind::Vulkan if card.is_nvidia() && !is_foreign => {
                Some(nvidia::vulkan(self.vulkan?, &self.variables))
            }
            BackendKind::OpenCl if card.is_nvidia() && !is_foreign => {
                Some(nvidia::opencl(self.opencl?, &self.variables))
            }
            _ => None,
        }
    }

    /// The situation of one card.
    pub(crate) fn of(&self, card: &Card, dev_root: Option<&Path>) -> Situation<'_> {
        let probe = if card.is_amd() { self.opencl } else { self.cuda };
        Situation {
            compiled: probe.is_some(),
            platforms: probe.map_or(&[], |probe| &probe.platforms),
            missing: probe.and_then(|probe| probe.missing.as_ref()),
            variables: &self.variables,
            vulkan: self.vulkan,
            render_node: dev_root.map_or(RenderNode::Open, |root| render_node(card, root)),
        }
    }
}

fn render_node(card: &Card, dev_root: &Path) -> RenderNode {
    let Some(name) = &card.render_node else {
        return RenderNode::Absent(dev_root.join("dri").display().to_string());
    };
    let path = dev_root.join("dri").join(name);
    let opened = std::fs::File::options().read(true).write(true).open(&path);
    access(opened.map(drop), path.display().to_string())
}

fn access(opened: io::Result<()>, path: String) -> RenderNode {
    match opened.map_err(|error| error.kind()) {
        Err(io::ErrorKind::NotFound) => RenderNode::Absent(path),
        Err(io::ErrorKind::PermissionDenied) => RenderNode::Denied(path),
        // Errors of a busy or sleeping card are not errors of permissions.
        _ => RenderNode::Open,
    }
}

/// Why no backend sees the card.
pub(crate) fn unbacked(card: &Card, situation: &Situation<'_>) -> Advice {
    if card.is_amd() { amd(card, situation) } else { nvidia::cuda(card, situation) }
}

fn advice(reason: impl Into<String>, hint: &str) -> Advice {
    Advice { reason: reason.into(), hint: Some(hint.to_owned()) }
}

const INSTALL_RUSTICL: &str =
    "sudo apt install mesa-opencl-icd ocl-icd-libopencl1 && export RUSTICL_ENABLE=radeonsi";
const SWITCH_ON_RUSTICL: &str = "export RUSTICL_ENABLE=radeonsi  # for all programs: put RUSTICL_ENABLE=radeonsi into /etc/environment";

const INSTALL_RADV: &str = "sudo apt install mesa-vulkan-drivers libvulkan1";

fn amd(card: &Card, situation: &Situation<'_>) -> Advice {
    if let Some(advice) = amd_kernel_driver(card) {
        return advice;
    }
    let by_opencl = opencl(card, situation);
    let Some(probe) = situation.vulkan else {
        return by_opencl;
    };
    if let Some(advice) = no_render_node(&situation.render_node) {
        return advice;
    }
    // Vulkan needs no variable set, so its line comes first.
    let by_vulkan = vulkan(probe, situation.variables);
    let reason = format!("{}; {}", by_vulkan.reason, by_opencl.reason);
    Advice { reason, hint: by_vulkan.hint }
}

/// Why Vulkan does not show an AMD card that the kernel's driver has.
pub(crate) fn vulkan(probe: &Probe, variables: &Variables) -> Advice {
    limited_vulkan(probe, variables).unwrap_or_else(|| no_vulkan(probe, INSTALL_RADV))
}

/// The variable that keeps Vulkan from loading other drivers, if it is set.
fn limited_vulkan(probe: &Probe, variables: &Variables) -> Option<Advice> {
    let (name, value) = variables.vulkan_drivers.as_ref()?;
    if matches!(probe.missing, Some(Missing::Library(_))) {
        return None;
    }
    Some(advice(
        format!(
            "{name} is {value:?}, so Vulkan loads only those drivers, and none of them shows the card"
        ),
        &format!("unset {name}"),
    ))
}

/// Why Vulkan shows no such card, and the line that installs a driver for it.
fn no_vulkan(probe: &Probe, install: &str) -> Advice {
    match &probe.missing {
        Some(missing) => advice(missing.reason(), install),
        None => advice("the Vulkan drivers here show other devices, not this one", install),
    }
}

/// The variable that keeps OpenCL from loading other drivers, if it is set. `vendor` made the card.
fn limited_opencl(variables: &Variables, vendor: &str) -> Option<Advice> {
    let place = variables.icd_vendors.as_ref()?;
    Some(advice(
        format!(
            "OCL_ICD_VENDORS is {place:?}, so drivers are looked for only there, and none of those is for {vendor} cards"
        ),
        "unset OCL_ICD_VENDORS",
    ))
}

/// Why OpenCL does not show an AMD card that the kernel's driver has.
pub(crate) fn opencl(card: &Card, situation: &Situation<'_>) -> Advice {
    if !situation.compiled {
        return advice("this build has no opencl backend", "cargo build --release --features rocm");
    }
    if let Some(Missing::Library(reason)) = situation.missing {
        return advice(reason, INSTALL_RUSTICL);
    }
    if let Some(advice) = no_render_node(&situation.render_node) {
        return advice;
    }
    let has = |why: Hides| situation.platforms.iter().any(|it| it.hides == Some(why));
    if has(Hides::UnlessNamed) {
        return rusticl(situation.variables.rusticl_enable.as_deref());
    }
    if has(Hides::PreVega) {
        return amd_own(card, situation.variables);
    }
    if let Some(advice) = limited_opencl(situation.variables, "AMD") {
        return advice;
    }
    if has(Hides::All) {
        return advice(
            "Mesa's old Clover driver cannot drive this card, and Mesa 25.2 has dropped it for rusticl",
            INSTALL_RUSTICL,
        );
    }
    if situation.variables.rusticl_enable.is_some() {
        return advice(
            "RUSTICL_ENABLE is set, but Mesa's rusticl is not installed",
            INSTALL_RUSTICL,
        );
    }
    advice("no OpenCL driver for AMD cards is installed", INSTALL_RUSTICL)
}

/// The problem with a card's render node, if there is one.
fn no_render_node(node: &RenderNode) -> Option<Advice> {
    match node {
        RenderNode::Absent(path) => Some(advice(
            format!("{path} is not there; a container needs the device passed in"),
            "docker run --device /dev/dri …",
        )),
        RenderNode::Denied(path) => Some(advice(
            format!("this user may not open {path}"),
            "sudo usermod -aG render,video $USER  # then log in again",
        )),
        RenderNode::Open => None,
    }
}

/// Why AMD's own OpenCL driver, although installed, does not show the card.
fn amd_own(card: &Card, variables: &Variables) -> Advice {
    let before_vega = card.chip.is_some_and(AmdChip::is_before_vega);
    let shown = variables.enable_pre_vega.as_deref().is_some_and(|value| value != "0");
    let chip = card.chip.map_or_else(String::new, |chip| format!(" ({chip})"));
    let reason = match (card.kfd.is_some(), before_vega, shown) {
        (false, ..) => format!(
            "AMD's own OpenCL driver shows no such card{chip}: ROCm needs the kernel's compute driver (KFD), which leaves out cards on boards and risers without PCIe atomics; Mesa's rusticl needs neither"
        ),
        (true, true, false) => {
            return advice(
                format!(
                    "AMD's own OpenCL driver shows cards older than Vega{chip} only where ROC_ENABLE_PRE_VEGA is set"
                ),
                "export ROC_ENABLE_PRE_VEGA=1",
            );
        }
        (true, true, true) => format!(
            "AMD's own OpenCL driver shows no such card{chip}: ROCm's packages dropped these old cards with 4.5, and ROCm 7 refuses them; Mesa's rusticl, Debian's ROCm 5.7 and AMD's legacy driver do not"
        ),
        (true, false, _) => format!("AMD's own OpenCL driver shows no such card{chip}"),
    };
    advice(reason, INSTALL_RUSTICL)
}

/// The problem with the kernel driver that holds an AMD card, if there is one.
fn amd_kernel_driver(card: &Card) -> Option<Advice> {
    match card.driver.as_deref() {
        Some("amdgpu") => None,
        Some("radeon") if card.chip == Some(AmdChip::Gcn2) => Some(advice(
            "the old kernel driver radeon has the card, OpenCL needs amdgpu",
            "add to the kernel command line: radeon.si_support=0 radeon.cik_support=0 amdgpu.si_support=1 amdgpu.cik_support=1",
        )),
        Some("vfio-pci") => Some(advice(
            "the card is reserved for virtual machines (kernel driver vfio-pci)",
            "remove its id from vfio-pci.ids on the kernel command line",
        )),
        Some(other) => Some(advice(
            format!("the kernel driver {other} has the card, OpenCL needs amdgpu"),
            "sudo modprobe amdgpu",
        )),
        None => Some(advice("no kernel driver has the card", "sudo modprobe amdgpu")),
    }
}

/// Why rusticl, although installed, does not show the card.
fn rusticl(enable: Option<&str>) -> Advice {
    let drivers = || enable.unwrap_or_default().split(',').map(str::trim);
    let Some(value) = enable.filter(|_| drivers().any(|driver| !driver.is_empty())) else {
        return advice(
            "Mesa's rusticl is installed but switched off for AMD cards",
            SWITCH_ON_RUSTICL,
        );
    };
    if drivers().any(|driver| driver == "radeonsi") {
        return advice(
            "Mesa's rusticl is switched on and yet shows no such card; Mesa may be too old or built without radeonsi",
            "RUSTICL_ENABLE=radeonsi clinfo --list",
        );
    }
    if drivers().any(|driver| driver.starts_with("radeonsi:")) {
        return advice(
            format!("RUSTICL_ENABLE is {value:?}, which names some AMD cards and not this one"),
            SWITCH_ON_RUSTICL,
        );
    }
    advice(
        format!("RUSTICL_ENABLE is {value:?}, which leaves AMD cards out"),
        &format!("export RUSTICL_ENABLE={value},radeonsi"),
    )
}

#[cfg(test)]
mod tests;
