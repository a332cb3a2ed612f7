//! Tests of the convolution's factors.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::svd::tail_error;
use super::*;

fn random(shape: [usize; 4], seed: u64) -> Array4<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    Array4::from_shape_simple_fn(shape, || rng.random_range(-1.0..1.0))
}

/// A convolution by its definition: `input` [in, h, w] as [1, in, h, w], zero padding.
fn convolve(
    input: &Array4<f32>,
    kernel: &Array4<f32>,
    groups: usize,
    stride: [usize; 2],
    padding: [usize; 2],
) -> Array4<f32> {
    let (outputs, share_in, kh, kw) = kernel.dim();
    let (_, _, height, width) = input.dim();
    let share_out = outputs / groups;
    let size =
        |size: usize, k: usize, axis: usize| (size + 2 * padding[axis] - k) / stride[axis] + 1;
    Array4::from_shape_fn((1, outputs, size(height, kh, 0), size(width, kw, 1)), |(_, o, y, x)| {
        let mut sum = 0.0;
        for (i, h, w) in ndarray::indices((share_in, kh, kw)) {
            let row = (y * stride[0] + h).wrapping_sub(padding[0]);
            let column = (x * stride[1] + w).wrapping_sub(padding[1]);
            let channel = o / share_out * share_in + i;
            let value = input.get((0, channel, row, column)).copied().unwrap_or(0.0);
            sum += kernel[[o, i, h, w]] * value;
        }
        sum
    })
}

/// Every method at its full ranks for a kernel of [out, in/groups, kh, kw] with `groups` groups.
fn all_full(kernel: &Array4<f32>, groups: usize) -> Vec<(&'static str, ConvFactors)> {
    let (outputs, i, h, w) = kernel.dim();
    let o = outputs / groups;
    let view = kernel.view();
    let (rank_out, rank_in) = (o.min(i * h * w), i.min(o * h * w));
    let first = i.min(h * w * o);
    let second = (first * h).min(w * o);
    let third = (second * w).min(o);
    let full_cp = o * i * h * w / [o, i, h, w].into_iter().max().unwrap();
    let config = CpConfig::default();
    let mut rng = StdRng::seed_from_u64(1);
    vec![
        ("spatial", spatial_svd(view, groups, (i * h).min(o * w)).unwrap()),
        ("channel", channel_svd(view, groups, o.min(i * h * w)).unwrap()),
        ("tucker2", conv_tucker2(view, groups, rank_out, rank_in).unwrap()),
        ("cp", conv_cp(view, groups, full_cp, &config, &mut rng).unwrap()),
        ("tensor train", conv_tensor_train(view, groups, [first, second, third]).unwrap()),
    ]
}

// At full rank each decomposition is exact, and the error is that of the recomposed kernel.
#[test]
fn full_ranks_are_exact() {
    for (shape, groups) in [
        ([6, 4, 3, 3], 1),
        ([4, 6, 3, 5], 1),
        ([6, 2, 3, 3], 2),
        ([4, 1, 3, 3], 4),
        ([5, 4, 1, 1], 1),
    ] {
        let kernel = random(shape, 2);
        for (name, chain) in all_full(&kernel, groups) {
            assert!(chain.relative_error < 1e-5, "{name} {shape:?} {}", chain.relative_error);
            let recomposed = chain.recompose().unwrap();
            assert_eq!(recomposed.dim(), kernel.dim());
            let difference = &recomposed - &kernel;
            assert!(difference.iter().all(|value| value.abs() < 1e-5), "{name} {shape:?}");
        }
    }
}

// Running the chain is the convolution with the recomposed kernel, under stride and padding on the
// factors that `spatial` names.
#[test]
fn the_chain_convolves_as_its_kernel() {
    for (shape, groups, stride, padding) in [
        ([6, 4, 3, 3], 1, [1, 1], [1, 1]),
        ([4, 3, 3, 5], 1, [2, 3], [1, 2]),
        ([6, 2, 3, 3], 2, [2, 1], [0, 1]),
    ] {
        let kernel = random(shape, 3);
        let input = random([1, shape[1] * groups, 9, 8], 4);
        let mut rng = StdRng::seed_from_u64(5);
        let view = kernel.view();
        let config = CpConfig { starts: 1, iterations_max: 20, ..CpConfig::default() };
        for chain in [
            spatial_svd(view, groups, 2).unwrap(),
            channel_svd(view, groups, 2).unwrap(),
            conv_tucker2(view, groups, 2, 2).unwrap(),
            conv_cp(view, groups, 4, &config, &mut rng).unwrap(),
            conv_tensor_train(view, groups, [2, 3, 2]).unwrap(),
        ] {
            let whole = chain.recompose().unwrap();
            let expected = convolve(&input, &whole, groups, stride, padding);
            let mut output = input.clone();
            for factor in &chain.factors {
                let pick = |values: [usize; 2], other: usize| {
                    [0, 1].map(|axis| if factor.spatial[axis] { values[axis] } else { other })
                };
                let (stride, padding) = (pick(stride, 1), pick(padding, 0));
                output = convolve(&output, &factor.kernel, factor.groups, stride, padding);
            }
            assert_eq!(output.dim(), expected.dim());
            let difference = &output - &expected;
            assert!(difference.iter().all(|value| value.abs() < 1e-4), "{shape:?}");
            assert!(chain.relative_error > 1e-2);
        }
    }
}

// Eckart and Young 1936, on the matrices of the two SVDs.
#[test]
fn the_svd_errors_are_their_tails() {
    let kernel = random([6, 4, 3, 5], 6);
    let block = kernel.mapv(f64::from);
    for (axes, rows, rank, chain) in [
        ([1, 2, 0, 3], 12, 5, spatial_svd(kernel.view(), 1, 5).unwrap()),
        ([0, 1, 2, 3], 6, 3, channel_svd(kernel.view(), 1, 3).unwrap()),
    ] {
        let values = block.view().permuted_axes(axes).iter().copied().collect();
        let factors = svd(matrix_from(rows, 360 / rows, values).view()).unwrap();
        let expected = tail_error(&factors.singular_values.to_vec(), rank);
        assert!((chain.relative_error - expected).abs() < 1e-6);
    }
}

// A separable kernel is an outer product of vectors, so it has rank 1 in every decomposition.
#[test]
fn a_separable_kernel_has_rank_one() {
    let (o, i, h, w) = ([1.0, -2.0, 3.0], [0.5, 1.0], [1.0, 2.0, 1.0], [-1.0, 0.0, 1.0]);
    let kernel = Array4::from_shape_fn((3, 2, 3, 3), |(a, b, c, d)| o[a] * i[b] * h[c] * w[d]);
    let mut rng = StdRng::seed_from_u64(7);
    for chain in [
        spatial_svd(kernel.view(), 1, 1).unwrap(),
        channel_svd(kernel.view(), 1, 1).unwrap(),
        conv_tucker2(kernel.view(), 1, 1, 1).unwrap(),
        conv_cp(kernel.view(), 1, 1, &CpConfig::default(), &mut rng).unwrap(),
        conv_tensor_train(kernel.view(), 1, [1, 1, 1]).unwrap(),
    ] {
        assert!(chain.relative_error < 1e-6, "{}", chain.relative_error);
    }
}

// The counts by arithmetic, R·(kh·in + kw·out) of Jaderberg 2014 and R·(in + kh + kw + out) of
// Lebedev 2015, are those of the kernels.
#[test]
fn costs_are_those_of_the_factors() {
    let config = CpConfig { starts: 1, iterations_max: 2, ..CpConfig::default() };
    for (shape, groups, stride) in
        [([8, 4, 3, 5], 1, [1, 1]), ([8, 4, 3, 5], 1, [2, 3]), ([8, 3, 3, 3], 2, [2, 1])]
    {
        let kernel = random(shape, 8);
        let mut rng = StdRng::seed_from_u64(9);
        for (costs, chain) in [
            (spatial_svd_cost(shape, groups, stride), spatial_svd(kernel.view(), groups, 2)),
            (channel_svd_cost(shape, groups), channel_svd(kernel.view(), groups, 2)),
            (
                conv_cp_cost(shape, groups, stride),
                conv_cp(kernel.view(), groups, 2, &config, &mut rng),
            ),
        ] {
            let chain = chain.unwrap();
            assert_eq!(chain.parameters(), 2 * costs[0].per_rank);
            assert_eq!(chain.multiply_adds(stride), 2 * costs[1].per_rank);
            assert_eq!(costs.map(|cost| cost.dense), [kernel.len(); 2]);
        }
    }
}

#[test]
fn zero_and_constant_kernels_have_factors() {
    for value in [0.0, 2.0] {
        let kernel = Array4::from_elem((4, 3, 3, 3), value);
        for (name, chain) in all_full(&kernel, 1) {
            assert!(chain.relative_error < 1e-5, "{name} {}", chain.relative_error);
        }
    }
}

#[test]
fn bad_input_is_an_error() {
    let good = random([6, 4, 3, 3], 10);
    let mut broken = good.clone();
    broken[[0, 0, 0, 1]] = f32::NAN;
    let empty = Array4::zeros((6, 0, 3, 3));
    for (kernel, groups, rank, part) in [
        (&good, 0, 1, "groups is 0"),
        (&good, 4, 1, "6 outputs, expected a multiple of 4 groups"),
        (&good, 1, 0, "rank is 0, expected 1 to 12"),
        (&good, 1, 13, "rank is 13, expected 1 to 12"),
        (&broken, 1, 1, "value 1 is NaN"),
        (&empty, 1, 1, "shape is [6, 0, 3, 3]"),
    ] {
        let error = spatial_svd(kernel.view(), groups, rank).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(channel_svd(good.view(), 1, 7).is_err());
    assert!(conv_tucker2(good.view(), 1, 7, 1).is_err());
    assert!(conv_tensor_train(good.view(), 1, [5, 1, 1]).is_err());
    let mut chain = spatial_svd(good.view(), 1, 2).unwrap();
    chain.factors.swap(0, 1);
    assert!(chain.recompose().unwrap_err().to_string().contains("6 channels, expected 4"));
    chain.factors.clear();
    assert!(chain.recompose().is_err());
}
