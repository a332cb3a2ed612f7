//! Parses clang's remarks on a kernel's resources, and computes how many waves a processor can
//! hold.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Lanes of a wave.
const LANES: u32 = 64;
/// SIMDs that share a compute unit's local memory, and its bytes.
const SIMDS: u32 = 4;
const LDS_BYTES: u32 = 64 << 10;
/// Local memory is given out in pieces of this size.
const LDS_PIECE_BYTES: u32 = 512;
/// The most vector registers of a kernel, and the waves that a SIMD then holds.
const WAVES: &[(u32, u32)] =
    &[(24, 10), (28, 9), (32, 8), (36, 7), (40, 6), (48, 5), (64, 4), (84, 3), (128, 2)];

/// The resources of one kernel on one chip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Resources {
    pub(super) vgprs: u32,
    pub(super) sgprs: u32,
    /// Local memory of a work-group.
    pub(super) lds_bytes: u32,
    /// Private memory of a work-item that is no register.
    pub(super) scratch_bytes: u32,
    pub(super) vgpr_spills: u32,
    pub(super) sgpr_spills: u32,
    /// Waves of a SIMD as the compiler counts them, scalar registers included.
    pub(super) occupancy: u32,
}

impl Resources {
    /// Reads the remarks about the function `kernel`.
    pub(super) fn parse(remarks: &str, kernel: &str) -> Result<Self> {
        let mut values = remarks.lines().filter_map(value);
        values
            .find(|entry| *entry == ("Function Name", kernel))
            .with_context(|| format!("no remark about {kernel:?}"))?;
        // A function's remarks follow each other and begin with its name.
        let own: Vec<_> = values.take_while(|(name, _)| *name != "Function Name").collect();
        let read = |name: &str| {
            let Some((_, value)) = own.iter().find(|(found, _)| *found == name) else {
                bail!("no remark on {name:?} of {kernel:?}");
            };
            value.parse().with_context(|| format!("{name} is {value:?}, expected a number"))
        };
        Ok(Self {
            vgprs: read("VGPRs")?,
            sgprs: read("SGPRs")?,
            lds_bytes: read("LDS Size [bytes/block]")?,
            scratch_bytes: read("ScratchSize [bytes/lane]")?,
            vgpr_spills: read("VGPRs Spill")?,
            sgpr_spills: read("SGPRs Spill")?,
            occupancy: read("Occupancy [waves/SIMD]")?,
        })
    }

    /// The waves that a SIMD holds for work-groups of `group` work-items: the least of the limits
    /// by vector registers, by local memory and by the compiler's count.
    pub(super) fn waves(&self, group: u32) -> u32 {
        let fits = WAVES.iter().find(|(vgprs, _)| self.vgprs <= *vgprs);
        let by_registers = fits.map_or(1, |(_, waves)| *waves);
        let lds = self.lds_bytes.next_multiple_of(LDS_PIECE_BYTES);
        let by_lds = match LDS_BYTES.checked_div(lds) {
            Some(groups) => groups * group.div_ceil(LANES) / SIMDS,
            None => u32::MAX,
        };
        by_registers.min(by_lds).min(self.occupancy)
    }
}

/// `NAME` and `VALUE` of `FILE:LINE:COLUMN: remark:  NAME: VALUE [-Rpass-analysis=…]`.
fn value(line: &str) -> Option<(&str, &str)> {
    let (_, remark) = line.split_once(" remark: ")?;
    let (remark, _) = remark.split_once(" [-Rpass-analysis=kernel-resource-usage]")?;
    let (name, value) = remark.split_once(": ")?;
    Some((name.trim(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of clang 19.1.7 for gfx803: two kernels in a file; the second spills.
    const REMARKS: &str = include_str!("../../fixtures/remarks.txt");

    fn plain() -> Resources {
        Resources::parse(REMARKS, "gemm").unwrap()
    }

    #[test]
    fn remarks_are_read_by_function() {
        let wanted = Resources {
            vgprs: 35,
            sgprs: 31,
            lds_bytes: 4096,
            scratch_bytes: 0,
            vgpr_spills: 0,
            sgpr_spills: 0,
            occupancy: 7,
        };
        assert_eq!(plain(), wanted);
        let spills = Resources::parse(REMARKS, "spills").unwrap();
        let found = (spills.vgprs, spills.scratch_bytes, spills.vgpr_spills, spills.occupancy);
        assert_eq!(found, (256, 1396, 148, 1));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Resources::parse(REMARKS, "gem").unwrap_err().to_string();
        assert_eq!(error, "no remark about \"gem\"");
        let cut = REMARKS.split_inclusive('\n').take(4).collect::<String>();
        let error = Resources::parse(&cut, "gemm").unwrap_err().to_string();
        assert!(error.contains("no remark on"), "{error}");
    }

    #[test]
    fn waves_are_the_least_of_all_limits() {
        let cases = [
            // vgprs, LDS bytes, compiler's count, work-group, waves
            (24, 0, 10, 256, 10),
            (25, 0, 10, 256, 9),
            (84, 0, 10, 256, 3),
            (85, 0, 10, 256, 2),
            (129, 0, 10, 256, 1),
            (24, 0, 6, 256, 6),
            (24, 32 << 10, 10, 256, 2),
            (24, 8 << 10, 10, 256, 8),
            (24, 8 << 10, 10, 64, 2),
            // A piece more than a quarter of it leaves room for three groups.
            (24, (16 << 10) + 4, 10, 256, 3),
        ];
        for (vgprs, lds_bytes, occupancy, group, wanted) in cases {
            let case = Resources { vgprs, lds_bytes, occupancy, ..plain() };
            assert_eq!(case.waves(group), wanted, "{case:?} in groups of {group}");
        }
    }
}
