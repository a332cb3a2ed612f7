//! The doctor's findings for the fixture hosts.

use super::*;
use std::path::Path;

/// The findings on a host whose only backends are those of the table's processor line.
fn say(host: &str) -> Vec<Finding> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    diagnose(&ProbeOptions::of_tree(folder.join(host)))
}

#[test]
fn each_host_gets_its_findings() {
    for (host, subject, status, part) in [
        ("rx580", "pci:0000:01:00.0", Status::Warn, "AMD Radeon RX 580, 36 compute units, 8.0 GiB"),
        ("rx570", "pci:0000:04:00.0", Status::Warn, "1 of 16 lanes"),
        ("rx570", "pci:0000:04:00.0", Status::Info, "PCIe atomics"),
        ("wx4100", "pci:0000:03:00.0", Status::Warn, "92 °C"),
        ("wx4100", "pci:0000:03:00.0", Status::Warn, "other programs use 3.9 of 4.0 GiB"),
        ("suspended", "pci:0000:01:00.0", Status::Info, "sleeps"),
        ("nvidia", "pci:0000:01:00.0", Status::Warn, "nouveau"),
        ("no-drm", "cards", Status::Info, "no AMD or NVIDIA card"),
        ("no-drm", "auto", Status::Ok, "models run on cpu"),
    ] {
        let findings = say(host);
        let found = findings
            .iter()
            .any(|it| it.subject == subject && it.status == status && it.message.contains(part));
        // A build without the cuda backend reports that instead of the driver.
        let nouveau_unseen = part == "nouveau" && BackendKind::Cuda.line().backend.is_none();
        assert!(found || nouveau_unseen, "{host}: no {status} {part:?} in {findings:#?}");
    }
}

#[test]
fn a_card_of_any_vendor_is_told_which_ways_it_lacks() {
    let missing = Some(crate::backend::Missing::Library("no library".to_owned()));
    let absent = || Some(Probe { missing: missing.clone(), ..Probe::default() });
    for (host, way, driver, lacking) in [
        ("nvidia", "cuda:0", "nvidia", ["vulkan", "opencl"].as_slice()),
        ("nvidia", "vulkan:0", "nouveau", &["cuda"]),
        ("rx580", "opencl:0", "amdgpu", &["vulkan"]),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(host);
        let options = ProbeOptions::of_tree(folder);
        let mut info = Survey::new(&[], &options).devices.remove(0);
        let id: DeviceId = way.parse().expect(way);
        let (name, reason, hint) = (String::new(), None, None);
        let self_test = SelfTest::Passed;
        let of_way =
            crate::Way { id, name, driver: String::new(), usable: true, reason, hint, self_test };
        (info.id, info.device, info.ways) = (way.to_owned(), Some(id), vec![of_way]);
        info.card.as_mut().expect(host).driver = Some(driver.to_owned());
        let kinds = [BackendKind::OpenCl, BackendKind::Vulkan, BackendKind::Cuda];
        let probes = kinds.map(|kind| (kind, "feature", absent())).to_vec();
        let survey = Survey { probes, devices: vec![info] };
        let findings = findings(&survey, &options);
        for kind in kinds {
            let part = format!("{kind} does not show it");
            let found = findings.iter().any(|it| it.subject == way && it.message.contains(&part));
            assert_eq!(found, lacking.contains(&kind.name()), "{part}: {findings:#?}");
        }
    }
}

#[test]
fn whatever_needs_mending_comes_with_the_line() {
    for host in ["rx580", "rx570", "vega", "vegam", "apu", "nvidia", "suspended"] {
        let findings = say(host);
        let card = findings.iter().find(|it| it.subject.starts_with("pci:")).expect(host);
        assert!(card.fix.is_some(), "{host}: {card:?}");
    }
}

#[test]
fn the_processor_comes_first_and_healthy_cards_stay_quiet() {
    let findings = say("vega");
    assert_eq!(findings[0].subject, "cpu");
    let of_card = findings.iter().filter(|it| it.subject.starts_with("pci:")).count();
    assert_eq!(of_card, 1, "a healthy card has one finding: {findings:#?}");
}
