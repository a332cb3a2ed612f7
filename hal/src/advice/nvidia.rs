//! Why an NVIDIA card is not shown.

use super::{Advice, Situation, Variables, advice, limited_opencl, limited_vulkan, no_vulkan};
use crate::amd::sysfs::Card;
use crate::backend::{Missing, Probe};

const INSTALL_VULKAN: &str = "sudo apt install nvidia-vulkan-icd libvulkan1";
const INSTALL_OPENCL: &str = "sudo apt install nvidia-opencl-icd ocl-icd-libopencl1";

/// Why CUDA does not show the card.
pub(super) fn cuda(card: &Card, situation: &Situation<'_>) -> Advice {
    if !situation.compiled {
        return advice("this build has no cuda backend", "cargo build --release --features cuda");
    }
    match card.driver.as_deref() {
        Some("nouveau") => {
            return advice(
                "the kernel driver nouveau has the card, CUDA needs NVIDIA's own",
                "sudo apt install nvidia-driver",
            );
        }
        Some("vfio-pci") => {
            return advice(
                "the card is reserved for virtual machines (kernel driver vfio-pci)",
                "remove its id from vfio-pci.ids on the kernel command line",
            );
        }
        _ => {}
    }
    match situation.missing {
        Some(Missing::Library(reason)) => advice(reason, "sudo apt install nvidia-driver"),
        Some(missing) => advice(missing.reason(), "nvidia-smi"),
        None => advice("the NVIDIA driver shows other cards, not this one", "nvidia-smi"),
    }
}

/// Why Vulkan does not show a card that NVIDIA's kernel driver has.
pub(super) fn vulkan(probe: &Probe, variables: &Variables) -> Advice {
    if let Some(advice) = limited_vulkan(probe, variables) {
        return advice;
    }
    let has = |list: &str| list.split(',').any(|it| matches!(it.trim(), "all" | "graphics"));
    if let Some(list) = variables.nvidia_capabilities.as_ref().filter(|list| !has(list)) {
        return advice(
            format!(
                "NVIDIA_DRIVER_CAPABILITIES is {list:?}, which leaves Vulkan out of the container"
            ),
            "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all …",
        );
    }
    no_vulkan(probe, INSTALL_VULKAN)
}

/// Why OpenCL does not show a card that NVIDIA's kernel driver has.
pub(super) fn opencl(probe: &Probe, variables: &Variables) -> Advice {
    if let Some(Missing::Library(reason)) = &probe.missing {
        return advice(reason, INSTALL_OPENCL);
    }
    if probe.platforms.iter().any(|it| it.name.to_ascii_lowercase().contains("nvidia")) {
        return advice("NVIDIA's OpenCL driver is there and does not show this card", "nvidia-smi");
    }
    limited_opencl(variables, "NVIDIA")
        .unwrap_or_else(|| advice("no OpenCL driver for NVIDIA cards is installed", INSTALL_OPENCL))
}
