//! Each reason with the line that fixes it.

use super::*;
use crate::amd::kfd::KfdNode;
use crate::amd::{VENDOR_AMD, VENDOR_NVIDIA};

fn card(vendor: u16, driver: Option<&str>, chip: Option<AmdChip>) -> Card {
    Card {
        node: Some("card0".to_owned()),
        vendor,
        device: 0x67df,
        revision: 0xe7,
        pci: None,
        driver: driver.map(str::to_owned),
        render_node: Some("renderD128".to_owned()),
        name: "a card".to_owned(),
        chip,
        kfd: None,
        folder: String::new(),
    }
}

static NOTHING_SET: Variables = Variables {
    rusticl_enable: None,
    enable_pre_vega: None,
    icd_vendors: None,
    vulkan_drivers: None,
    nvidia_capabilities: None,
};

/// An environment in which rusticl's switch has this value.
fn rusticl_enable(value: &str) -> Variables {
    Variables { rusticl_enable: Some(value.to_owned()), ..Variables::default() }
}

const HEALTHY: Situation<'static> = Situation {
    compiled: true,
    platforms: &[],
    missing: None,
    vulkan: None,
    variables: &NOTHING_SET,
    render_node: RenderNode::Open,
};

#[test]
fn amd_cards() {
    let polaris = |driver| card(VENDOR_AMD, driver, Some(AmdChip::Polaris10));
    let amdgpu = || polaris(Some("amdgpu"));
    let library = Missing::Library("the OpenCL library is not installed".to_owned());
    let node = "/dev/dri/renderD128".to_owned();
    let platform = |name: &str, hides| Platform { name: name.to_owned(), hides };
    let pocl = [platform("Portable Computing Language", None)];
    let rusticl = [pocl[0].clone(), platform("rusticl", Some(Hides::UnlessNamed))];
    let legacy = [platform("AMD Accelerated Parallel Processing", Some(Hides::PreVega))];
    let clover = [platform("Clover", Some(Hides::All))];
    let [iris, first, none, on] =
        ["iris", "iris,radeonsi:0", "", "iris, radeonsi"].map(rusticl_enable);
    let elsewhere = Variables { icd_vendors: Some("/opt/icd".to_owned()), ..Variables::default() };
    let [shown, hidden] = ["1", "0"]
        .map(|value| Variables { enable_pre_vega: Some(value.to_owned()), ..Variables::default() });
    let kfd = KfdNode {
        gfx: "gfx803".to_owned(),
        simd_count: 144,
        wave: 64,
        local_memory_kib: 64,
        render_minor: 128,
        has_cpu: false,
    };
    let with_kfd = || Card { kfd: Some(kfd.clone()), ..amdgpu() };
    let vega = Card { chip: Some(AmdChip::Vega), ..with_kfd() };
    let on_rusticl = |variables| Situation { platforms: &rusticl, variables, ..HEALTHY };
    let on_legacy = |variables| Situation { platforms: &legacy, variables, ..HEALTHY };
    let install = INSTALL_RUSTICL;
    let switch = "export RUSTICL_ENABLE=radeonsi";
    let cases = [
        (
            amdgpu(),
            Situation { compiled: false, ..HEALTHY },
            "no opencl backend",
            "--features rocm",
        ),
        (amdgpu(), Situation { missing: Some(&library), ..HEALTHY }, "library is not", install),
        (amdgpu(), HEALTHY, "no OpenCL driver for AMD", install),
        (amdgpu(), Situation { platforms: &pocl, ..HEALTHY }, "no OpenCL driver for AMD", install),
        (amdgpu(), on_legacy(&NOTHING_SET), "without PCIe atomics", install),
        (with_kfd(), on_legacy(&NOTHING_SET), "older than Vega", "ROC_ENABLE_PRE_VEGA=1"),
        (with_kfd(), on_legacy(&hidden), "older than Vega", "ROC_ENABLE_PRE_VEGA=1"),
        (with_kfd(), on_legacy(&shown), "Debian's ROCm 5.7", install),
        (vega, on_legacy(&NOTHING_SET), "shows no such card (", install),
        (amdgpu(), Situation { platforms: &clover, ..HEALTHY }, "Mesa 25.2 has dropped", install),
        (
            amdgpu(),
            Situation { platforms: &pocl, variables: &elsewhere, ..HEALTHY },
            "OCL_ICD_VENDORS is \"/opt/icd\"",
            "unset OCL_ICD_VENDORS",
        ),
        (
            amdgpu(),
            Situation { platforms: &pocl, variables: &on, ..HEALTHY },
            "rusticl is not installed",
            install,
        ),
        (amdgpu(), on_rusticl(&none), "switched off", switch),
        (amdgpu(), Situation { platforms: &rusticl, ..HEALTHY }, "switched off", switch),
        (
            amdgpu(),
            on_rusticl(&iris),
            "\"iris\", which leaves AMD cards out",
            "export RUSTICL_ENABLE=iris,radeonsi",
        ),
        (amdgpu(), on_rusticl(&first), "some AMD cards and not this one", switch),
        (amdgpu(), on_rusticl(&on), "switched on and yet shows no such card", "clinfo"),
        (
            amdgpu(),
            Situation { render_node: RenderNode::Denied(node.clone()), ..HEALTHY },
            "may not open /dev/dri/renderD128",
            "usermod -aG render,video",
        ),
        (
            amdgpu(),
            Situation { render_node: RenderNode::Absent(node), ..HEALTHY },
            "/dev/dri/renderD128 is not there",
            "--device /dev/dri",
        ),
        (polaris(None), HEALTHY, "no kernel driver", "modprobe amdgpu"),
        (polaris(Some("vfio-pci")), HEALTHY, "virtual machines", "vfio-pci.ids"),
        (polaris(Some("radeon")), HEALTHY, "kernel driver radeon", "modprobe amdgpu"),
        (
            card(VENDOR_AMD, Some("radeon"), Some(AmdChip::Gcn2)),
            HEALTHY,
            "old kernel driver radeon",
            "radeon.cik_support=0",
        ),
    ];
    for (card, situation, reason, hint) in cases {
        let advice = unbacked(&card, &situation);
        assert!(advice.reason.contains(reason), "{advice:?} lacks {reason:?}");
        assert!(advice.hint.as_ref().is_some_and(|it| it.contains(hint)), "{advice:?}: {hint:?}");
    }
}

#[test]
fn vulkan_needs_no_variable_and_its_line_comes_first() {
    let card = card(VENDOR_AMD, Some("amdgpu"), Some(AmdChip::Polaris10));
    let probe = |missing| Probe { missing, ..Probe::default() };
    let library = probe(Some(Missing::Library("the Vulkan loader is not installed".to_owned())));
    let driver = probe(Some(Missing::Driver("no Vulkan driver is installed".to_owned())));
    let others = probe(None);
    let named = Variables {
        vulkan_drivers: Some(("VK_ICD_FILENAMES", "lvp.json".to_owned())),
        ..Variables::default()
    };
    let denied = RenderNode::Denied("/dev/dri/renderD128".to_owned());
    let at = |vulkan| Situation { vulkan: Some(vulkan), ..HEALTHY };
    for (situation, reason, hint) in [
        (at(&library), "the Vulkan loader is not installed; no OpenCL driver", INSTALL_RADV),
        (at(&driver), "no Vulkan driver is installed; no OpenCL driver", INSTALL_RADV),
        (at(&others), "show other devices, not this one; no OpenCL driver", INSTALL_RADV),
        (
            Situation { variables: &named, ..at(&others) },
            "VK_ICD_FILENAMES is \"lvp.json\"",
            "unset VK_ICD_FILENAMES",
        ),
        (Situation { variables: &named, ..at(&library) }, "the Vulkan loader", INSTALL_RADV),
        (Situation { compiled: false, ..at(&driver) }, "no opencl backend", INSTALL_RADV),
        (Situation { render_node: denied, ..at(&others) }, "may not open", "usermod"),
    ] {
        let advice = unbacked(&card, &situation);
        assert!(advice.reason.contains(reason), "{advice:?} lacks {reason:?}");
        assert!(advice.hint.as_ref().is_some_and(|it| it.contains(hint)), "{advice:?}: {hint:?}");
        assert!(!advice.hint.unwrap_or_default().contains("RUSTICL"), "{reason}");
    }
}

#[test]
fn nvidia_cards() {
    let library = Missing::Library("the driver library is not installed".to_owned());
    let none = Missing::Devices("the driver sees no device".to_owned());
    let cases = [
        (
            Some("nvidia"),
            Situation { compiled: false, ..HEALTHY },
            "no cuda backend",
            "features cuda",
        ),
        (Some("nouveau"), HEALTHY, "nouveau", "apt install nvidia-driver"),
        (Some("vfio-pci"), HEALTHY, "virtual machines", "vfio-pci.ids"),
        (
            None,
            Situation { missing: Some(&library), ..HEALTHY },
            "is not installed",
            "nvidia-driver",
        ),
        (
            Some("nvidia"),
            Situation { missing: Some(&none), ..HEALTHY },
            "sees no device",
            "nvidia-smi",
        ),
        (Some("nvidia"), HEALTHY, "shows other cards", "nvidia-smi"),
    ];
    for (driver, situation, reason, hint) in cases {
        let advice = unbacked(&card(VENDOR_NVIDIA, driver, None), &situation);
        assert!(advice.reason.contains(reason), "{advice:?} lacks {reason:?}");
        assert!(advice.hint.as_ref().is_some_and(|it| it.contains(hint)), "{advice:?}: {hint:?}");
    }
}

#[test]
fn an_nvidia_card_lacks_a_way_for_a_reason() {
    use BackendKind::{Cuda, OpenCl, Vulkan};
    let platform = |name: &str| Platform { name: name.to_owned(), hides: None };
    let library = || Some(Missing::Library("the library is not installed".to_owned()));
    let absent = Probe { missing: library(), ..Probe::default() };
    let others = Probe { platforms: vec![platform("rusticl")], ..Probe::default() };
    let own = Probe { platforms: vec![platform("NVIDIA CUDA")], ..Probe::default() };
    let nothing = Variables::default;
    let compute =
        || Variables { nvidia_capabilities: Some("compute,utility".to_owned()), ..nothing() };
    let graphics =
        || Variables { nvidia_capabilities: Some("compute, graphics".to_owned()), ..nothing() };
    let limited = || Variables { icd_vendors: Some("/opt/icd".to_owned()), ..nothing() };
    let named =
        || Variables { vulkan_drivers: Some(("VK_DRIVER_FILES", "/r.json".into())), ..nothing() };
    let install = ["nvidia-vulkan-icd", "nvidia-opencl-icd"];
    for (kind, probe, variables, reason, hint) in [
        (Vulkan, &absent, nothing(), "is not installed", install[0]),
        (Vulkan, &others, nothing(), "show other devices", install[0]),
        (Vulkan, &others, graphics(), "show other devices", install[0]),
        (Vulkan, &others, compute(), "\"compute,utility\"", "NVIDIA_DRIVER_CAPABILITIES=all"),
        (Vulkan, &others, named(), "only those drivers", "unset VK_DRIVER_FILES"),
        (OpenCl, &absent, limited(), "is not installed", install[1]),
        (OpenCl, &others, nothing(), "no OpenCL driver for NVIDIA", install[1]),
        (OpenCl, &others, limited(), "none of those is for NVIDIA", "unset OCL_ICD_VENDORS"),
        (OpenCl, &own, nothing(), "does not show this card", "nvidia-smi"),
        (Cuda, &absent, nothing(), "is not installed", "nvidia-driver"),
    ] {
        let probe = Some(probe);
        let environment = Environment { opencl: probe, cuda: probe, vulkan: probe, variables };
        let of = |driver| environment.lacking(kind, &card(VENDOR_NVIDIA, driver, None), None);
        let advice = of(Some("nvidia")).expect(reason);
        assert!(advice.reason.contains(reason), "{advice:?} lacks {reason:?}");
        assert!(advice.hint.as_ref().is_some_and(|it| it.contains(hint)), "{advice:?}: {hint:?}");
        // With another kernel driver only CUDA's reason helps.
        assert_eq!(of(Some("nouveau")).is_some(), kind == Cuda, "{kind}");
    }
}

#[test]
fn render_nodes_by_what_opening_says() {
    let path = || "/dev/dri/renderD128".to_owned();
    for (opened, expected) in [
        (Ok(()), RenderNode::Open),
        (Err(2), RenderNode::Absent(path())),
        (Err(13), RenderNode::Denied(path())),
        (Err(16), RenderNode::Open),
    ] {
        let opened = opened.map_err(io::Error::from_raw_os_error);
        assert_eq!(access(opened, path()), expected);
    }
    let mut card = card(VENDOR_AMD, Some("amdgpu"), None);
    let folder = tempfile::tempdir().expect("a folder");
    assert!(matches!(render_node(&card, folder.path()), RenderNode::Absent(_)));
    std::fs::create_dir(folder.path().join("dri")).expect("a folder");
    std::fs::write(folder.path().join("dri/renderD128"), "").expect("a file");
    assert_eq!(render_node(&card, folder.path()), RenderNode::Open);
    card.render_node = None;
    assert!(matches!(render_node(&card, folder.path()), RenderNode::Absent(_)));
}
