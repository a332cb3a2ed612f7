//! What an instruction of Polaris takes from each unit of a compute unit.
//!
//! Four SIMDs share one compute unit. A SIMD gives a wave a turn of four cycles, and most arithmetic takes one. The
//! classes, and that `v_fma_f32` takes four turns here, are those of Mesa's own estimate
//! (`src/amd/compiler/aco_statistics.cpp`, `aco_opcodes.py`). Local memory moves 128 B a cycle and the first cache 64 B
//! a cycle, as AMD says of Graphics Core Next.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Mul};

const LANES: f64 = 64.;
const LDS_BYTES_A_CYCLE: f64 = 128.;
const CACHE_BYTES_A_CYCLE: f64 = 64.;

/// What code takes, for one wave.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Work {
    pub(super) instructions: f64,
    /// Turns of the SIMD.
    pub(super) vector_turns: f64,
    /// Turns of scalar instructions, branches and waits.
    pub(super) scalar_turns: f64,
    /// Cycles of the local memory, which four SIMDs share.
    pub(super) lds_cycles: f64,
    /// Cycles of the path to memory, which four SIMDs share.
    pub(super) memory_cycles: f64,
    /// Multiply-adds of a lane.
    pub(super) macs: f64,
    /// Operations of a lane, two for a multiply-add.
    pub(super) operations: f64,
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            vector_turns: self.vector_turns + other.vector_turns,
            scalar_turns: self.scalar_turns + other.scalar_turns,
            lds_cycles: self.lds_cycles + other.lds_cycles,
            memory_cycles: self.memory_cycles + other.memory_cycles,
            macs: self.macs + other.macs,
            operations: self.operations + other.operations,
        }
    }
}

impl Mul<f64> for Work {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self {
            instructions: self.instructions * times,
            vector_turns: self.vector_turns * times,
            scalar_turns: self.scalar_turns * times,
            lds_cycles: self.lds_cycles * times,
            memory_cycles: self.memory_cycles * times,
            macs: self.macs * times,
            operations: self.operations * times,
        }
    }
}

impl Work {
    /// The work of one instruction.
    pub(super) fn of(mnemonic: &str) -> Self {
        let one = Self { instructions: 1., ..Self::default() };
        if mnemonic.starts_with("v_") {
            let operations = operations(mnemonic);
            let macs = if operations == 2. { 1. } else { 0. };
            return Self { vector_turns: turns(mnemonic), macs, operations, ..one };
        }
        let bytes = LANES * bytes(mnemonic);
        if mnemonic.starts_with("ds_") {
            return Self { lds_cycles: bytes / LDS_BYTES_A_CYCLE, ..one };
        }
        let memory = ["flat_", "global_", "buffer_", "scratch_"];
        if memory.iter().any(|start| mnemonic.starts_with(start)) {
            return Self { memory_cycles: bytes / CACHE_BYTES_A_CYCLE, ..one };
        }
        Self { scalar_turns: 1., ..one }
    }
}

/// Turns of a vector instruction.
fn turns(mnemonic: &str) -> f64 {
    const QUARTER: &[&str] = &[
        "v_rcp_",
        "v_rsq_",
        "v_sqrt_",
        "v_exp_",
        "v_log_",
        "v_sin_",
        "v_cos_",
        "v_mul_lo_",
        "v_mul_hi_u32",
        "v_mul_hi_i32",
        "v_fma_f32",
    ];
    const HALF: &[&str] =
        &["v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64", "v_mad_u64_u32", "v_mad_i64_i32"];
    let any = |of: &[&str]| of.iter().any(|start| mnemonic.starts_with(start));
    match () {
        () if mnemonic.contains("_f64") => 16.,
        () if any(QUARTER) => 4.,
        () if any(HALF) => 2.,
        () => 1.,
    }
}

/// Bytes of a lane that an instruction moves.
fn bytes(mnemonic: &str) -> f64 {
    let two = if mnemonic.contains("read2") || mnemonic.contains("write2") { 2. } else { 1. };
    let ends = |of: &[&str]| of.iter().any(|end| mnemonic.ends_with(end));
    let one = match () {
        () if ends(&["_b128", "x4"]) => 16.,
        () if ends(&["_b96", "x3"]) => 12.,
        () if ends(&["_b64", "x2"]) => 8.,
        () => 4.,
    };
    one * two
}

/// Operations of a lane: two in a multiply-add, one in any other arithmetic on floats or on the integers of quantised
/// kernels.
fn operations(mnemonic: &str) -> f64 {
    const FUSED: &[&str] = &["v_mac_f", "v_mad_f", "v_fma_f", "v_fmac_f", "v_mad_i32_i24"];
    const PLAIN: &[&str] = &["v_add_f", "v_sub_f", "v_subrev_f", "v_mul_f", "v_max_f", "v_min_f"];
    if FUSED.iter().any(|start| mnemonic.starts_with(start)) {
        2.
    } else if PLAIN.iter().any(|start| mnemonic.starts_with(start)) {
        1.
    } else {
        0.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_takes_its_unit() {
        let of = |mnemonic| {
            let work = Work::of(mnemonic);
            (work.vector_turns, work.scalar_turns, work.lds_cycles, work.memory_cycles)
        };
        let cases = [
            ("v_mac_f32_e32", (1., 0., 0., 0.)),
            ("v_fma_f32", (4., 0., 0., 0.)),
            ("v_mul_lo_u32", (4., 0., 0., 0.)),
            ("v_rcp_f32_e32", (4., 0., 0., 0.)),
            ("v_lshlrev_b64", (2., 0., 0., 0.)),
            ("v_add_f64", (16., 0., 0., 0.)),
            ("s_waitcnt", (0., 1., 0., 0.)),
            ("s_load_dwordx4", (0., 1., 0., 0.)),
            ("ds_read_b32", (0., 0., 2., 0.)),
            ("ds_read2_b32", (0., 0., 4., 0.)),
            ("ds_read_b128", (0., 0., 8., 0.)),
            ("ds_read2_b64", (0., 0., 8., 0.)),
            ("ds_write2st64_b32", (0., 0., 4., 0.)),
            ("flat_load_dword", (0., 0., 0., 4.)),
            ("buffer_load_dwordx4", (0., 0., 0., 16.)),
        ];
        for (mnemonic, wanted) in cases {
            assert_eq!(of(mnemonic), wanted, "{mnemonic}");
        }
    }

    #[test]
    fn multiply_adds_are_two_operations() {
        let of = |mnemonic| (Work::of(mnemonic).macs, Work::of(mnemonic).operations);
        assert_eq!(of("v_mac_f32_e32"), (1., 2.));
        assert_eq!(of("v_max_f32_e32"), (0., 1.));
        assert_eq!(of("v_mad_u32_u24"), (0., 0.), "which is arithmetic on addresses");
    }
}
