//! Half-quadratic quantisation, which needs no inputs: scales and zero points that minimise a norm
//! under which a few large errors count less. "Half-Quadratic Quantization of Large Machine
//! Learning Models" (2023).

use super::grid::{Grid, GroupParams, Scheme};
use super::nearest::round_nearest;
use super::quantized::{Quantized, check_weight};
use super::rounding::Rounding;
use crate::compression::inputs::Inputs;
use crate::error::Result;
use ndarray::ArrayView2;

/// The norm Σ|w − ŵ|^p that is minimised.
const P: f32 = 0.7;

/// The first weight of the quadratic term, for errors in units of the scale, and its growth.
const BETA: f32 = 10.0;
const GROWTH: f32 = 1.01;
const STEPS: usize = 20;

/// Splits the errors into large ones e and a rest, in turn: e shrinks towards 0 by the proximal
/// operator of the norm, then the zero point is the mean of q − (w/s − e) and the scale is the
/// least-squares fit of w − s·e. The paper keeps the scale and has a zero point that is not whole;
/// a grid's zero point is a code, so the scale takes the part that rounding it leaves.
#[derive(Debug, Clone, Copy)]
pub struct Hqq;

impl Rounding for Hqq {
    fn name(&self) -> &'static str {
        "hqq"
    }

    fn quantize(&self, w: ArrayView2<f32>, grid: &Grid, _: Option<&Inputs>) -> Result<Quantized> {
        check_weight("quantise by HQQ", w)?;
        let k = w.ncols();
        let len = grid.group_len(k);
        let mut quantized = round_nearest(w, grid);
        for (row, values) in w.rows().into_iter().enumerate() {
            let values = values.to_vec();
            for (group, part) in values.chunks(len).enumerate() {
                let params = solve(part, quantized.params(row, group), grid.scheme());
                quantized.set_params(row, group, params);
                for (i, &value) in part.iter().enumerate() {
                    quantized.set_code(row, group * len + i, params.code(value));
                }
            }
        }
        Ok(quantized)
    }
}

/// The best parameters on the way from the given ones; the norm need not fall in each turn.
fn solve(w: &[f32], start: GroupParams, scheme: Scheme) -> GroupParams {
    let (mut best, mut best_norm) = (start, norm(w, &start));
    let (mut params, mut beta) = (start, BETA);
    for _ in 0..STEPS {
        let step = refit(w, &params, beta, scheme);
        if step == params || !step.scale.is_normal() {
            break;
        }
        params = step;
        beta *= GROWTH;
        let reached = norm(w, &params);
        if reached < best_norm {
            (best, best_norm) = (params, reached);
        }
    }
    best
}

/// One turn of both updates.
fn refit(w: &[f32], params: &GroupParams, beta: f32, scheme: Scheme) -> GroupParams {
    let GroupParams { scale, zero, code_max } = *params;
    // Each element as its code and its value without the large error, both in units of the scale.
    let parts = w.iter().map(|&w| {
        let (u, code) = (w / scale, f32::from(params.code(w)));
        (code, u - shrink(u - (code - f32::from(zero)), beta))
    });
    let shift: f32 = parts.clone().map(|(code, rest)| code - rest).sum();
    let zero = match scheme {
        Scheme::Asymmetric => {
            (shift / w.len() as f32).round_ties_even().clamp(0.0, f32::from(code_max)) as u8
        }
        Scheme::Symmetric | Scheme::Restricted => zero,
    };
    let (dot, square) = parts.fold((0f32, 0f32), |(dot, square), (code, rest)| {
        let steps = code - f32::from(zero);
        (dot + steps * rest, square + steps * steps)
    });
    let scale = if square > 0.0 { scale * dot / square } else { scale };
    GroupParams { scale, zero, code_max }
}

/// sign(x) · max(|x| − |x|^(p−1) / β, 0), the proximal operator of the norm.
fn shrink(x: f32, beta: f32) -> f32 {
    let size = x.abs();
    if size == 0.0 { 0.0 } else { (size - size.powf(P - 1.0) / beta).max(0.0).copysign(x) }
}

fn norm(w: &[f32], params: &GroupParams) -> f64 {
    w.iter().map(|&w| f64::from((w - params.value(params.code(w))).abs().powf(P))).sum()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng, sqnr_db};
    use super::super::grid::Scheme;
    use super::*;

    fn total_norm(w: &ndarray::Array2<f32>, quantized: &Quantized) -> f64 {
        let pairs = w.iter().zip(quantized.dequantize());
        pairs.map(|(a, b)| f64::from((a - b).abs().powf(P))).sum()
    }

    /// The norm falls for normal weights and for weights with heavy tails (cubes of normal ones).
    #[test]
    fn norm_falls() {
        let normal = gaussian(64, 256, &mut rng(101));
        for (name, w) in [("cubes", normal.mapv(|v| v * v * v)), ("normal", normal)] {
            for scheme in [Scheme::Symmetric, Scheme::Restricted, Scheme::Asymmetric] {
                for bits in [3, 4] {
                    let grid = Grid::new(bits, Some(64), scheme).unwrap();
                    let [nearest, found] = [
                        round_nearest(w.view(), &grid),
                        Hqq.quantize(w.view(), &grid, None).unwrap(),
                    ];
                    let ratio = total_norm(&w, &found) / total_norm(&w, &nearest);
                    let [a, b] =
                        [&nearest, &found].map(|q| sqnr_db(w.view(), q.dequantize().view()));
                    println!("hqq {name} {scheme:?} {bits}: norm {ratio:.3}, dB {a:.2} to {b:.2}");
                    assert!(ratio < 0.99, "{name} {scheme:?} {bits} {ratio}");
                }
            }
        }
    }

    /// The operator is 0 for small values, odd, and takes less from larger values.
    #[test]
    fn proximal_operator() {
        assert_eq!((shrink(0.0, BETA), shrink(0.1, BETA), shrink(-0.1, BETA)), (0.0, 0.0, -0.0));
        for x in [0.3f32, 1.0, 10.0] {
            let taken = x - shrink(x, BETA);
            assert!(
                (taken - x.powf(-0.3) / 10.0).abs() < 1e-6 && shrink(-x, BETA) == -shrink(x, BETA)
            );
        }
    }

    /// Weights on a grid stay as they are.
    #[test]
    fn exact_weights() {
        let w = ndarray::Array2::from_shape_fn((2, 16), |(_, j)| j as f32 - 7.0);
        for scheme in [Scheme::Symmetric, Scheme::Asymmetric] {
            let grid = Grid::new(4, None, scheme).unwrap();
            let found = Hqq.quantize(w.view(), &grid, None).unwrap();
            assert_eq!(found.error(w.view()).unwrap(), 0.0);
        }
        let zeros = ndarray::Array2::zeros((1, 4));
        let grid = Grid::new(2, None, Scheme::Asymmetric).unwrap();
        assert_eq!(Hqq.quantize(zeros.view(), &grid, None).unwrap().scales(), [1.0]);
    }
}
