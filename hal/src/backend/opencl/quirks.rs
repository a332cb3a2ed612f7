//! The known quirks of single drivers, in one table. Code asks the table for an effect, never for a
//! driver's name.

use crate::backend::Hides;
use crate::versions::Versions;

/// An effect of a driver that code must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quirk {
    /// Only one thread at a time may ask for devices.
    SetupRaces,
    /// A source without kernels must not be compiled.
    CrashesWithoutKernels,
    /// This error code means that the device is lost.
    LossCode(i32),
    /// Cards are not shown although the driver is there.
    HidesCards(Hides),
}

/// One quirk of one driver.
#[derive(Debug)]
struct Row {
    /// Part of the platform's name, in small letters.
    platform: &'static str,
    /// The driver's versions that have the quirk, as devices report them.
    versions: Versions,
    quirk: Quirk,
    /// The reason: the behaviour of the driver.
    reason: &'static str,
}

/// Every known quirk. A row whose versions have no end is about a driver without a known fix.
const ROWS: &[Row] = &[
    Row {
        platform: "portable computing language",
        versions: Versions::ALL,
        quirk: Quirk::SetupRaces,
        reason: "PoCL sets itself up when it is first asked for devices, and crashes if a second \
                 thread asks meanwhile",
    },
    Row {
        platform: "nvidia cuda",
        versions: Versions::ALL,
        quirk: Quirk::CrashesWithoutKernels,
        reason: "NVIDIA's OpenCL crashes in clGetProgramInfo over a program without kernels",
    },
    Row {
        platform: "nvidia cuda",
        versions: Versions::ALL,
        quirk: Quirk::LossCode(-9999),
        reason: "NVIDIA's OpenCL has a code of its own for a kernel that reached beyond its memory",
    },
    Row {
        platform: "rusticl",
        versions: Versions { from: [22, 3, 0], ..Versions::ALL },
        quirk: Quirk::HidesCards(Hides::UnlessNamed),
        reason: "Mesa's rusticl, which came with 22.3, has its drivers switched off",
    },
    Row {
        platform: "amd accelerated",
        versions: Versions::ALL,
        quirk: Quirk::HidesCards(Hides::PreVega),
        reason: "AMD's own OpenCL leaves out cards older than Vega and cards without KFD",
    },
    Row {
        platform: "clover",
        versions: Versions { below: Some([25, 2, 0]), ..Versions::ALL },
        quirk: Quirk::HidesCards(Hides::All),
        reason: "Mesa's Clover, which went with 25.2, is too old for the cards it should drive",
    },
];

/// The quirks of one driver.
#[derive(Debug, Clone, Default)]
pub(super) struct Quirks(Vec<&'static Row>);

impl Quirks {
    /// The quirks of a platform whose driver has this version. An unknown version, as before a
    /// device has reported it, counts as any version.
    pub(super) fn of(platform: &str, version: Option<&str>) -> Self {
        let platform = platform.to_ascii_lowercase();
        let version = version.unwrap_or_default();
        let concerned = |row: &&Row| {
            platform.contains(row.platform) && row.versions.has(version) != Some(false)
        };
        Self(ROWS.iter().filter(concerned).collect())
    }

    /// Whether the driver has a quirk.
    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.reason(quirk).is_some()
    }

    /// The reason of a quirk, if the driver has it.
    pub(super) fn reason(&self, quirk: Quirk) -> Option<&'static str> {
        self.0.iter().find(|row| row.quirk == quirk).map(|row| row.reason)
    }

    /// All quirks with their reasons.
    pub(super) fn all(&self) -> impl Iterator<Item = (Quirk, &'static str)> {
        self.0.iter().map(|row| (row.quirk, row.reason))
    }

    /// Why the driver may show no AMD card, if it is a driver for AMD cards.
    pub(super) fn hides(&self) -> Option<Hides> {
        self.all().find_map(|(quirk, _)| match quirk {
            Quirk::HidesCards(why) => Some(why),
            _ => None,
        })
    }

    /// The problem of a source that this driver must not see.
    pub(super) fn complaint(&self, source: &str) -> Option<String> {
        let reason = self.reason(Quirk::CrashesWithoutKernels)?;
        // Kernels begin with this word, in the portable language and in OpenCL C.
        let has_kernels = source.to_ascii_lowercase().contains("kernel");
        (!has_kernels).then(|| format!("the source has no kernels: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_says_whom_it_is_about_and_why() {
        for row in ROWS {
            let Row { platform, versions, reason, .. } = row;
            assert!(!platform.is_empty() && *platform == platform.to_ascii_lowercase(), "{row:?}");
            assert!(versions.below.is_none_or(|below| versions.from < below), "{row:?}");
            assert!(reason.split_whitespace().count() > 5 && !reason.ends_with('.'), "{row:?}");
        }
    }

    #[test]
    fn drivers_are_known_by_what_they_tell() {
        use Quirk::{CrashesWithoutKernels, HidesCards, LossCode, SetupRaces};
        let nvidia: &[Quirk] = &[CrashesWithoutKernels, LossCode(-9999)];
        let cases: [(&str, Option<&str>, &[Quirk]); 12] = [
            ("Portable Computing Language", Some("3.1+debian"), &[SetupRaces]),
            ("Portable Computing Language", None, &[SetupRaces]),
            ("NVIDIA CUDA", Some("580.159.04"), nvidia),
            ("NVIDIA CUDA", None, nvidia),
            ("rusticl", Some("25.0.7-2+deb13u1"), &[HidesCards(Hides::UnlessNamed)]),
            ("rusticl", None, &[HidesCards(Hides::UnlessNamed)]),
            ("rusticl", Some("22.2.5"), &[]),
            (
                "AMD Accelerated Parallel Processing",
                Some("2545.0 (HSA1.1,LC)"),
                &[HidesCards(Hides::PreVega)],
            ),
            ("Clover", Some("21.3.2"), &[HidesCards(Hides::All)]),
            ("Clover", None, &[HidesCards(Hides::All)]),
            ("Clover", Some("25.2.0"), &[]),
            ("Intel(R) OpenCL Graphics", None, &[]),
        ];
        for (platform, version, expected) in cases {
            let quirks = Quirks::of(platform, version);
            let found: Vec<Quirk> = quirks.all().map(|(quirk, _)| quirk).collect();
            assert_eq!(found, expected, "{platform} {version:?}");
            assert!(expected.iter().all(|quirk| quirks.has(*quirk)), "{platform} {version:?}");
            let hides = expected.iter().find_map(|quirk| match quirk {
                HidesCards(why) => Some(*why),
                _ => None,
            });
            assert_eq!(quirks.hides(), hides, "{platform} {version:?}");
        }
    }

    #[test]
    fn a_driver_that_crashes_over_them_gets_no_sources_without_kernels() {
        let fragile = Quirks::of("NVIDIA CUDA", Some("580.159.04"));
        let robust = Quirks::of("rusticl", Some("25.0.7-2+deb13u1"));
        for (source, refused) in [
            ("", true),
            ("DEVICE float f(float x) { return x; }", true),
            ("KERNEL void f(void) {}", false),
            ("__kernel void f(void) {}", false),
        ] {
            assert_eq!(fragile.complaint(source).is_some(), refused, "{source:?}");
            assert_eq!(robust.complaint(source), None, "{source:?}");
        }
    }
}
