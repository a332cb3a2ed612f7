//! Turns a convolution into a chain of smaller ones, by each of the decompositions, and multiplies
//! the chain back into one kernel.

mod cost;
mod recompose;

use ndarray::{Array2, Array4, ArrayView4, Axis, concatenate};
use rand::Rng;

use super::check::{bad, check_rank, check_values};
use super::cp::{CpConfig, cp_als};
use super::svd::{balanced, svd};
use super::tensor::matrix_from;
use super::tensor_train::tt_svd;
use super::tucker::hooi;
use crate::error::Result;

pub use cost::{channel_svd_cost, conv_cp_cost, spatial_svd_cost};

const METHOD: &str = "decompose a convolution";

/// One convolution of a chain.
#[derive(Debug, Clone)]
pub struct ConvFactor {
    /// Its kernel, [out, in/groups, kh, kw].
    pub kernel: Array4<f32>,
    /// Its groups.
    pub groups: usize,
    /// Whether it takes the layer's stride, dilation and padding along the height and the width.
    /// A factor that does not take them has stride 1, dilation 1 and no padding there.
    pub spatial: [bool; 2],
}

/// A chain of convolutions in place of one, to be run in order. The layer's bias belongs to the
/// last; the others have none.
#[derive(Debug, Clone)]
pub struct ConvFactors {
    /// The convolutions.
    pub factors: Vec<ConvFactor>,
    /// The groups of the layer that they stand for.
    pub groups: usize,
    /// ‖K − K̂‖/‖K‖ of the kernel and the one that the factors multiply to, as stored in f32.
    pub relative_error: f64,
}

/// A factor of one group, before the groups are stacked.
struct Part {
    kernel: Array4<f64>,
    groups: usize,
    spatial: [bool; 2],
}

/// Spatial SVD: `kernel` [out, in/groups, kh, kw] as kh×1 with `rank` outputs for each group, then
/// 1×kw.
///
/// Source: Jaderberg et al., "Speeding up convolutional neural networks with low rank expansions"
/// (2014), scheme 2, solved by SVD.
///
/// # Errors
///
/// `Compression` if `kernel` is empty or not finite, if `groups` is 0 or does not divide its
/// outputs, or if `rank` is 0 or above min(in/groups·kh, out/groups·kw).
pub fn spatial_svd(kernel: ArrayView4<f32>, groups: usize, rank: usize) -> Result<ConvFactors> {
    decompose(kernel, groups, |block| {
        let (outputs, inputs, height, width) = block.dim();
        let (left, right) = low_rank(&block, [1, 2, 0, 3], inputs * height, rank)?;
        Ok(vec![
            Part {
                kernel: Array4::from_shape_fn((rank, inputs, height, 1), |(r, i, h, _)| {
                    left[[i * height + h, r]]
                }),
                groups: 1,
                spatial: [true, false],
            },
            Part {
                kernel: Array4::from_shape_fn((outputs, rank, 1, width), |(o, r, _, w)| {
                    right[[r, o * width + w]]
                }),
                groups: 1,
                spatial: [false, true],
            },
        ])
    })
}

/// Channel SVD: `kernel` [out, in/groups, kh, kw] as kh×kw with `rank` outputs for each group, then
/// 1×1.
///
/// Source: Zhang et al., "Accelerating very deep convolutional networks for classification and
/// detection" (2015), without its nonlinearity.
///
/// # Errors
///
/// As [`spatial_svd`], with `rank` at most min(out/groups, in/groups·kh·kw).
pub fn channel_svd(kernel: ArrayView4<f32>, groups: usize, rank: usize) -> Result<ConvFactors> {
    decompose(kernel, groups, |block| {
        let (outputs, inputs, height, width) = block.dim();
        let (left, right) = low_rank(&block, [0, 1, 2, 3], outputs, rank)?;
        let kernel = Array4::from_shape_fn((rank, inputs, height, width), |(r, i, h, w)| {
            right[[r, (i * height + h) * width + w]]
        });
        Ok(vec![Part { kernel, groups: 1, spatial: [true; 2] }, pointwise(left)])
    })
}

/// Tucker-2: `kernel` [out, in/groups, kh, kw] as 1×1 with `rank_in` outputs for each group, kh×kw
/// with `rank_out`, then 1×1, by HOOI.
///
/// Source: Kim et al., "Compression of deep convolutional neural networks for fast and low power
/// mobile applications" (2016), section 3.
///
/// # Errors
///
/// As [`spatial_svd`], with `rank_out` at most min(out/groups, rank_in·kh·kw), and `rank_in` at
/// most min(in/groups, rank_out·kh·kw).
pub fn conv_tucker2(
    kernel: ArrayView4<f32>,
    groups: usize,
    rank_out: usize,
    rank_in: usize,
) -> Result<ConvFactors> {
    decompose(kernel, groups, |block| {
        let (_, _, height, width) = block.dim();
        let tucker = hooi(block.view().into_dyn(), &[0, 1], &[rank_out, rank_in], 50, 1e-9)?;
        let [output, input] = tucker.factors.as_slice() else {
            return Err(bad(METHOD, "the Tucker form has not two factors"));
        };
        let core = Array4::from_shape_fn((rank_out, rank_in, height, width), |(o, i, h, w)| {
            tucker.core[[o, i, h, w]]
        });
        Ok(vec![
            pointwise(input.t().to_owned()),
            Part { kernel: core, groups: 1, spatial: [true; 2] },
            pointwise(output.clone()),
        ])
    })
}

/// CP: `kernel` [out, in/groups, kh, kw] as 1×1 with `rank` outputs for each group, depthwise kh×1,
/// depthwise 1×kw, then 1×1.
///
/// Source: Lebedev et al., "Speeding-up convolutional neural networks using fine-tuned
/// CP-decomposition" (2015), section 3.
///
/// # Errors
///
/// As [`spatial_svd`] and [`cp_als`].
pub fn conv_cp(
    kernel: ArrayView4<f32>,
    groups: usize,
    rank: usize,
    config: &CpConfig,
    rng: &mut impl Rng,
) -> Result<ConvFactors> {
    decompose(kernel, groups, |block| {
        let cp = cp_als(block.view().into_dyn(), rank, config, rng)?;
        let [output, input, vertical, horizontal] = cp.factors.as_slice() else {
            return Err(bad(METHOD, "the CP form has not four factors"));
        };
        let vertical = vertical.t().to_owned().insert_axis(Axis(1)).insert_axis(Axis(3));
        let horizontal = horizontal.t().to_owned().insert_axis(Axis(1)).insert_axis(Axis(2));
        Ok(vec![
            pointwise(input.t().to_owned()),
            Part { kernel: vertical, groups: rank, spatial: [true, false] },
            Part { kernel: horizontal, groups: rank, spatial: [false, true] },
            pointwise(output.clone()),
        ])
    })
}

/// Tensor train over the modes (in, kh, kw, out): `kernel` [out, in/groups, kh, kw] as 1×1, kh×1,
/// 1×kw and 1×1, with `ranks` channels for each group between them.
///
/// Source: Oseledets, "Tensor-train decomposition" (2011), algorithm 1, applied to the kernel.
///
/// # Errors
///
/// As [`spatial_svd`], with `ranks` at most [in/groups, r₁·kh, r₂·kw], and at most the product of
/// the sizes to their right.
pub fn conv_tensor_train(
    kernel: ArrayView4<f32>,
    groups: usize,
    ranks: [usize; 3],
) -> Result<ConvFactors> {
    decompose(kernel, groups, |block| {
        let train = tt_svd(block.permuted_axes([1, 2, 3, 0]).into_dyn().view(), &ranks)?;
        let [input, vertical, horizontal, output] = train.cores.as_slice() else {
            return Err(bad(METHOD, "the tensor train has not four cores"));
        };
        // A core is [inputs, size, outputs]; a kernel has its outputs first.
        let vertical = vertical.view().permuted_axes([2, 0, 1]).insert_axis(Axis(3));
        let horizontal = horizontal.view().permuted_axes([2, 0, 1]).insert_axis(Axis(2));
        Ok(vec![
            pointwise(input.index_axis(Axis(0), 0).t().to_owned()),
            Part { kernel: vertical.to_owned(), groups: 1, spatial: [true, false] },
            Part { kernel: horizontal.to_owned(), groups: 1, spatial: [false, true] },
            pointwise(output.index_axis(Axis(2), 0).t().to_owned()),
        ])
    })
}

/// Decomposes each group's block [out/groups, in/groups, kh, kw], and stacks the groups' factors
/// into grouped convolutions.
fn decompose(
    kernel: ArrayView4<f32>,
    groups: usize,
    mut part: impl FnMut(Array4<f64>) -> Result<Vec<Part>>,
) -> Result<ConvFactors> {
    check_values(METHOD, kernel.shape(), kernel.iter().copied())?;
    let outputs = kernel.len_of(Axis(0));
    check_rank(METHOD, "groups", groups, outputs)?;
    if !outputs.is_multiple_of(groups) {
        return Err(bad(
            METHOD,
            format!("{outputs} outputs, expected a multiple of {groups} groups"),
        ));
    }
    let mut stacks: Vec<Vec<Part>> = Vec::new();
    for block in kernel.axis_chunks_iter(Axis(0), outputs / groups) {
        for (position, part) in part(block.mapv(f64::from))?.into_iter().enumerate() {
            match stacks.get_mut(position) {
                Some(stack) => stack.push(part),
                None => stacks.push(vec![part]),
            }
        }
    }
    let factors = stacks.iter().map(|stack| stacked(stack)).collect::<Result<Vec<_>>>()?;
    let mut chain = ConvFactors { factors, groups, relative_error: 0.0 };
    chain.relative_error = recompose::relative_error(kernel, chain.recompose()?.view());
    Ok(chain)
}

/// The factors of all groups as one grouped convolution.
fn stacked(parts: &[Part]) -> Result<ConvFactor> {
    let views: Vec<_> = parts.iter().map(|part| part.kernel.view()).collect();
    let kernel = concatenate(Axis(0), &views)
        .map_err(|_| bad(METHOD, "the groups' factors differ in shape"))?;
    Ok(ConvFactor {
        kernel: kernel.mapv(|value| value as f32),
        groups: parts.iter().map(|part| part.groups).sum(),
        spatial: parts.first().map_or([false; 2], |part| part.spatial),
    })
}

/// A 1×1 convolution with the matrix [out, in].
fn pointwise(matrix: Array2<f64>) -> Part {
    let kernel = matrix.insert_axis(Axis(2)).insert_axis(Axis(3));
    Part { kernel, groups: 1, spatial: [false; 2] }
}

/// U·√Σ and √Σ·Vᵀ of the matrix that has the first of `axes` as its `rows`.
fn low_rank(
    block: &Array4<f64>,
    axes: [usize; 4],
    rows: usize,
    rank: usize,
) -> Result<(Array2<f64>, Array2<f64>)> {
    let columns = block.len() / rows.max(1);
    check_rank(METHOD, "rank", rank, rows.min(columns))?;
    let values = block.view().permuted_axes(axes).iter().copied().collect();
    Ok(balanced(&svd(matrix_from(rows, columns, values).view())?, rank))
}

#[cfg(test)]
mod tests;
