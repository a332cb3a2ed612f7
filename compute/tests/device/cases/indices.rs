//! Operators that find positions in tensors, or take positions as input.

use super::{Case, cast, noise};
use lgp_compute::ops::{
    ArgKind, ArgReduce, Cumulative, GatherElements, GatherNd, Mean, OneHot, ScatterElements,
    ScatterNd, ScatterReduction, TopK, Trilu,
};
use lgp_memory::{DType, Tensor};

pub(super) fn cases() -> Vec<Case> {
    [gathers(), scatters(), searches(), lines()].into_iter().flatten().collect()
}

fn ints(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_slice(shape, values).expect("as many")
}

/// Indices into an axis of `size`, counted from the front and from the back, some repeated.
fn indices(shape: &[usize], size: i64) -> Tensor {
    let count = shape.iter().product::<usize>() as i64;
    let values: Vec<i64> = (0..count).map(|i| i * 7 % (2 * size) - size).collect();
    ints(shape, &values)
}

fn gathers() -> Vec<Case> {
    let mut cases = Vec::new();
    for axis in [0, 1, -1] {
        let inputs = vec![noise(&[4, 5, 6], 1), indices(&[3, 4, 6], 4)];
        cases.push(Case::new(format!("GatherElements {axis}"), GatherElements { axis }, inputs));
    }
    let words = vec![cast(&noise(&[9], 2), DType::I64), cast(&indices(&[20], 9), DType::I32)];
    cases.push(Case::new("GatherElements i64", GatherElements { axis: 0 }, words));
    for (batch_dims, shape) in
        [(0, vec![2, 3, 1]), (0, vec![5, 2]), (0, vec![6, 3]), (1, vec![4, 7, 1]), (1, vec![4, 2])]
    {
        let inputs = vec![noise(&[4, 4, 4], 3), indices(&shape, 4)];
        let op = GatherNd { batch_dims };
        cases.push(Case::new(format!("GatherND {batch_dims} {shape:?}"), op, inputs));
    }
    let halves = vec![cast(&noise(&[4, 6], 4), DType::F16), indices(&[3, 1], 4)];
    cases.push(Case::new("GatherND f16", GatherNd::default(), halves));
    cases
}

fn scatters() -> Vec<Case> {
    use ScatterReduction as R;
    let mut cases = Vec::new();
    for reduction in [R::None, R::Add, R::Mul, R::Min, R::Max] {
        for axis in [0, 1, -1] {
            let (shape, updates) = (&[4, 5, 6][..], &[3, 4, 6][..]);
            let op = ScatterElements { axis, reduction };
            let inputs = vec![noise(shape, 1), indices(updates, 4), noise(updates, 2)];
            cases.push(Case::new(format!("ScatterElements {axis} {reduction:?}"), op, inputs));
        }
        for (tuples, updates) in
            [(&[5, 1][..], &[5, 6, 3][..]), (&[2, 3, 2], &[2, 3, 3]), (&[9, 3], &[9])]
        {
            let op = ScatterNd { reduction };
            let data = noise(&[6, 6, 3], 1);
            let inputs = vec![data, indices(tuples, 3), noise(updates, 2)];
            cases.push(Case::new(format!("ScatterND {tuples:?} {reduction:?}"), op, inputs));
        }
    }
    // Many updates of few elements: each element keeps its last update.
    let inputs = vec![noise(&[7, 5], 3), indices(&[300, 2], 5), noise(&[300], 4)];
    cases.push(Case::new("ScatterND of many", ScatterNd::default(), inputs));
    let inputs = vec![noise(&[7, 5], 3), indices(&[100, 1], 7), noise(&[100, 5], 4)];
    cases.push(Case::new("ScatterND of many rows", ScatterNd::default(), inputs));
    let words = [noise(&[7, 5], 5), noise(&[2, 5], 6)].map(|x| cast(&x, DType::BF16));
    let [data, updates] = words;
    let inputs = vec![data, indices(&[2, 1], 7), updates];
    cases.push(Case::new("ScatterND bf16", ScatterNd::default(), inputs));
    cases
}

fn searches() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut data = noise(&[4, 70, 3], 1).as_slice::<f32>().expect("floats").to_vec();
    // Equal extremes, and lines with NaN.
    data.iter_mut().skip(3).step_by(11).for_each(|x| *x = 2.);
    data.iter_mut().skip(5).step_by(13).for_each(|x| *x = -2.);
    data[70 * 3 + 9] = f32::NAN;
    data[70 * 3 + 12] = f32::NAN;
    let x = Tensor::from_slice([4, 70, 3], &data).expect("as many");
    for kind in [ArgKind::Max, ArgKind::Min] {
        for axis in [0, 1, 2] {
            for select_last_index in [false, true] {
                let op = ArgReduce { kind, axis, keep_dims: axis == 1, select_last_index };
                cases.push(Case::new(format!("{op:?}"), op, vec![x.clone()]));
            }
        }
        let op = ArgReduce { kind, axis: -1, keep_dims: false, select_last_index: false };
        let name = |what: &str| format!("{kind:?} of {what}");
        cases.push(Case::new(name("a long line"), op.clone(), vec![noise(&[2, 3000], 2)]));
        let words = cast(&indices(&[3, 40], 50), DType::I8);
        cases.push(Case::new(name("i8"), op.clone(), vec![words]));
        cases.push(Case::new(name("f16"), op, vec![cast(&noise(&[3, 40], 3), DType::F16)]));
    }
    for largest in [true, false] {
        for (axis, k) in [(1, 7), (0, 4), (2, 1), (1, 70)] {
            let op = TopK { axis, largest, k: None };
            let case = Case::new(format!("{op:?} {k}"), op, vec![x.clone(), ints(&[1], &[k])]);
            cases.push(case.constant(&[1]));
        }
        let op = TopK { axis: -1, largest, k: Some(5) };
        let words = indices(&[2, 300], 40);
        cases.push(Case::new(format!("{op:?} i64"), op, vec![words]));
    }
    for axis in [0, 1, -1] {
        let values = Tensor::from_slice([2], &[-1f32, 3.]).expect("two");
        let classes = ints(&[2, 4], &[0, 1, 5, -1, 3, -6, 6, 2]);
        let inputs = vec![classes, ints(&[1], &[6]), values];
        cases.push(Case::new(format!("OneHot {axis}"), OneHot { axis }, inputs).constant(&[1]));
    }
    cases
}

fn lines() -> Vec<Case> {
    let mut cases = Vec::new();
    for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        for (shape, axis) in [(&[3, 200, 4][..], 1), (&[5, 7], 0), (&[2, 65], -1)] {
            let op = Cumulative { product: false, exclusive, reverse };
            let name = format!("CumSum {shape:?} {exclusive} {reverse}");
            let inputs = vec![noise(shape, 1), ints(&[1], &[axis])];
            cases.push(Case::new(name, op, inputs).constant(&[1]).within(1e-4));
        }
        for dtype in [DType::I64, DType::I8] {
            let op = Cumulative { product: true, exclusive, reverse };
            let inputs = vec![cast(&indices(&[3, 80], 40), dtype), ints(&[1], &[1])];
            cases.push(Case::new(format!("CumProd {dtype}"), op, inputs).constant(&[1]));
        }
    }
    for upper in [true, false] {
        for k in [0, 2, -3, 100, i64::MIN] {
            let inputs = vec![noise(&[2, 5, 7], 1), ints(&[1], &[k])];
            let name = format!("Trilu {upper} {k}");
            cases.push(Case::new(name, Trilu { upper }, inputs).constant(&[1]));
        }
    }
    let inputs = vec![noise(&[2, 3, 4], 1), noise(&[3, 1], 2), noise(&[4], 3)];
    cases.push(Case::new("Mean", Mean, inputs));
    cases
}
