//! The known quirks of single drivers, in one table. Code asks the table for an effect, never for a
//! driver's name.

use crate::versions::{RADV_DAMAGES_MEMORY, Versions};
use std::borrow::Cow;

/// An effect of a driver that code, or a person, must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quirk {
    /// Programs with many pipelines were seen to crash; people are told.
    DamagesMemory,
    /// Long submissions end in a reset of the card. The backend keeps them short for every driver.
    ShortPatience,
}

/// One quirk of one driver.
#[derive(Debug)]
struct Row {
    /// The driver's own name, in small letters.
    driver: &'static str,
    /// The driver's versions that have the quirk.
    versions: Versions,
    quirk: Quirk,
    /// The reason: the behaviour of the driver.
    reason: &'static str,
    /// What a person can do, if the quirk concerns people.
    advice: Option<&'static str>,
}

/// Every known quirk. A row whose versions have no end is about a driver without a known fix.
const ROWS: &[Row] = &[
    Row {
        driver: "radv",
        versions: RADV_DAMAGES_MEMORY.versions,
        quirk: Quirk::DamagesMemory,
        reason: RADV_DAMAGES_MEMORY.what,
        advice: Some(RADV_DAMAGES_MEMORY.fix),
    },
    Row {
        driver: "radv",
        versions: Versions::ALL,
        quirk: Quirk::ShortPatience,
        reason: "the kernel driver amdgpu resets the card after some ten seconds of one submission \
                 (https://github.com/ggml-org/llama.cpp/issues/28808)",
        advice: None,
    },
];

/// The quirks of one driver.
#[derive(Debug, Clone, Default)]
pub(super) struct Quirks(Vec<&'static Row>);

impl Quirks {
    /// The quirks of a driver that gives itself this name and these details, of which the first
    /// number begins its version. An unknown version counts as any version.
    pub(super) fn of(driver: &str, details: &str) -> Self {
        let driver = driver.to_ascii_lowercase();
        let version = details.find(|c: char| c.is_ascii_digit()).map_or("", |at| &details[at..]);
        let concerned =
            |row: &&Row| driver.contains(row.driver) && row.versions.has(version) != Some(false);
        Self(ROWS.iter().filter(concerned).collect())
    }

    /// All quirks with their reasons.
    pub(super) fn all(&self) -> impl Iterator<Item = (Quirk, &'static str)> {
        self.0.iter().map(|row| (row.quirk, row.reason))
    }

    /// What a person should know about the driver, each with the thing to do.
    pub(super) fn warnings(&self) -> impl Iterator<Item = (Cow<'static, str>, &'static str)> {
        self.0.iter().filter_map(|row| Some((row.reason.into(), row.advice?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_says_whom_it_is_about_and_why() {
        for row in ROWS {
            let Row { driver, versions, reason, .. } = row;
            assert!(!driver.is_empty() && *driver == driver.to_ascii_lowercase(), "{row:?}");
            assert!(versions.below.is_none_or(|below| versions.from < below), "{row:?}");
            assert!(reason.contains("https://") && !reason.ends_with('.'), "{row:?}");
        }
    }

    #[test]
    fn drivers_are_known_by_what_they_tell() {
        use Quirk::{DamagesMemory, ShortPatience};
        let cases: [(&str, &str, &[Quirk]); 7] = [
            ("radv", "Mesa 25.0.6", &[ShortPatience]),
            ("radv", "Mesa 25.0.7-2+deb13u1", &[DamagesMemory, ShortPatience]),
            ("radv", "Mesa 26.0.4 (git-1)", &[DamagesMemory, ShortPatience]),
            ("radv", "Mesa 26.0.5", &[ShortPatience]),
            ("radv", "", &[DamagesMemory, ShortPatience]),
            ("llvmpipe", "Mesa 25.0.7 (LLVM 19.1.7)", &[]),
            ("NVIDIA", "580.159.04", &[]),
        ];
        for (driver, details, expected) in cases {
            let quirks = Quirks::of(driver, details);
            let found: Vec<Quirk> = quirks.all().map(|(quirk, _)| quirk).collect();
            assert_eq!(found, expected, "{driver} {details}");
            let told = usize::from(expected.contains(&DamagesMemory));
            assert_eq!(quirks.warnings().count(), told, "{driver} {details}");
        }
    }
}
