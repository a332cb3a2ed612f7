//! Counts instructions in clang's assembly for AMD processors, and finds the loop with a kernel's
//! arithmetic.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Figures of one kernel's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Code {
    /// The number of function calls; with any call, the counted registers are incomplete.
    pub(super) calls: usize,
    /// The share of the multiply-add rate that the hottest loop reaches if each instruction takes
    /// one turn: a lane's operations, over two for each instruction.
    pub(super) mac_share: f64,
}

/// Instructions, and the floating-point operations a lane does in them.
#[derive(Debug, Default, Clone, Copy)]
struct Count {
    instructions: u32,
    operations: u32,
}

/// A loop by its header; `None` is code outside loops.
type Loop<'a> = Option<&'a str>;

/// Reads the function `kernel`.
pub(super) fn read(assembly: &str, kernel: &str) -> Code {
    let label = format!("{kernel}:");
    let own = assembly.lines().skip_while(|line| !line.starts_with(&label)).skip(1);
    let own: Vec<&str> = own.take_while(|line| !line.starts_with(".Lfunc_end")).collect();
    let calls = own.iter().filter(|line| line.contains("s_swappc")).count();
    let (mut counts, parents) = loops(&own);
    // Code outside loops counts only where no loop does arithmetic.
    let straight = counts.remove(&None).unwrap_or_default();
    let hottest = counts.iter().max_by_key(|(_, count)| count.operations);
    let count = match hottest {
        Some((&Some(header), count)) if count.operations > 0 => {
            // Inner loops fetch the factors for this loop; they run once or a few times.
            let inner = counts.iter().filter(|(other, _)| {
                other.is_some_and(|other| {
                    parents.get(other).is_some_and(|parents| parents.contains(&header))
                })
            });
            let inner: u32 = inner.map(|(_, count)| count.instructions).sum();
            Count { instructions: count.instructions + inner, ..*count }
        }
        _ => straight,
    };
    let share = f64::from(count.operations) / f64::from(2 * count.instructions.max(1));
    Code { calls, mac_share: share }
}

/// Counts by innermost loop, and the loops around each loop, from the comments that clang puts to
/// each block.
fn loops<'a>(lines: &[&'a str]) -> (BTreeMap<Loop<'a>, Count>, BTreeMap<&'a str, Vec<&'a str>>) {
    let mut counts: BTreeMap<Loop, Count> = BTreeMap::new();
    let mut parents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut within: Loop = None;
    let mut block = "";
    for line in lines {
        if let Some(label) = line.strip_prefix(".L").and_then(|rest| rest.split(':').next()) {
            block = label;
            within = None;
        } else if line.starts_with("; %bb.") {
            within = None;
        }
        if let Some(mnemonic) = mnemonic(line) {
            let count = counts.entry(within).or_default();
            count.instructions += 1;
            count.operations += operations(mnemonic);
        } else if let Some(header) = word_after(line, "in Loop: Header=") {
            within = Some(header);
        } else if let Some(parent) = word_after(line, "Parent Loop ") {
            parents.entry(block).or_default().push(parent);
        } else if line.contains("Loop Header: Depth=") {
            within = Some(block);
        }
    }
    (counts, parents)
}

/// The instruction of a line, where there is one.
fn mnemonic(line: &str) -> Option<&str> {
    let word = line.strip_prefix('\t')?.split_whitespace().next()?;
    word.starts_with(|first: char| first.is_ascii_lowercase()).then_some(word)
}

fn word_after<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.split_once(mark)?.1.split_whitespace().next()
}

/// Operations of a lane: two in a multiply-add, one in any other arithmetic on floats or on the
/// integers of quantised kernels.
fn operations(mnemonic: &str) -> u32 {
    const FUSED: &[&str] = &["v_mac_", "v_mad_", "v_fma_", "v_fmac_"];
    const PLAIN: &[&str] = &["v_add_f", "v_sub_f", "v_subrev_f", "v_mul_f", "v_max_f", "v_min_f"];
    if FUSED.iter().any(|start| mnemonic.starts_with(start)) {
        2
    } else if PLAIN.iter().any(|start| mnemonic.starts_with(start)) {
        1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from a tiled product for gfx803. The loop over tiles has its end before its
    /// header, and contains the loop that fetches a tile.
    const TILED: &str = "\
other:
\ts_swappc_b64 s[30:31], s[4:5]
.Lfunc_end0:
gemm:                                   ; @gemm
; %bb.0:
\ts_load_dwordx2 s[12:13], s[4:5], 0x1c
\tv_add_f32_e32 v0, v0, v0
.LBB1_5:                                ;   in Loop: Header=BB1_6 Depth=1
\tds_read_b128 v[4:7], v17
\tv_fma_f32 v4, v5, v18, v29
\tv_mac_f32_e32 v5, v5, v19
\tv_fma_f32 v5, v5, v19, v30
\ts_cbranch_scc1 .LBB1_9
.LBB1_6:                                ; =>This Loop Header: Depth=1
                                        ;     Child Loop BB1_8 Depth 2
\ts_cbranch_execz .LBB1_5
; %bb.7:                                ;   in Loop: Header=BB1_6 Depth=1
\ts_mov_b64 s[6:7], 0
.LBB1_8:                                ;   Parent Loop BB1_6 Depth=1
                                        ; =>  This Inner Loop Header: Depth=2
\tflat_load_dword v19, v[18:19]
\ts_cbranch_execnz .LBB1_8
\ts_branch .LBB1_5
.LBB1_9:
\ts_endpgm
.Lfunc_end1:
";

    #[test]
    fn the_hottest_loop_counts_with_what_it_holds() {
        // Three multiply-adds among seven instructions of the loop and three of the one inside.
        let code = read(TILED, "gemm");
        assert_eq!(code, Code { calls: 0, mac_share: 3. / 10. });
        assert_eq!(read(TILED, "other").calls, 1);
    }

    #[test]
    fn without_loops_all_instructions_count() {
        let text = "k:\n\tv_mul_f32_e32 v0, v0, v1\n\tv_add_u32_e32 v1, vcc, v0, v1\n\ts_endpgm\n\t.section x\n";
        assert_eq!(read(text, "k").mac_share, 1. / 6.);
        assert_eq!(read("k:\n\ts_endpgm\n", "k").mac_share, 0.);
    }
}
