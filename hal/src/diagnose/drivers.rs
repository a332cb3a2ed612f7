//! Versions of installed drivers with known faults, each with the report's address.

use super::scene::Scene;
use super::{Finding, Status};
use crate::amd::ids::AmdChip;
use crate::versions::{Faulty, RADV_DAMAGES_MEMORY, Versions};

/// A package whose versions may have a known fault.
struct Row {
    packages: &'static [&'static str],
    fault: Faulty,
    /// Whether the fault affects only cards older than Vega.
    before_vega: bool,
    status: Status,
}

const MESA_OPENCL: &[&str] = &["mesa-opencl-icd", "opencl-mesa"];
const MESA_VULKAN: &[&str] = &["mesa-vulkan-drivers", "vulkan-radeon"];
const ROCM: &[&str] = &["rocm-core"];

/// One line for each report that names versions.
const KNOWN: &[Row] = &[
    Row {
        packages: MESA_OPENCL,
        fault: Faulty {
            versions: Versions { below: Some([22, 3, 0]), ..Versions::ALL },
            what: "it has Mesa's old Clover alone, which was reported to calculate wrongly on an \
                   RX 480 (https://github.com/ethereum-mining/ethminer/issues/2397)",
            fix: "install Mesa 22.3 or later, which has rusticl",
        },
        before_vega: false,
        status: Status::Warn,
    },
    Row {
        packages: MESA_VULKAN,
        fault: RADV_DAMAGES_MEMORY,
        before_vega: false,
        status: Status::Info,
    },
    Row {
        packages: ROCM,
        fault: Faulty {
            versions: Versions { from: [4, 5, 0], ..Versions::ALL },
            what: "ROCm's OpenCL was reported to show no Polaris card any more from 4.5 on \
                   (https://github.com/ROCm/legacy-rocm-build/issues/1608)",
            fix: "use Mesa's rusticl: export RUSTICL_ENABLE=radeonsi",
        },
        before_vega: true,
        status: Status::Info,
    },
];

/// The installed packages of the table, and those with a known fault.
pub(super) fn check(scene: &Scene<'_>) -> Vec<Finding> {
    let cards: Vec<_> = scene.amd().map(|(_, card)| card).collect();
    if cards.is_empty() {
        return Vec::new();
    }
    let before_vega = cards.iter().any(|card| card.chip.is_some_and(AmdChip::is_before_vega));
    let packages = installed(scene);
    let mut all = Vec::new();
    if !packages.is_empty() {
        let names = packages.iter().map(|(name, version)| format!("{name} {version}"));
        let names = names.collect::<Vec<_>>().join(", ");
        all.push(Finding::new("drivers", Status::Ok, names));
    }
    for row in KNOWN.iter().filter(|row| before_vega || !row.before_vega) {
        let mut found = packages.iter().filter(|(name, _)| row.packages.contains(&name.as_str()));
        let Faulty { versions, what, fix } = row.fault;
        let has = |version: &str| versions.has(version) == Some(true);
        if let Some((name, version)) = found.find(|(_, version)| has(version)) {
            let message = format!("{name} {version}: {what}");
            all.push(Finding::new("drivers", row.status, message).fix(fix));
        }
    }
    all
}

/// Name and version of each installed package of the table, from dpkg's or pacman's files.
fn installed(scene: &Scene<'_>) -> Vec<(String, String)> {
    let wanted: Vec<&str> = KNOWN.iter().flat_map(|row| row.packages).copied().collect();
    let status = scene.text("var/lib/dpkg/status").unwrap_or_default();
    let field = |paragraph: &str, key: &str| {
        let value = paragraph.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        value.map(str::to_owned)
    };
    let of_dpkg = status.split("\n\n").filter_map(|paragraph| {
        let name = field(paragraph, "Package").filter(|name| wanted.contains(&name.as_str()))?;
        field(paragraph, "Status").filter(|status| status.ends_with(" installed"))?;
        Some((name, field(paragraph, "Version")?))
    });
    let of_pacman = scene.list("var/lib/pacman/local").into_iter().filter_map(|folder| {
        let mut parts = folder.rsplitn(3, '-');
        let (release, version, name) = (parts.next()?, parts.next()?, parts.next()?);
        wanted.contains(&name).then(|| (name.to_owned(), format!("{version}-{release}")))
    });
    let mut all: Vec<_> = of_dpkg.chain(of_pacman).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::super::scene::tree;
    use super::*;
    use crate::backend::{BackendKind, Fault, Probe};
    use crate::probe::{ProbeOptions, Survey};
    use std::path::Path;

    /// The findings about the drivers of a host with an RX 580.
    fn say(files: &[(&str, &str)]) -> Vec<Finding> {
        let (_root, options) = tree(files);
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rx580");
        let options = ProbeOptions { sysfs_root: host, ..options };
        let all = super::super::diagnose(&options);
        all.into_iter().filter(|finding| finding.subject == "drivers").collect()
    }

    #[test]
    fn versions_that_do_wrong_are_named_with_the_report() {
        let dpkg = |name: &str, version: &str| {
            format!(
                "Package: libc6\nStatus: install ok installed\nVersion: 2.36\n\n\
                 Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n"
            )
        };
        for (name, version, report) in [
            ("mesa-opencl-icd", "22.2.5-0ubuntu1", Some("ethminer/issues/2397")),
            ("mesa-opencl-icd", "22.3.6-1+deb12u1", None),
            ("mesa-vulkan-drivers", "25.0.6-1", None),
            ("mesa-vulkan-drivers", "1:25.0.7-2", Some("issues/22128")),
            ("mesa-vulkan-drivers", "26.0.4-1", Some("issues/22128")),
            ("mesa-vulkan-drivers", "26.0.5-1", None),
            ("rocm-core", "5.7.0.50700-63~22.04", Some("issues/1608")),
        ] {
            let findings = say(&[("var/lib/dpkg/status", &dpkg(name, version))]);
            let listed = findings.iter().any(|it| it.message == format!("{name} {version}"));
            assert!(listed, "{name} {version}: {findings:#?}");
            let reported = findings.iter().find(|it| it.message.contains("http"));
            match report {
                None => assert!(reported.is_none(), "{name} {version}: {findings:#?}"),
                Some(part) => {
                    let found = reported.unwrap_or_else(|| panic!("{name} {version}"));
                    assert!(found.message.contains(part) && found.fix.is_some(), "{found:?}");
                }
            }
        }
    }

    #[test]
    fn a_fault_that_a_driver_shows_is_told_once() {
        let dpkg = "Package: mesa-vulkan-drivers\nStatus: install ok installed\nVersion: 25.0.7\n";
        let (_root, options) = tree(&[("var/lib/dpkg/status", dpkg)]);
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/rx580");
        let options = ProbeOptions { sysfs_root: host, ..options };
        let Faulty { what, fix, .. } = RADV_DAMAGES_MEMORY;
        for (shown, status) in [(false, Status::Info), (true, Status::Warn)] {
            let fault = Fault { ordinal: 0, reason: what.into(), fix };
            let faults = shown.then_some(fault).into_iter().collect();
            let probe = Some(Probe { faults, ..Probe::default() });
            let devices = Survey::new(&[], &options).devices;
            let survey = Survey { probes: vec![(BackendKind::Vulkan, "vulkan", probe)], devices };
            let mut told = super::super::findings(&survey, &options);
            told.retain(|finding| finding.message.contains(what));
            assert_eq!(told.len(), 1, "{told:#?}");
            assert_eq!(told[0].status, status, "{told:#?}");
        }
    }

    #[test]
    fn other_packages_and_removed_ones_say_nothing() {
        let removed =
            "Package: mesa-opencl-icd\nStatus: deinstall ok config-files\nVersion: 20.0\n";
        assert_eq!(say(&[("var/lib/dpkg/status", removed)]), []);
        let found = say(&[("var/lib/pacman/local/opencl-mesa-1:21.3.2-1/desc", "")]);
        assert!(found[0].message.contains("opencl-mesa 1:21.3.2-1"), "{found:#?}");
        assert_eq!(found.len(), 2);
    }
}
