//! Operators that move elements, pick them or reduce them.

use super::{Case, cast, noise};
use lgp_compute::ops::{
    Concat, DepthMode, DepthToSpace, Expand, Gather, Pad, PadMode, Reduce, ReduceKind, Slice,
    SpaceToDepth, Split, Tile, Transpose,
};
use lgp_memory::{DType, Tensor};

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_slice([values.len()], values).expect("as many")
}

pub(super) fn cases() -> Vec<Case> {
    [moves(), picks(), reductions()].into_iter().flatten().collect()
}

fn moves() -> Vec<Case> {
    let mut cases = Vec::new();
    for (shape, perm) in [
        (vec![3, 5], vec![1, 0]),
        (vec![2, 12, 7, 8], vec![0, 2, 1, 3]),
        (vec![2, 3, 4, 5, 6], vec![4, 0, 3, 1, 2]),
        (vec![1, 6, 1], vec![2, 1, 0]),
    ] {
        let name = format!("Transpose {perm:?}");
        cases.push(Case::new(name, Transpose { perm: Some(perm) }, vec![noise(&shape, 1)]));
    }
    let words = cast(&noise(&[4, 6], 2), DType::F16);
    cases.push(Case::new("Transpose f16", Transpose { perm: None }, vec![words]));
    let cut = |starts: &[i64], ends: &[i64], steps: &[i64]| {
        let axes = ints(&(0..starts.len() as i64).collect::<Vec<_>>());
        let inputs = vec![noise(&[7, 9, 4], 3), ints(starts), ints(ends), axes, ints(steps)];
        Case::new(format!("Slice {starts:?}"), Slice::default(), inputs).constant(&[1, 2, 3, 4])
    };
    cases.push(cut(&[1, 2], &[6, 9], &[1, 3]));
    cases.push(cut(&[-1, 0], &[-100, 100], &[-2, 1]));
    cases.push(cut(&[5, 0], &[2, 3], &[1, 1]));
    let inputs = vec![noise(&[3, 1, 4], 4), ints(&[2, 3, 5, 4])];
    cases.push(Case::new("Expand", Expand, inputs).constant(&[1]));
    let parts = vec![noise(&[2, 3, 4], 5), noise(&[2, 0, 4], 6), noise(&[2, 5, 4], 7)];
    cases.push(Case::new("Concat", Concat { axis: 1 }, parts));
    let split = Split { axis: -1, outputs: 3, sizes: Some(vec![2, 0, 5]) };
    cases.push(Case::new("Split", split, vec![noise(&[3, 7], 8)]));
    let inputs = vec![noise(&[2, 3], 9), ints(&[3, 2])];
    cases.push(Case::new("Tile", Tile, inputs).constant(&[1]));
    for mode in [DepthMode::Dcr, DepthMode::Crd] {
        let op = DepthToSpace { block: 2, mode };
        cases.push(Case::new(
            format!("DepthToSpace {mode:?}"),
            op,
            vec![noise(&[2, 12, 3, 5], 10)],
        ));
    }
    cases.push(Case::new(
        "SpaceToDepth",
        SpaceToDepth { block: 2 },
        vec![noise(&[2, 3, 4, 6], 11)],
    ));
    let pad = |value| Pad { mode: PadMode::Constant, pads: Some(vec![1, -1, 0, 2, 0, 1]), value };
    cases.push(Case::new("Pad", pad(Some(2.5)), vec![noise(&[3, 4, 5], 12)]));
    let whole = cast(&noise(&[3, 4, 5], 13), DType::I64);
    for mode in [PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
        let op = Pad { mode, pads: Some(vec![1, -1, 2, 2, 0, 1]), value: None };
        cases.push(Case::new(format!("Pad {mode:?}"), op, vec![noise(&[3, 4, 5], 12)]));
    }
    cases.push(Case::new("Pad i64", pad(None), vec![whole]));
    cases
}

fn picks() -> Vec<Case> {
    let indices = Tensor::from_slice([2, 2], &[0i64, -1, 4, 2]).expect("four");
    let narrow = Tensor::from_slice([], &[3i32]).expect("one");
    let mut cases = Vec::new();
    for axis in [0, 1, -1] {
        let inputs = vec![noise(&[5, 6, 7], 14), indices.clone()];
        cases.push(Case::new(format!("Gather {axis}"), Gather { axis }, inputs));
    }
    let words = cast(&noise(&[6, 3], 15), DType::I64);
    cases.push(Case::new("Gather one i64", Gather { axis: 0 }, vec![words, narrow]));
    cases
}

fn reductions() -> Vec<Case> {
    use ReduceKind as K;
    let mut cases = Vec::new();
    let kinds =
        [K::Mean, K::Sum, K::Max, K::Min, K::Prod, K::L1, K::L2, K::SumSquare, K::LogSumExp];
    for kind in kinds {
        for axes in [vec![-1], vec![0], vec![1, 2], vec![0, 2]] {
            let name = format!("Reduce {kind:?} {axes:?}");
            let op = Reduce::new(kind, Some(axes));
            cases.push(Case::new(name, op, vec![noise(&[4, 5, 70], 16)]).within(1e-4));
        }
    }
    let all = Reduce { keep_dims: false, ..Reduce::new(K::Mean, None) };
    cases.push(Case::new("Reduce all", all, vec![noise(&[3, 500], 17)]));
    for kind in kinds.into_iter().filter(|kind| *kind != K::Prod) {
        for (name, shape, axis) in
            [("a long line", &[40_960][..], 0), ("long columns", &[2, 4096, 3], 1)]
        {
            let op = Reduce::new(kind, Some(vec![axis]));
            let case = Case::new(format!("Reduce {kind:?} {name}"), op, vec![noise(shape, 19)]);
            cases.push(case.within(1e-4));
        }
    }
    let halves = cast(&noise(&[4, 33], 18), DType::BF16);
    let long = cast(&noise(&[2, 8192], 20), DType::F16);
    cases.push(Case::new("Reduce f16 long", Reduce::new(K::Max, Some(vec![1])), vec![long]));
    cases.push(Case::new("Reduce bf16", Reduce::new(K::Mean, Some(vec![1])), vec![halves]));
    cases
}
