//! The chip and the product of a PCI device id. One id serves several products, which differ by
//! revision.

use serde::Serialize;
use std::fmt;

/// Families of chips that the platform treats differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AmdChip {
    /// GCN 4, up to 36 compute units: RX 470 to RX 590.
    Polaris10,
    /// GCN 4, up to 16 compute units: RX 460 and RX 560.
    Polaris11,
    /// GCN 4, up to 10 compute units: RX 550 and 540.
    Polaris12,
    /// Polaris beside an Intel processor.
    VegaM,
    /// GCN 3 cards: Tonga and Fiji.
    Gcn3,
    /// GCN 1 and 2 cards: HD 7000 to R9 390.
    Gcn2,
    /// GCN 5 cards: RX Vega, Radeon VII.
    Vega,
    /// The graphics part of a processor.
    Apu,
    /// RDNA and CDNA cards, and all chips newer than this table.
    Other,
}

impl AmdChip {
    /// Whether this is a chip of the Polaris family (gfx803).
    #[must_use]
    pub fn is_polaris(self) -> bool {
        matches!(self, Self::Polaris10 | Self::Polaris11 | Self::Polaris12 | Self::VegaM)
    }

    /// Whether AMD's own OpenCL drivers count this chip among those before Vega.
    pub(crate) fn is_before_vega(self) -> bool {
        self.is_polaris() || matches!(self, Self::Gcn2 | Self::Gcn3)
    }
}

impl fmt::Display for AmdChip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Polaris10 => "Polaris 10/20/30",
            Self::Polaris11 => "Polaris 11/21",
            Self::Polaris12 => "Polaris 12",
            Self::VegaM => "Vega M",
            Self::Gcn3 => "GCN 3",
            Self::Gcn2 => "GCN 1/2",
            Self::Vega => "Vega",
            Self::Apu => "APU",
            Self::Other => "newer than Vega",
        })
    }
}

/// One line of the table: device id, revision (`None`: any other), chip, product.
type Line = (u16, Option<u8>, AmdChip, &'static str);

/// Products by device id and revision; the first line that fits counts. Source of the names:
/// the public `amdgpu.ids` list of libdrm.
const TABLE: &[Line] = {
    use AmdChip::{Apu, Gcn2, Gcn3, Polaris10, Polaris11, Polaris12, Vega, VegaM};
    &[
        (0x67df, Some(0xe7), Polaris10, "Radeon RX 580"),
        (0x67df, Some(0xc1), Polaris10, "Radeon RX 580"),
        (0x67df, Some(0xc3), Polaris10, "Radeon RX 580"),
        (0x67df, Some(0xe1), Polaris10, "Radeon RX 590"),
        (0x67df, Some(0xef), Polaris10, "Radeon RX 570"),
        (0x67df, Some(0xc2), Polaris10, "Radeon RX 570"),
        (0x67df, Some(0xc6), Polaris10, "Radeon RX 570"),
        (0x67df, Some(0xc7), Polaris10, "Radeon RX 480"),
        (0x67df, Some(0xc4), Polaris10, "Radeon RX 480"),
        (0x67df, Some(0xcf), Polaris10, "Radeon RX 470"),
        (0x67df, Some(0xc5), Polaris10, "Radeon RX 470"),
        (0x67df, Some(0xd7), Polaris10, "Radeon RX 470"),
        (0x67df, Some(0xe0), Polaris10, "Radeon RX 470"),
        (0x67df, Some(0xff), Polaris10, "Radeon RX 470"),
        (0x67df, Some(0xc0), Polaris10, "Radeon Pro 580X"),
        (0x67df, Some(0xeb), Polaris10, "Radeon Pro 580X"),
        (0x67df, None, Polaris10, "Radeon RX 470/480/570/580/590"),
        (0x6fdf, Some(0xef), Polaris10, "Radeon RX 580 2048SP"),
        (0x6fdf, Some(0xe7), Polaris10, "Radeon RX 590 GME"),
        (0x6fdf, None, Polaris10, "Radeon RX 580 2048SP / 590 GME"),
        (0x67c0, None, Polaris10, "Radeon Pro WX 7100"),
        (0x67c2, None, Polaris10, "Radeon Pro V7300X"),
        (0x67c4, None, Polaris10, "Radeon Pro WX 7100"),
        (0x67c7, None, Polaris10, "Radeon Pro WX 5100"),
        (0x67d0, None, Polaris10, "Radeon Pro V7300X"),
        (0x67ef, Some(0xe0), Polaris11, "Radeon RX 560"),
        (0x67ef, Some(0xe5), Polaris11, "Radeon RX 560"),
        (0x67ef, Some(0xe7), Polaris11, "Radeon RX 560"),
        (0x67ef, Some(0xe2), Polaris11, "Radeon RX 560X"),
        (0x67ef, Some(0xc1), Polaris11, "Radeon RX 460"),
        (0x67ef, Some(0xc5), Polaris11, "Radeon RX 460"),
        (0x67ef, Some(0xcf), Polaris11, "Radeon RX 460"),
        (0x67ef, Some(0xff), Polaris11, "Radeon RX 460"),
        (0x67ef, None, Polaris11, "Radeon RX 460/560"),
        (0x67ff, Some(0xc1), Polaris11, "Radeon RX 560"),
        (0x67ff, Some(0xcf), Polaris11, "Radeon RX 560"),
        (0x67ff, Some(0xef), Polaris11, "Radeon RX 560"),
        (0x67ff, Some(0xff), Polaris11, "Radeon RX 550"),
        (0x67ff, None, Polaris11, "Radeon RX 550/560"),
        (0x67e0, None, Polaris11, "Radeon Pro WX series"),
        (0x67e3, None, Polaris11, "Radeon Pro WX 4100"),
        (0x67e8, None, Polaris11, "Radeon Pro WX series"),
        (0x67eb, None, Polaris11, "Radeon Pro V5300X"),
        (0x699f, Some(0xc7), Polaris12, "Radeon RX 550"),
        (0x699f, Some(0xc1), Polaris12, "Radeon 540"),
        (0x699f, Some(0xc9), Polaris12, "Radeon 540"),
        (0x699f, None, Polaris12, "Radeon RX 550/540"),
        (0x6987, Some(0xc1), Polaris12, "Radeon RX 640"),
        (0x6987, None, Polaris12, "Radeon 540/550X"),
        (0x6980, None, Polaris12, "Radeon Pro WX 3100"),
        (0x6985, None, Polaris12, "Radeon Pro WX 3100"),
        (0x6981, None, Polaris12, "Radeon Pro WX 3200"),
        (0x6986, None, Polaris12, "Radeon Pro WX 2100"),
        (0x6995, None, Polaris12, "Radeon Pro WX 2100"),
        (0x6997, None, Polaris12, "Radeon Pro WX 2100"),
        (0x694c, None, VegaM, "Radeon RX Vega M GH"),
        (0x694e, None, VegaM, "Radeon RX Vega M GL"),
        (0x687f, None, Vega, "Radeon RX Vega"),
        (0x6860, None, Vega, "Radeon Instinct MI25"),
        (0x6861, None, Vega, "Radeon Pro WX 9100"),
        (0x6862, None, Vega, "Radeon Pro SSG"),
        (0x6863, None, Vega, "Radeon Vega Frontier Edition"),
        (0x6864, None, Vega, "Radeon Pro V340"),
        (0x6868, None, Vega, "Radeon Pro WX 8200"),
        (0x66a1, Some(0x06), Vega, "Radeon Pro VII"),
        (0x66a1, None, Vega, "Radeon Instinct MI50/MI60"),
        (0x66af, None, Vega, "Radeon VII"),
        (0x7300, None, Gcn3, "Radeon R9 Fury"),
        (0x6938, None, Gcn3, "Radeon R9 285/380"),
        (0x6939, None, Gcn3, "Radeon R9 285/380"),
        (0x692b, None, Gcn3, "FirePro W7100"),
        (0x6929, None, Gcn3, "FirePro S7150"),
        (0x67a0, None, Gcn2, "FirePro W9100"),
        (0x67a1, None, Gcn2, "FirePro W8100"),
        (0x67b0, Some(0x80), Gcn2, "Radeon R9 390"),
        (0x67b0, None, Gcn2, "Radeon R9 290"),
        (0x67b1, Some(0x80), Gcn2, "Radeon R9 390"),
        (0x67b1, None, Gcn2, "Radeon R9 290"),
        (0x6798, None, Gcn2, "Radeon HD 7900"),
        (0x679a, None, Gcn2, "Radeon HD 7900"),
        (0x6810, None, Gcn2, "Radeon R9 270"),
        (0x6818, None, Gcn2, "Radeon HD 7800"),
        (0x6819, None, Gcn2, "Radeon HD 7800"),
        (0x130f, None, Apu, "Radeon R7 Graphics"),
        (0x1313, None, Apu, "Radeon R7 Graphics"),
        (0x9874, None, Apu, "Radeon R5/R6/R7 Graphics"),
        (0x98e4, None, Apu, "Radeon R2/R4/R5 Graphics"),
        (0x15d8, None, Apu, "Radeon Vega Graphics"),
        (0x15dd, None, Apu, "Radeon Vega Graphics"),
        (0x1636, None, Apu, "Radeon Graphics (Renoir)"),
        (0x1638, None, Apu, "Radeon Graphics (Cezanne)"),
        (0x163f, None, Apu, "AMD Custom GPU 0405"),
        (0x164e, None, Apu, "Radeon 610M"),
        (0x1681, None, Apu, "Radeon 660M/680M"),
        (0x15bf, None, Apu, "Radeon 740M/760M/780M"),
    ]
};

/// The chip and the product's name of a device id and a revision.
pub(crate) fn identify(device: u16, revision: u8) -> (AmdChip, String) {
    let fits = |line: &&Line| line.0 == device && line.1.is_none_or(|it| it == revision);
    match TABLE.iter().find(fits) {
        Some((_, _, chip, name)) => (*chip, format!("AMD {name}")),
        None => (AmdChip::Other, format!("AMD GPU 1002:{device:04x} (revision {revision:02x})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_and_revision_name_the_product() {
        use AmdChip::{Apu, Other, Polaris10, Polaris11, Polaris12, Vega, VegaM};
        for (device, revision, chip, name) in [
            (0x67df, 0xe7, Polaris10, "AMD Radeon RX 580"),
            (0x67df, 0xe1, Polaris10, "AMD Radeon RX 590"),
            (0x67df, 0xef, Polaris10, "AMD Radeon RX 570"),
            (0x67df, 0xc7, Polaris10, "AMD Radeon RX 480"),
            (0x67df, 0xcf, Polaris10, "AMD Radeon RX 470"),
            (0x67df, 0x99, Polaris10, "AMD Radeon RX 470/480/570/580/590"),
            (0x6fdf, 0xef, Polaris10, "AMD Radeon RX 580 2048SP"),
            (0x67ff, 0xcf, Polaris11, "AMD Radeon RX 560"),
            (0x67ff, 0xff, Polaris11, "AMD Radeon RX 550"),
            (0x67e3, 0x00, Polaris11, "AMD Radeon Pro WX 4100"),
            (0x699f, 0xc7, Polaris12, "AMD Radeon RX 550"),
            (0x694c, 0xc0, VegaM, "AMD Radeon RX Vega M GH"),
            (0x687f, 0xc1, Vega, "AMD Radeon RX Vega"),
            (0x15d8, 0xc8, Apu, "AMD Radeon Vega Graphics"),
            (0xffff, 0x01, Other, "AMD GPU 1002:ffff (revision 01)"),
        ] {
            assert_eq!(identify(device, revision), (chip, name.to_owned()));
        }
    }

    #[test]
    fn no_line_is_hidden_by_an_earlier_one() {
        for (at, line) in TABLE.iter().enumerate() {
            let hidden = |earlier: &Line| {
                earlier.0 == line.0 && (earlier.1.is_none() || earlier.1 == line.1)
            };
            assert!(!TABLE[..at].iter().any(hidden), "{line:?}");
        }
    }
}
