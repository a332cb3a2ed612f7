//! The factors of one weight within a bound of the error of its layer's outputs.

use super::layer::Layer;
use super::moment::{marginal, moment};
use crate::compression::decompose::{
    ConvFactor, ConvFactors, FactorCost, RankLimit, channel_svd_cost, spatial_svd_cost, tail_error,
    whitened_svd,
};
use crate::compression::inputs::{Inputs, output_error};
use crate::compression::sites::Site;
use crate::error::Result;
use ndarray::{Array2, Array4, Axis, Slice};

/// Ranks are multiples of this: fewer columns leave lanes of a kernel's tile idle.
const TILE: usize = 8;
/// Work `n · k · (n + k)` up to which a weight is factorised.
pub(super) const WORK_MAX: usize = 1 << 36;
/// Work `n · k²` up to which every factorisation of a convolution is tried; larger ones get the
/// channel SVD, whose error follows from its singular values.
const ALL_MAX: usize = 1 << 32;
/// The shares of the squared error that Tucker-2 spends on its outputs.
const SHARES: [f64; 2] = [0.5, 0.8];

/// What takes a weight's place.
#[derive(Debug, Clone)]
pub(super) struct Factors {
    /// The factorisation's name.
    pub(super) kind: &'static str,
    /// The factors in running order. Those of a matrix are pointwise.
    pub(super) chain: ConvFactors,
}

impl Factors {
    pub(super) fn parameters(&self) -> usize {
        self.chain.parameters()
    }
}

/// The work of one factorisation.
pub(super) fn work(site: &Site) -> usize {
    let elements = site.shape.iter().product::<usize>();
    let n = site.shape.get(site.n_axis).copied().unwrap_or(1).max(1);
    elements.saturating_mul(n.saturating_add(elements / n))
}

/// For each of `errors` the factorisations of `matrix`, as [`Site::matrix`] makes it, that have
/// fewer parameters and multiply-adds and at most that relative error of the outputs; those with
/// the fewest multiply-adds first. `inputs` are the statistics of the site.
///
/// # Errors
/// A weight that is not finite.
pub(super) fn within(
    matrix: &Array2<f32>,
    layer: Layer,
    site: &Site,
    inputs: Option<&Inputs>,
    errors: &[f64],
) -> Result<Vec<Vec<Factors>>> {
    let (n, k) = matrix.dim();
    let moment = || moment(inputs, k);
    let Layer::Convolution { strides } = layer else {
        let limit = RankLimit::new(TILE, &[FactorCost::linear(n, k)])?;
        if limit.round_up(1).is_none() {
            return Ok(Vec::new());
        }
        let spectrum = Spectrum::new(matrix, &moment())?;
        let factors = |rank| Factors { kind: "SVD", chain: spectrum.channels([n, k, 1, 1], rank) };
        let ranks = errors.iter().map(|error| limit.round_up(spectrum.rank(*error)));
        return Ok(ranks.map(|rank| rank.map(factors).into_iter().collect()).collect());
    };
    let taps = |axis: usize| site.shape.get(axis).copied().unwrap_or(1);
    let shape = [n, taps(1), taps(2), taps(3)];
    Convolution::new(matrix, moment(), shape, strides)?.within(errors)
}

/// The whitened SVD of a matrix [n, k] at full rank. Its leading columns and rows are the best
/// approximation of each rank.
pub(super) struct Spectrum {
    /// U·√Σ, [n, p].
    left: Array2<f32>,
    /// √Σ·Vᵀ·L⁻¹, [p, k].
    right: Array2<f32>,
    singular_values: Vec<f64>,
}

impl Spectrum {
    pub(super) fn new(matrix: &Array2<f32>, moment: &Array2<f64>) -> Result<Self> {
        let full = matrix.nrows().min(matrix.ncols());
        let low_rank = whitened_svd(matrix.view(), moment.view(), full)?.low_rank;
        // A column of U·√Σ has the squared length σ.
        let columns = low_rank.left.columns().into_iter();
        let singular_values =
            columns.map(|column| column.iter().map(|v| f64::from(*v).powi(2)).sum()).collect();
        Ok(Self { left: low_rank.left, right: low_rank.right, singular_values })
    }

    /// The least rank with at most this relative error.
    fn rank(&self, error: f64) -> usize {
        let full = self.singular_values.len();
        (0..full).find(|rank| tail_error(&self.singular_values, *rank) <= error).unwrap_or(full)
    }

    /// The factors [n, rank] and [rank, k].
    fn cut(&self, rank: usize) -> (Array2<f32>, Array2<f32>) {
        let part = Slice::from(..rank);
        let left = self.left.slice_axis(Axis(1), part).to_owned();
        (left, self.right.slice_axis(Axis(0), part).to_owned())
    }

    /// The factors of a kernel [out, in, kh, kw] whose matrix this is: kh×kw, then 1×1.
    pub(super) fn channels(
        &self,
        [n, inputs, height, width]: [usize; 4],
        rank: usize,
    ) -> ConvFactors {
        let (left, right) = self.cut(rank);
        let kernel = Array4::from_shape_fn((rank, inputs, height, width), |(r, i, h, w)| {
            right[[r, (i * height + h) * width + w]]
        });
        let last = Array4::from_shape_fn((n, rank, 1, 1), |(o, r, _, _)| left[[o, r]]);
        let relative_error = tail_error(&self.singular_values, rank);
        chain([(kernel, [true; 2]), (last, [false; 2])], relative_error)
    }
}

fn chain<const N: usize>(kernels: [(Array4<f32>, [bool; 2]); N], error: f64) -> ConvFactors {
    let factor = |(kernel, spatial)| ConvFactor { kernel, groups: 1, spatial };
    let factors = kernels.into_iter().map(factor).collect();
    ConvFactors { factors, groups: 1, relative_error: error }
}

/// The kernel of a convolution as a matrix, and what its factors must keep.
struct Convolution<'a> {
    matrix: &'a Array2<f32>,
    moment: Array2<f64>,
    /// The second moment again: errors are taken often, and need no more digits.
    hessian: Array2<f32>,
    /// The mean square of the outputs.
    energy: f64,
    /// [out, in, kh, kw].
    shape: [usize; 4],
    strides: [usize; 2],
}

impl<'a> Convolution<'a> {
    fn new(
        matrix: &'a Array2<f32>,
        moment: Array2<f64>,
        shape: [usize; 4],
        strides: [usize; 2],
    ) -> Result<Self> {
        let hessian = moment.mapv(|value| value as f32);
        let energy = output_error(matrix.view(), Array2::zeros(matrix.dim()).view(), &hessian)?;
        Ok(Self { matrix, moment, hessian, energy, shape, strides })
    }

    /// The factorisations within each error, those with the fewest multiply-adds first.
    fn within(&self, errors: &[f64]) -> Result<Vec<Vec<Factors>>> {
        let [n, inputs, height, width] = self.shape;
        let k = inputs * height * width;
        let channels = Spectrum::new(self.matrix, &self.moment)?;
        let all = n.saturating_mul(k).saturating_mul(k) <= ALL_MAX;
        let columns = (all && height > 1 && width > 1).then(|| self.columns()).transpose()?;
        let limit = RankLimit::new(TILE, &channel_svd_cost(self.shape, 1))?;
        let cost = |it: &Factors| it.chain.multiply_adds(self.strides);
        let within = |error: &f64| {
            let mut found = Vec::new();
            let rank = limit.round_up(channels.rank(*error));
            let chain = rank.map(|rank| channels.channels(self.shape, rank));
            found.extend(chain.map(|chain| Factors { kind: "channel SVD", chain }));
            if let Some(columns) = &columns {
                let chain = self.spatial(columns, *error)?;
                found.extend(chain.map(|chain| Factors { kind: "spatial SVD", chain }));
            }
            if all && height * width > 1 {
                let chains = SHARES.map(|share| self.tucker(&channels, *error, share));
                let chains = chains.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten();
                let tucker = chains.map(|chain| Factors { kind: "Tucker-2", chain });
                found.extend(tucker.min_by_key(cost));
            }
            let dense = self.matrix.len();
            found.retain(|it| it.parameters() < dense && cost(it) < dense);
            found.sort_by_key(cost);
            Ok(found)
        };
        errors.iter().map(within).collect()
    }

    /// The kernel's SVD between rows and columns of taps, whitened by the inputs of one column.
    fn columns(&self) -> Result<Spectrum> {
        let [n, inputs, height, width] = self.shape;
        let turned = Array2::from_shape_fn((n * width, inputs * height), |(row, column)| {
            self.matrix[[row / width, column * width + row % width]]
        });
        Spectrum::new(&turned, &marginal(&self.moment, width))
    }

    /// The spatial SVD.
    fn spatial(&self, spectrum: &Spectrum, bound: f64) -> Result<Option<ConvFactors>> {
        let [n, inputs, height, width] = self.shape;
        let limit = RankLimit::new(TILE, &spatial_svd_cost(self.shape, 1, self.strides))?;
        let Some(most) = limit.round_down(usize::MAX) else { return Ok(None) };
        let error = |rank| {
            let (left, right) = spectrum.cut(rank);
            let product = left.dot(&right);
            let back =
                |(o, column): (usize, usize)| product[[o * width + column % width, column / width]];
            self.error_of(&Array2::from_shape_fn(self.matrix.dim(), back))
        };
        let Some((rank, relative_error)) = least(most, bound, error)? else { return Ok(None) };
        let (left, right) = spectrum.cut(rank);
        let vertical = Array4::from_shape_fn((rank, inputs, height, 1), |(r, i, h, _)| {
            right[[r, i * height + h]]
        });
        let horizontal =
            Array4::from_shape_fn((n, rank, 1, width), |(o, r, _, w)| left[[o * width + w, r]]);
        let kernels = [(vertical, [true, false]), (horizontal, [false, true])];
        Ok(Some(chain(kernels, relative_error)))
    }

    /// Tucker-2, one mode after the other (Vannieuwenhoven 2012, "A new truncation strategy for the
    /// higher-order singular value decomposition"): the outputs by the channel SVD with a `share`
    /// of the squared error, then the inputs, whitened by the inputs of one tap.
    fn tucker(&self, channels: &Spectrum, bound: f64, share: f64) -> Result<Option<ConvFactors>> {
        let [n, inputs, height, width] = self.shape;
        let taps = height * width;
        let outer = channels.rank(bound * share.sqrt()).max(1).next_multiple_of(TILE);
        let full = inputs.min(outer * taps);
        let most = full.saturating_sub(1) / TILE * TILE;
        if outer >= n || outer > channels.singular_values.len() || most == 0 {
            return Ok(None);
        }
        let (mut left, mut right) = channels.cut(outer);
        // Orthonormal columns, so that the errors of all rows count alike.
        for (r, sigma) in channels.singular_values.iter().take(outer).enumerate() {
            let root = sigma.sqrt() as f32;
            if root > 0. {
                left.column_mut(r).mapv_inplace(|value| value / root);
                right.row_mut(r).mapv_inplace(|value| value * root);
            }
        }
        let turned = Array2::from_shape_fn((outer * taps, inputs), |(row, i)| {
            right[[row / taps, i * taps + row % taps]]
        });
        let spectrum = Spectrum::new(&turned, &marginal(&self.moment, taps))?;
        let error = |rank| {
            let (core, input) = spectrum.cut(rank);
            let product = core.dot(&input);
            let back =
                |(r, column): (usize, usize)| product[[r * taps + column % taps, column / taps]];
            self.error_of(&left.dot(&Array2::from_shape_fn(right.dim(), back)))
        };
        let Some((rank, relative_error)) = least(most, bound, error)? else { return Ok(None) };
        let (core, input) = spectrum.cut(rank);
        let input = Array4::from_shape_fn((rank, inputs, 1, 1), |(r, i, _, _)| input[[r, i]]);
        let core = Array4::from_shape_fn((outer, rank, height, width), |(o, i, h, w)| {
            core[[o * taps + h * width + w, i]]
        });
        let output = Array4::from_shape_fn((n, outer, 1, 1), |(o, r, _, _)| left[[o, r]]);
        let kernels = [(input, [false; 2]), (core, [true; 2]), (output, [false; 2])];
        Ok(Some(chain(kernels, relative_error)))
    }

    /// The relative error of the outputs.
    fn error_of(&self, approximation: &Array2<f32>) -> Result<f64> {
        let error = output_error(self.matrix.view(), approximation.view(), &self.hessian)?;
        Ok(if self.energy > 0. { (error.max(0.) / self.energy).sqrt() } else { 0. })
    }
}

/// The least multiple of [`TILE`] up to `most` whose error is within the bound, and that error. The
/// error is taken to fall with the rank, so halving finds it.
fn least(
    most: usize,
    bound: f64,
    error: impl Fn(usize) -> Result<f64>,
) -> Result<Option<(usize, f64)>> {
    let (mut low, mut high) = (0, most / TILE);
    let mut found = error(high * TILE)?;
    if found > bound {
        return Ok(None);
    }
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        let now = error(middle * TILE)?;
        if now <= bound {
            (high, found) = (middle, now);
        } else {
            low = middle;
        }
    }
    Ok(Some((high * TILE, found)))
}
