//! Identity and telemetry of each fixture host, and of cards whose sensors do not answer.

use super::*;
use crate::amd::ids::AmdChip;

fn fixture(host: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(host)
}

fn read(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
}

/// The last AMD card of a host and its telemetry, read by `reader`.
fn amd_card(host: &str, reader: Reader) -> (Card, Telemetry) {
    let root = fixture(host);
    let sysfs = Sysfs::new(&root, reader);
    let card = sysfs.cards().into_iter().rfind(Card::is_amd).expect("the host has an AMD card");
    let telemetry = sysfs.telemetry(&card);
    (card, telemetry)
}

#[test]
fn each_host_shows_its_card() {
    use AmdChip::{Apu, Polaris10, Polaris11, Vega, VegaM};
    for (host, name, chip, pci, gfx, render_node) in [
        ("rx580", "AMD Radeon RX 580", Polaris10, "0000:01:00.0", Some("gfx803"), "renderD128"),
        ("rx570", "AMD Radeon RX 570", Polaris10, "0000:04:00.0", None, "renderD128"),
        (
            "wx4100",
            "AMD Radeon Pro WX 4100",
            Polaris11,
            "0000:03:00.0",
            Some("gfx803"),
            "renderD128",
        ),
        ("vegam", "AMD Radeon RX Vega M GH", VegaM, "0000:01:00.0", Some("gfx803"), "renderD129"),
        ("vega", "AMD Radeon RX Vega", Vega, "0000:0b:00.0", Some("gfx900"), "renderD128"),
        ("apu", "AMD Radeon Vega Graphics", Apu, "0000:38:00.0", Some("gfx902"), "renderD128"),
    ] {
        let (card, _) = amd_card(host, read);
        assert_eq!(card.name, name, "{host}");
        assert_eq!(card.chip, Some(chip), "{host}");
        assert_eq!(card.pci.expect(host).to_string(), pci, "{host}");
        assert_eq!(card.kfd.as_ref().map(|node| node.gfx.as_str()), gfx, "{host}");
        assert_eq!(card.render_node.as_deref(), Some(render_node), "{host}");
        assert_eq!(card.driver.as_deref(), Some("amdgpu"), "{host}");
    }
}

#[test]
fn a_busy_card_tells_everything() {
    let (_, telemetry) = amd_card("rx580", read);
    let expected = Telemetry {
        vram_total_bytes: Some(8 << 30),
        vram_used_bytes: Some(1_288_490_188),
        vram_visible_bytes: Some(256 << 20),
        gtt_total_bytes: Some(12 << 30),
        gtt_used_bytes: Some(20_971_520),
        temperature_celsius: Some(71.0),
        power_watts: Some(142.25),
        power_cap_watts: Some(185.0),
        fan_rpm: Some(1890),
        load_percent: Some(97),
        memory_load_percent: Some(64),
        core_clock_mhz: Some(1340),
        core_clock_mhz_max: Some(1340),
        memory_clock_mhz: Some(2000),
        link: Some(PcieLink { speed_gts: 8.0, width: 16, speed_gts_max: 8.0, width_max: 16 }),
        asleep: false,
        unavailable: Vec::new(),
    };
    assert_eq!(telemetry, expected);
}

#[test]
fn sensors_that_a_card_lacks_are_absent_and_not_unavailable() {
    let (_, vegam) = amd_card("vegam", read);
    assert_eq!(
        (vegam.memory_load_percent, vegam.power_cap_watts, vegam.fan_rpm),
        (None, None, None)
    );
    assert_eq!(vegam.link.expect("older kernels write no PCIe after GT/s").width, 8);
    let (_, apu) = amd_card("apu", read);
    assert_eq!(
        (apu.link, apu.core_clock_mhz, apu.core_clock_mhz_max),
        (None, Some(200), Some(1250))
    );
    assert!(vegam.unavailable.is_empty() && apu.unavailable.is_empty());
    let (_, riser) = amd_card("rx570", read);
    let link = riser.link.expect("has a link");
    assert_eq!((link.width, link.width_max, link.speed_gts), (1, 16, 2.5));
}

#[test]
fn sensors_that_answer_eperm_are_temporarily_unavailable() {
    // A card in reset: its own sensors refuse, but the PCI core and the memory manager answer.
    fn in_reset(path: &Path) -> io::Result<String> {
        let refuses = ["gpu_busy_percent", "pp_dpm_sclk", "temp1_input", "power1_average"];
        if refuses.iter().any(|name| path.ends_with(name)) {
            return Err(io::Error::from_raw_os_error(1));
        }
        read(path)
    }
    let (_, telemetry) = amd_card("rx580", in_reset);
    assert_eq!(
        telemetry.unavailable,
        ["load_percent", "core_clock_mhz", "temperature_celsius", "power_watts"]
    );
    assert_eq!(telemetry.load_percent, None);
    assert_eq!(telemetry.temperature_celsius, None);
    assert_eq!(telemetry.vram_total_bytes, Some(8 << 30), "the others still answer");
    assert_eq!(telemetry.power_cap_watts, Some(185.0));
    assert!(!telemetry.asleep);
}

#[test]
fn a_file_of_other_users_is_absent_not_unavailable() {
    fn denied(path: &Path) -> io::Result<String> {
        match path.ends_with("gpu_busy_percent") {
            true => Err(io::Error::from_raw_os_error(13)),
            false => read(path),
        }
    }
    let (_, telemetry) = amd_card("rx580", denied);
    assert_eq!((telemetry.load_percent, telemetry.unavailable.len()), (None, 0));
}

#[test]
fn a_sleeping_card_is_not_woken() {
    // The memory manager answers EPERM as on a card in reset; reading a sensor would wake it.
    fn guard(path: &Path) -> io::Result<String> {
        if path.ends_with("mem_info_vram_used") {
            return Err(io::Error::from_raw_os_error(1));
        }
        let sensors = ["gpu_busy", "mem_busy", "pp_dpm", "hwmon"];
        let text = path.to_string_lossy();
        assert!(!sensors.iter().any(|part| text.contains(part)), "{text} was read");
        read(path)
    }
    let (card, telemetry) = amd_card("suspended", guard);
    assert_eq!(card.name, "AMD Radeon RX 580", "its identity needs no sensor");
    assert!(telemetry.asleep);
    assert_eq!(telemetry.vram_total_bytes, Some(8 << 30), "needs no sensor either");
    for field in ["vram_used_bytes", "load_percent", "temperature_celsius", "core_clock_mhz"] {
        assert!(telemetry.unavailable.contains(&field), "{field}");
    }
    assert!(telemetry.link.is_some(), "the PCI core answers for the link");
}

#[test]
fn hosts_without_amd_cards() {
    let (nvidia, nothing) = (fixture("nvidia"), fixture("no-drm"));
    let cards = Sysfs::new(&nvidia, read).cards();
    assert_eq!(cards.len(), 1);
    assert!(cards[0].is_nvidia() && !cards[0].is_amd());
    assert_eq!(cards[0].name, "NVIDIA GPU 10de:1c03");
    assert!(Sysfs::new(&nothing, read).cards().is_empty());
    assert!(Sysfs::new(Path::new("/nonexistent"), read).cards().is_empty());
}

#[test]
fn garbage_in_sensors_is_no_measurement() {
    let folder = tempfile::tempdir().expect("a folder");
    let device = folder.path().join("class/drm/card0/device");
    std::fs::create_dir_all(&device).expect("a tree");
    for (file, text) in [
        ("vendor", "0x1002\n"),
        ("device", "0x67df\n"),
        ("revision", "0xfffff\n"),
        ("uevent", "PCI_SLOT_NAME=here\nDRIVER\n"),
        ("mem_info_vram_total", "-1\n"),
        ("pp_dpm_sclk", "fast *\n1: Mhz *\n"),
        ("current_link_speed", "Unknown\n"),
        ("current_link_width", "0\n"),
    ] {
        std::fs::write(device.join(file), text).expect("a file");
    }
    let sysfs = Sysfs::new(folder.path(), read);
    let card = sysfs.cards().pop().expect("a card");
    assert_eq!((card.pci, card.driver.clone(), card.revision), (None, None, 0));
    assert_eq!(sysfs.telemetry(&card), Telemetry::default());
}

#[test]
fn cards_without_a_graphics_driver_are_found_on_the_bus() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("a tree");
        std::fs::write(path, text).expect("a file");
    };
    let device = |folder: &str, class: &str, vendor: &str, id: &str, uevent: &str| {
        for (file, text) in
            [("class", class), ("vendor", vendor), ("device", id), ("uevent", uevent)]
        {
            put(&format!("{folder}/{file}"), &format!("{text}\n"));
        }
    };
    let vfio = "DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:04:00.0";
    for (folder, class, vendor, id, uevent) in [
        ("class/drm/card0/device", "0x030000", "0x1002", "0x67df", "PCI_SLOT_NAME=0000:03:00.0"),
        // The same card on the bus, its audio function, a reserved card, a server's onboard
        // graphics.
        ("bus/pci/devices/0000:03:00.0", "0x030000", "0x1002", "0x67df", ""),
        ("bus/pci/devices/0000:03:00.1", "0x040300", "0x1002", "0xaaf0", ""),
        ("bus/pci/devices/0000:04:00.0", "0x038000", "0x1002", "0x687f", vfio),
        ("bus/pci/devices/0000:05:00.0", "0x030000", "0x1a03", "0x2000", ""),
    ] {
        device(folder, class, vendor, id, uevent);
    }
    let cards = Sysfs::new(folder.path(), read).cards();
    let found: Vec<_> = cards.iter().map(|it| (it.node.as_deref(), it.driver.as_deref())).collect();
    assert_eq!(found, [(Some("card0"), None), (None, Some("vfio-pci"))]);
    assert_eq!(cards[1].name, "AMD Radeon RX Vega");
    assert_eq!(cards[1].pci.expect("has an address").to_string(), "0000:04:00.0");
}

#[test]
fn clock_tables() {
    for (text, expected) in [
        ("0: 300Mhz \n1: 600Mhz *\n2: 900Mhz \n", (Some(600), Some(900))),
        ("0: 300Mhz\n", (None, Some(300))),
        ("S: 19Mhz *\n0: 200Mhz \n1: 1250Mhz \n", (Some(19), Some(1250))),
        ("", (None, None)),
    ] {
        assert_eq!(parse_clocks(text), expected, "{text:?}");
    }
}
