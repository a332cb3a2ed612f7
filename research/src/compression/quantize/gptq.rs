//! GPTQ: columns are rounded one after another, and each column's error is spread over the columns
//! that are not rounded yet. "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
//! Transformers" (2022).

use super::factor::{damping, inverse_factor};
use super::grid::Grid;
use super::nearest::round_nearest;
use super::quantized::{Quantized, check_weight};
use super::rounding::{Rounding, needed};
use crate::compression::inputs::Inputs;
use crate::error::{Error, Result};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, Axis, Slice};
use std::ops::Range;

/// Columns whose later columns are updated in one product.
const BLOCK: usize = 128;

/// Rounds column j to ŵ_j and adds −(w_j − ŵ_j)/U_jj · U_j to the columns after it, where
/// (H + λI)⁻¹ = Uᵀ U with U upper triangular (equation 2 of the paper, in its Cholesky form).
#[derive(Debug, Clone, Copy)]
pub struct Gptq {
    /// λ as a fraction of the mean of H's diagonal.
    pub damping: f32,
    /// Whether columns with large diagonal values of H go first. The scales of all groups are then
    /// those of the weight as it was given, since the columns of a group are not neighbours.
    pub act_order: bool,
}

impl Gptq {
    /// 1 % damping, columns in their order.
    pub const DEFAULT: Self = Self { damping: 0.01, act_order: false };
}

impl Rounding for Gptq {
    fn name(&self) -> &'static str {
        "gptq"
    }

    fn quantize(
        &self,
        w: ArrayView2<f32>,
        grid: &Grid,
        inputs: Option<&Inputs>,
    ) -> Result<Quantized> {
        const METHOD: &str = "quantise by GPTQ";
        check_weight(METHOD, w)?;
        let h = needed(METHOD, inputs, w.ncols())?.hessian();
        check_damping(self.damping)?;
        let mut order: Vec<usize> = (0..w.ncols()).collect();
        if self.act_order {
            order.sort_by(|&a, &b| h[[b, b]].total_cmp(&h[[a, a]]));
        }
        let u = inverse_factor(METHOD, h, &order, damping(h, self.damping))?;
        let permuted = w.select(Axis(1), &order);
        let known = self.act_order.then(|| round_nearest(w, grid));
        spread_errors(permuted, &u, grid, &Plan { order: &order, known, first: None })
    }
}

/// Fails unless the fraction is finite and not negative.
pub(super) fn check_damping(fraction: f32) -> Result<()> {
    if fraction.is_finite() && fraction >= 0.0 {
        return Ok(());
    }
    let expected = "a finite number, at least 0";
    Err(Error::Setting { name: "damping", value: fraction.to_string(), expected })
}

/// How the columns of a sweep are rounded.
pub(super) struct Plan<'a> {
    /// The column of the weight at each position.
    pub(super) order: &'a [usize],
    /// A weight with the scales of all groups; without it a group's scales follow from its columns
    /// as they are when the sweep arrives there, and the order must be that of the weight.
    pub(super) known: Option<Quantized>,
    /// The values `[n]` that are rounded at the first position instead of the weight's.
    pub(super) first: Option<Vec<f32>>,
}

/// Rounds the columns of w, which are in the plan's order, and spreads each one's error by U.
///
/// # Errors
/// Fails if the errors grow beyond the range of floats.
pub(super) fn spread_errors(
    mut w: Array2<f32>,
    u: &Array2<f32>,
    grid: &Grid,
    plan: &Plan<'_>,
) -> Result<Quantized> {
    let (n, k) = w.dim();
    let len = grid.group_len(k);
    let mut quantized = plan.known.clone().unwrap_or_else(|| Quantized::empty(*grid, [n, k]));
    let mut start = 0;
    while start < k {
        // A group starts at the start of a block or lies in one, so that its columns hold all
        // earlier errors when its scale is computed.
        let end = if len < BLOCK { start + BLOCK / len * len } else { start / len * len + len };
        let end = end.min(start + BLOCK).min(k);
        let (columns, later) = (Slice::from(start..end), Slice::from(end..));
        let factors = u.slice_axis(Axis(0), columns);
        let errors = round_block(&w, factors, start..end, plan, &mut quantized);
        let factors = factors.slice_axis(Axis(1), later);
        general_mat_mul(-1.0, &errors, &factors, 1.0, &mut w.slice_axis_mut(Axis(1), later));
        start = end;
    }
    if let Some(scale) = quantized.scales().iter().find(|s| !s.is_finite()) {
        let message = format!("scale {scale} after spreading errors, expected smaller weights");
        return Err(Error::Compression { method: "spread errors of rounding", message });
    }
    Ok(quantized)
}

/// Rounds the columns of a block, for which U has the rows `factors`. The result is the errors
/// (w_j − ŵ_j)/U_jj, `[n, columns]`.
fn round_block(
    w: &Array2<f32>,
    factors: ArrayView2<f32>,
    block: Range<usize>,
    plan: &Plan<'_>,
    quantized: &mut Quantized,
) -> Array2<f32> {
    let (grid, (n, k), width) = (*quantized.grid(), w.dim(), block.len());
    let len = grid.group_len(k);
    let factors = factors.slice_axis(Axis(1), Slice::from(block.clone()));
    let factors: Vec<f32> = factors.iter().copied().collect();
    let mut errors = Array2::<f32>::zeros((n, width));
    for (row, values) in w.rows().into_iter().enumerate() {
        let mut part: Vec<f32> = values.iter().skip(block.start).take(width).copied().collect();
        for (i, factors) in factors.chunks_exact(width).enumerate() {
            let position = block.start + i;
            let (column, group) = (plan.order[position], plan.order[position] / len);
            if plan.known.is_none() && position.is_multiple_of(len) {
                let inside = &part[i..(i + len).min(width)];
                let after = values.iter().take(position + len).skip(block.end);
                let params = grid.fit(inside.iter().chain(after).copied());
                quantized.set_params(row, group, params);
            }
            let params = quantized.params(row, group);
            let given = plan.first.as_ref().filter(|_| position == 0);
            let code = params.code(given.map_or(part[i], |first| first[row]));
            quantized.set_code(row, column, code);
            let error = (part[i] - params.value(code)) / factors[i];
            errors[[row, i]] = error;
            let later = part[i + 1..].iter_mut().zip(&factors[i + 1..]);
            later.for_each(|(value, factor)| *value -= error * factor);
        }
    }
    errors
}

#[cfg(test)]
mod tests;
