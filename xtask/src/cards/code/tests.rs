//! Loops and their instructions, of shortened listings.

use super::*;

/// Shortened from a tiled product by Mesa 25.0.7 for Polaris 10: a loop over tiles that holds one over the rows of a
/// tile, and the loop that fetches a tile.
const TILED: &str = "\
Shader main disassembly:
 BB0:
\ts_mov_b32 s0, 0                                             ; be800080
\tv_mul_lo_u32 v2, v2, s18                                    ; d2850002 00002502
BB1:
\ts_cmp_ge_u32 s0, s25                                        ; bf091900
\ts_cbranch_scc1 BB9                                          ; bf850055
BB2:
\tflat_load_dword v3, v[4:5]                                  ; dc500000 03000004
\ts_cbranch_execz BB2                                         ; bf88000a
BB3:
\ts_mov_b32 s1, 0                                             ; be810080
BB4:
\ts_cmp_ge_u32 s1, 32                                         ; bf09a001
\ts_cbranch_scc1 BB6                                          ; bf850055
BB5:
\tds_read_b32 v8, v1 offset:4                                 ; d86c0004 08000001
\tds_read_b32 v9, v1 offset:8                                 ; d86c0008 09000001
\tds_read_b128 v[60:63], v81 offset:16                        ; d9fe0010 3c000051
\tv_mac_f32_e32 v5, v5, v8                                    ; 2c0a1105
\tv_mac_f32_e32 v6, v5, v9                                    ; 2c0c1305
\ts_add_u32 s1, s1, 2                                         ; 80018201
\ts_branch BB4                                                ; bf82fff8
BB6:
\ts_add_u32 s0, s0, 4                                         ; 80008400
\ts_branch BB1                                                ; bf82fff0
BB9:
\tflat_store_dword v[4:5], v24                                ; dc700000 00001804
\ts_endpgm                                                    ; bf810000
";

#[test]
fn the_hottest_loop_bears_its_share_of_those_around() {
    let (blocks, labels) = blocks(TILED);
    let trips: Vec<f64> = loops(&blocks, &labels).iter().map(|of| of.trips).collect();
    assert_eq!(trips, [TRIPS, TRIPS, 16.], "a loop has not the counter of one within it");
    let code = read(TILED);
    assert_eq!(code.instructions, 20);
    // Three branches, compares and additions of its own; of the loop around it five scalars and eight trips of a fetch
    // with its branch, shared by the 16 trips from 0 to 32 by 2.
    let wanted = Work {
        instructions: 9. + (5. + 8. * 2.) / 16.,
        vector_turns: 2.,
        scalar_turns: 4. + (5. + 8.) / 16.,
        lds_cycles: 2. + 2. + 8.,
        memory_cycles: 8. * 4. / 16.,
        macs: 2.,
        operations: 4.,
    };
    assert_eq!(code.trip, wanted);
    assert_eq!(code.once.vector_turns, 4., "and a multiplication outside");
    assert_eq!((code.once.memory_cycles, code.once.scalar_turns), (4., 2.));
    assert_eq!(code.ceiling(), Some(2. / 12.), "local memory is the busiest");
}

#[test]
fn neighbours_are_reads_from_one_address_register() {
    let of = |lines: &[&str]| reads(lines);
    let near = ["ds_read_b32 v8, v1 offset:4", "ds_read_b32 v9, v1 offset:8"];
    assert_eq!(of(&near), ([2, 0, 0], 2));
    assert_eq!(of(&["ds_read2_b32 v[4:5], v1 offset0:9 offset1:10"]), ([1, 0, 0], 2));
    assert_eq!(of(&["ds_read2_b32 v[4:5], v1 offset0:9 offset1:11"]), ([1, 0, 0], 0));
    assert_eq!(of(&["ds_read2st64_b32 v[4:5], v1 offset0:8 offset1:16"]), ([1, 0, 0], 0));
    assert_eq!(of(&["ds_read2_b64 v[4:7], v1 offset1:1"]), ([0, 1, 0], 0), "16 B in one access");
    let halves = ["ds_read_b64 v[4:5], v1", "ds_read_b64 v[6:7], v1 offset:8"];
    assert_eq!(of(&halves), ([0, 2, 0], 2));
    let moved =
        ["ds_read_b32 v8, v1", "v_add_u32_e32 v1, vcc, 4, v1", "ds_read_b32 v9, v1 offset:4"];
    assert_eq!(of(&moved), ([2, 0, 0], 0), "the register has changed");
    let lost = ["ds_read_b32 v1, v1", "ds_read_b32 v9, v1 offset:4"];
    assert_eq!(of(&lost), ([2, 0, 0], 0), "by the read itself");
    let stored = ["ds_read_b32 v8, v1", "ds_write_b32 v1, v8", "ds_read_b32 v9, v1 offset:4"];
    assert_eq!(of(&stored).1, 2, "a store writes no register");
}

#[test]
fn trips_are_told_by_constants_alone() {
    let of = |start, compare, add| {
        trips(&["s_mov_b32 s9, 1", add, compare], ["s_mov_b32 s0, 7", start].into_iter())
    };
    let with = |compare, add| of("s_mov_b32 s0, 0", compare, add);
    assert_eq!(with("s_cmp_ge_u32 s0, 64", "s_add_u32 s0, s0, 4"), Some(16.));
    assert_eq!(with("s_cmpk_lt_u32 s0, 0x90", "s_addk_i32 s0, 0x10"), Some(9.));
    assert_eq!(with("s_cmp_ge_u32 s0, s25", "s_add_u32 s0, s0, 4"), None);
    assert_eq!(with("s_cmp_ge_u32 s0, 64", "s_add_u32 s1, s1, 4"), None);
    assert_eq!(with("s_cmp_lg_u32 s0, 0", "s_add_u32 s0, s0, -1"), None);
    for start in ["s_mov_b32 s0, 1", "s_mov_b32 s0, s3", "s_nop 0"] {
        assert_eq!(of(start, "s_cmp_ge_u32 s0, 64", "s_add_u32 s0, s0, 4"), None, "{start}");
    }
}

#[test]
fn without_loops_all_is_done_once() {
    let code = read("BB0:\n\tv_mul_f32_e32 v0, v0, v1\n\ts_endpgm\n");
    assert_eq!((code.instructions, code.trip, code.once.operations), (2, Work::default(), 1.));
    assert_eq!(code.ceiling(), None);
    assert_eq!(read("(null)"), Code::default());
}
