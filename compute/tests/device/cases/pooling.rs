//! Pooling, resampling, and normalisation over neighbours.

use super::{Case, cast, noise};
use lgp_compute::ops::{
    CoordinateMode, GlobalPool, GlobalPoolKind, GridSample, Lrn, MaxPoolIndices, NearestRounding,
    Pads, Pool, PoolKind, Resize, ResizeMode, SampleMode, SamplePadding,
};
use lgp_memory::{DType, Tensor};

pub(super) fn cases() -> Vec<Case> {
    [pools(), indices(), resized(), sampled(), responses()].into_iter().flatten().collect()
}

fn pools() -> Vec<Case> {
    let average = |count_include_pad| PoolKind::Average { count_include_pad };
    let kinds = [PoolKind::Max, average(false), average(true), PoolKind::Sum];
    let mut cases = Vec::new();
    for kind in kinds {
        for (x, kernel, strides, pads, dilations, ceil_mode) in [
            (&[2, 3, 9, 8][..], &[3, 3][..], &[2, 2][..], &[1, 1, 1, 1][..], &[][..], false),
            (&[1, 2, 9, 8], &[3, 2], &[2, 3], &[0, 1, 2, 0], &[], true),
            (&[1, 2, 11, 12], &[2, 3], &[], &[1, 0, 1, 2], &[3, 2], true),
            (&[2, 3, 20], &[4], &[3], &[2, 1], &[], true),
            (&[1, 2, 5, 6, 7], &[2, 3, 2], &[1, 2, 2], &[1, 1, 0, 0, 1, 1], &[], false),
        ] {
            let pool = Pool {
                kind,
                kernel: kernel.to_vec(),
                strides: strides.to_vec(),
                pads: Pads::Explicit(pads.to_vec()),
                dilations: dilations.to_vec(),
                ceil_mode,
            };
            let name = format!("{kind:?} {x:?} {kernel:?} {strides:?} {pads:?} {ceil_mode}");
            cases.push(Case::new(name, pool, vec![noise(x, 1)]));
        }
    }
    let plain = |kind| Pool {
        kind,
        kernel: vec![2, 2],
        strides: vec![2, 2],
        pads: Pads::default(),
        dilations: vec![],
        ceil_mode: false,
    };
    let bytes: Vec<i32> = (0..128).map(|i| i * 37 % 256).collect();
    let bytes = Tensor::from_slice([1, 2, 8, 8], &bytes).expect("as many");
    for dtype in [DType::I8, DType::U8, DType::I64, DType::F16, DType::BF16] {
        let inputs = vec![cast(&bytes, dtype)];
        cases.push(Case::new(format!("MaxPool {dtype}"), plain(PoolKind::Max), inputs));
    }
    let inputs = vec![cast(&noise(&[2, 3, 6, 6], 1), DType::F16)];
    cases.push(Case::new("AveragePool f16", plain(average(false)), inputs));
    for kind in [GlobalPoolKind::Average, GlobalPoolKind::Max, GlobalPoolKind::Sum] {
        for x in [&[2, 5, 7, 7][..], &[1, 3, 40, 40], &[3, 2, 1], &[2, 2, 3, 4, 5]] {
            let x = noise(x, 4);
            cases.push(Case::new(format!("Global {kind:?}"), GlobalPool { kind }, vec![x]));
        }
    }
    let not_a_number = Tensor::from_slice([1, 1, 3], &[1f32, f32::NAN, 2.]).expect("three");
    let op = GlobalPool { kind: GlobalPoolKind::Max };
    cases.push(Case::new("Global Max NaN", op, vec![not_a_number]));
    cases
}

fn indices() -> Vec<Case> {
    let mut cases = Vec::new();
    for column_major in [false, true] {
        for dtype in [DType::F32, DType::F16, DType::I8] {
            let pool = Pool {
                kind: PoolKind::Max,
                kernel: vec![3, 2],
                strides: vec![2, 2],
                pads: Pads::Explicit(vec![1, 0, 1, 1]),
                dilations: vec![1, 2],
                ceil_mode: true,
            };
            let numbers: Vec<i32> = (0..2 * 3 * 7 * 6).map(|i| i * 5 % 23 - 11).collect();
            let x = Tensor::from_slice([2, 3, 7, 6], &numbers).expect("as many");
            let op = MaxPoolIndices { pool, column_major };
            let name = format!("MaxPool with indices {dtype} {column_major}");
            cases.push(Case::new(name, op, vec![cast(&x, dtype)]));
        }
    }
    cases
}

fn resized() -> Vec<Case> {
    use CoordinateMode as C;
    use NearestRounding as N;
    let nearest = [N::RoundPreferFloor, N::RoundPreferCeil, N::Floor, N::Ceil, N::Old];
    let modes = nearest.map(ResizeMode::Nearest).into_iter().chain([ResizeMode::Linear]);
    let modes: Vec<ResizeMode> = modes.collect();
    let positions =
        [C::HalfPixel, C::HalfPixelSymmetric, C::PytorchHalfPixel, C::AlignCorners, C::Asymmetric];
    let mut cases = Vec::new();
    for (i, &mode) in modes.iter().enumerate() {
        for (j, &coordinates) in positions.iter().enumerate() {
            if coordinates == C::HalfPixelSymmetric && mode != ResizeMode::Linear {
                continue;
            }
            let op = Resize { mode, coordinates, ..Resize::default() };
            let scales = [[1f32, 1., 2., 2.], [1., 1., 0.5, 3.], [1., 1., 1.5, 0.75]][(i + j) % 3];
            let scales = Tensor::from_slice([4], &scales).expect("four");
            let inputs = vec![noise(&[2, 3, 7, 6], 1), noise(&[0], 0), scales];
            let name = format!("Resize {mode:?} {coordinates:?}");
            cases.push(Case::new(name, op, inputs).absent(1).constant(&[2]));
        }
    }
    let sized = |mode, x: Tensor, sizes: &[i64]| {
        let name = format!("Resize {mode:?} {:?} to {sizes:?}", x.shape());
        let sizes = Tensor::from_slice([sizes.len()], sizes).expect("as many");
        let op = Resize { mode, ..Resize::default() };
        let inputs = vec![x, noise(&[0], 0), noise(&[0], 0), sizes];
        Case::new(name, op, inputs).absent(1).absent(2).constant(&[3])
    };
    let linear = ResizeMode::Linear;
    let plain = ResizeMode::Nearest(N::RoundPreferFloor);
    cases.push(sized(linear, noise(&[1, 2, 5, 7], 1), &[1, 2, 11, 3]));
    cases.push(sized(linear, noise(&[2, 3, 4, 5, 6], 1), &[2, 3, 7, 5, 9]));
    cases.push(sized(linear, noise(&[9], 1), &[1]));
    cases.push(sized(linear, cast(&noise(&[1, 2, 5, 7], 1), DType::F16), &[1, 2, 8, 8]));
    cases.push(sized(plain, cast(&noise(&[5, 7], 1), DType::I64), &[9, 4]));
    cases.push(sized(plain, cast(&noise(&[1, 1, 5, 7], 1), DType::BF16), &[1, 1, 15, 4]));
    cases
}

fn responses() -> Vec<Case> {
    [(5, DType::F32), (1, DType::F32), (4, DType::F16), (30, DType::F32)]
        .map(|(size, dtype)| {
            let op = Lrn { alpha: 0.3, beta: 0.75, bias: 1., size };
            let x = cast(&noise(&[2, 7, 3, 5], 1), dtype);
            Case::new(format!("LRN {size} {dtype}"), op, vec![x])
        })
        .into()
}

fn sampled() -> Vec<Case> {
    let mut cases = Vec::new();
    for mode in [SampleMode::Linear, SampleMode::Nearest] {
        for padding in [SamplePadding::Zeros, SamplePadding::Border, SamplePadding::Reflection] {
            for align_corners in [false, true] {
                let op = GridSample { mode, padding, align_corners };
                // Positions up to twice as far from the centre as the ends.
                let far = |shape: &[usize]| {
                    let wide = noise(shape, 7);
                    let wide = wide.as_slice::<f32>().expect("floats").iter().map(|x| 2. * x);
                    Tensor::from_slice(shape, &wide.collect::<Vec<_>>()).expect("as many")
                };
                let shapes: [(&[usize], &[usize]); 3] = [
                    (&[2, 3, 5, 6], &[2, 4, 7, 2]),
                    (&[1, 2, 9], &[1, 11, 1]),
                    (&[2, 2, 3, 4, 5], &[2, 3, 2, 4, 3]),
                ];
                // Every rule in a plane, and one rule along a line and in space.
                let planes = padding != SamplePadding::Reflection || align_corners;
                for (x, grid) in &shapes[..if planes { 1 } else { 3 }] {
                    let name = format!("GridSample {op:?} {x:?}");
                    let inputs = vec![noise(x, 1), far(grid)];
                    cases.push(Case::new(name, op.clone(), inputs).within(1e-4));
                }
            }
        }
    }
    cases
}
