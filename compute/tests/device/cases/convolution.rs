//! Convolutions and pooling.

use super::{Case, cast, noise};
use lgp_compute::ops::{Conv, GlobalPool, GlobalPoolKind, Pads, Pool, PoolKind};
use lgp_memory::{DType, Tensor};

pub(super) fn cases() -> Vec<Case> {
    [convolutions(), halves(), pools()].into_iter().flatten().collect()
}

/// A convolution: the input's shape, the weight's, groups, strides, dilations and pads; and the
/// seed of its numbers, odd for one with a bias.
type Window<'a> = (&'a [usize], &'a [usize], usize, &'a [usize], &'a [usize], &'a [usize]);

fn convolution((x, weight, group, strides, dilations, pads): Window<'_>, bias: bool) -> Case {
    let op = Conv {
        strides: strides.to_vec(),
        pads: Pads::Explicit(pads.to_vec()),
        dilations: dilations.to_vec(),
        group,
    };
    let mut inputs = vec![noise(x, 1), noise(weight, 2)];
    if bias {
        inputs.push(noise(&weight[..1], 3));
    }
    let name = format!("Conv {x:?} {weight:?} {group} {strides:?} {dilations:?} {pads:?} {bias}");
    Case::new(name, op, inputs).within(1e-4)
}

fn convolutions() -> Vec<Case> {
    let windows: &[Window<'_>] = &[
        // One tap.
        (&[1, 16, 7, 9], &[8, 16, 1, 1], 1, &[], &[], &[]),
        (&[3, 5, 7, 9], &[70, 5, 1, 1], 1, &[], &[], &[]),
        (&[2, 33, 12, 12], &[130, 33, 1, 1], 1, &[2, 2], &[], &[]),
        (&[2, 20, 5, 4], &[4, 20, 1, 1], 1, &[], &[], &[1, 0, 2, 1]),
        // Nine, of even and odd numbers of channels, padded, strided, dilated.
        (&[1, 3, 8, 8], &[4, 3, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[2, 16, 13, 17], &[20, 16, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        (&[2, 6, 13, 10], &[65, 6, 3, 3], 1, &[2, 2], &[], &[1, 0, 0, 1]),
        (&[1, 4, 15, 14], &[7, 4, 3, 3], 1, &[1, 2], &[3, 2], &[2, 0, 3, 1]),
        (&[2, 64, 40, 40], &[64, 64, 3, 3], 1, &[], &[], &[1, 1, 1, 1]),
        // Windows that are taken apart.
        (&[2, 3, 30, 29], &[16, 3, 7, 7], 1, &[2, 2], &[], &[3, 3, 3, 3]),
        (&[1, 2, 9, 9], &[5, 2, 5, 5], 1, &[], &[], &[2, 2, 2, 2]),
        (&[1, 2, 6, 40], &[3, 2, 1, 33], 1, &[], &[], &[0, 40, 0, 3]),
        // Groups.
        (&[2, 8, 9, 9], &[12, 4, 3, 3], 2, &[], &[], &[1, 1, 1, 1]),
        (&[1, 12, 5, 6], &[9, 4, 1, 1], 3, &[], &[], &[]),
        // Groups of one channel.
        (&[2, 5, 11, 13], &[5, 1, 3, 3], 5, &[], &[], &[1, 1, 1, 1]),
        (&[2, 4, 11, 13], &[8, 1, 3, 3], 4, &[2, 2], &[], &[1, 1, 0, 0]),
        (&[1, 3, 14, 14], &[3, 1, 5, 5], 3, &[1, 1], &[2, 3], &[4, 4, 4, 4]),
        (&[1, 2, 9, 9], &[2, 1, 7, 7], 2, &[3, 1], &[], &[3, 3, 3, 3]),
        (&[1, 2, 20, 20], &[2, 1, 9, 9], 2, &[2, 1], &[2, 1], &[3, 3, 3, 3]),
        (&[1, 1, 6, 6], &[3, 1, 3, 3], 1, &[], &[], &[]),
        // Other numbers of axes.
        (&[2, 6, 31], &[5, 6, 3], 1, &[2], &[2], &[1, 2]),
        (&[2, 6, 31], &[6, 1, 4], 6, &[], &[], &[3, 0]),
        (&[1, 4, 5, 6, 7], &[6, 4, 3, 3, 3], 1, &[1, 2, 1], &[], &[1, 1, 1, 1, 1, 1]),
        (&[2, 3, 5, 6, 7], &[3, 1, 3, 2, 3], 3, &[2, 1, 1], &[1, 2, 1], &[1, 0, 1, 0, 1, 1]),
    ];
    let case = |(i, window): (usize, &Window<'_>)| convolution(*window, i % 2 == 0);
    windows.iter().enumerate().map(case).collect()
}

fn halves() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for group in [1, 4] {
            let op = Conv { pads: Pads::SameUpper, group, ..Conv::default() };
            let weight = noise(&[8, 4 / group, 3, 3], 2);
            let inputs = [noise(&[2, 4, 7, 7], 1), weight, noise(&[8], 3)];
            let inputs = inputs.iter().map(|x| cast(x, dtype)).collect();
            cases.push(Case::new(format!("Conv {dtype} {group}"), op, inputs).within(2e-2));
        }
    }
    cases
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
