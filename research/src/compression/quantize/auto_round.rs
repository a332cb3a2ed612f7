//! AutoRound: an offset for each weight's rounding and a clipping for each group, learnt by signed
//! gradient descent on the error of the layer's outputs. "Optimize Weight Rounding via Signed
//! Gradient Descent for the Quantization of LLMs" (2023).

use super::grid::{Grid, GroupParams, Scheme};
use super::nearest::round_nearest;
use super::quantized::{Quantized, check_weight};
use super::rounding::{Rounding, needed};
use crate::compression::inputs::Inputs;
use crate::error::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis};

/// Rows that are learnt at once; rows do not depend on each other, so this only bounds the memory.
const ROWS: usize = 64;

/// Minimises tr(D H Dᵀ), D = Ŵ − W, over offsets v in [−½, ½] in ŵ = s·(clamp(round(w/s + v) + z) −
/// z) and factors up to 1 on each group's largest and smallest value. The gradient passes through
/// the rounding as through the identity. The best step of each row counts, the first of which is
/// round to nearest.
///
/// Each step costs a product of n·k² multiplications.
#[derive(Debug, Clone, Copy)]
pub struct AutoRound {
    /// Steps; the rate falls linearly from 1/steps to 0.
    pub steps: usize,
}

impl AutoRound {
    /// 200 steps, as in the paper.
    pub const DEFAULT: Self = Self { steps: 200 };
}

impl Rounding for AutoRound {
    fn name(&self) -> &'static str {
        "auto_round"
    }

    fn quantize(
        &self,
        w: ArrayView2<f32>,
        grid: &Grid,
        inputs: Option<&Inputs>,
    ) -> Result<Quantized> {
        const METHOD: &str = "quantise by AutoRound";
        check_weight(METHOD, w)?;
        let h = needed(METHOD, inputs, w.ncols())?.hessian();
        if self.steps == 0 {
            let expected = "at least 1";
            return Err(Error::Setting { name: "steps", value: "0".into(), expected });
        }
        let mut best = round_nearest(w, grid);
        for (part, rows) in w.axis_chunks_iter(Axis(0), ROWS).enumerate() {
            let mut learner = Learner::new(rows, *grid);
            for step in 0..=self.steps {
                learner.descend(h, self.rate(step), part * ROWS, &mut best);
            }
        }
        Ok(best)
    }
}

impl AutoRound {
    fn rate(&self, step: usize) -> f32 {
        (self.steps - step) as f32 / (self.steps * self.steps) as f32
    }
}

/// What is learnt for some rows.
struct Learner<'a> {
    w: ArrayView2<'a, f32>,
    grid: Grid,
    /// v, `[rows, k]`.
    offsets: Array2<f32>,
    groups: Vec<Group>,
    /// The smallest loss so far of each row.
    losses: Vec<f64>,
}

/// The range of a group, and the factors on its ends.
#[derive(Clone, Copy)]
struct Group {
    low: f32,
    high: f32,
    low_factor: f32,
    high_factor: f32,
}

impl<'a> Learner<'a> {
    fn new(w: ArrayView2<'a, f32>, grid: Grid) -> Self {
        let len = grid.group_len(w.ncols());
        let range = |part: ArrayView2<f32>| Group {
            low: part.iter().fold(0f32, |low, &v| low.min(v)),
            high: part.iter().fold(0f32, |high, &v| high.max(v)),
            low_factor: 1.0,
            high_factor: 1.0,
        };
        let rows = w.axis_chunks_iter(Axis(0), 1);
        let groups =
            rows.flat_map(|row| row.axis_chunks_iter(Axis(1), len).map(range).collect::<Vec<_>>());
        let (groups, losses) = (groups.collect(), vec![f64::INFINITY; w.nrows()]);
        Self { w, grid, offsets: Array2::zeros(w.dim()), groups, losses }
    }

    fn params(&self, group: usize) -> GroupParams {
        let Group { low, high, low_factor, high_factor } = self.groups[group];
        self.grid.fit_range(low * low_factor, high * high_factor)
    }

    /// Keeps rows that are the best so far, then moves against the gradient.
    fn descend(&mut self, h: &Array2<f32>, rate: f32, first: usize, best: &mut Quantized) {
        let (rows, k) = self.w.dim();
        let len = self.grid.group_len(k);
        let groups = self.grid.groups(k);
        let params: Vec<GroupParams> = (0..rows * groups).map(|g| self.params(g)).collect();
        let at = |row: usize, column: usize| params[row * groups + column / len];
        let codes = Array2::from_shape_fn((rows, k), |(i, j)| {
            let p = at(i, j);
            p.clamp((self.w[[i, j]] / p.scale + self.offsets[[i, j]]).round_ties_even())
        });
        let d = Array2::from_shape_fn((rows, k), |(i, j)| {
            at(i, j).value(codes[[i, j]]) - self.w[[i, j]]
        });
        let gradient = d.dot(h);
        for row in 0..rows {
            let products = d.row(row).into_iter().zip(gradient.row(row));
            let loss: f64 = products.map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
            if loss < self.losses[row] {
                self.losses[row] = loss;
                for group in 0..groups {
                    best.set_params(first + row, group, params[row * groups + group]);
                }
                for column in 0..k {
                    best.set_code(first + row, column, codes[[row, column]]);
                }
            }
            for group in 0..groups {
                self.step(row, group, &params[row * groups + group], &gradient, rate);
            }
        }
    }

    /// One signed step of a group's offsets and factors.
    fn step(
        &mut self,
        row: usize,
        group: usize,
        params: &GroupParams,
        gradient: &Array2<f32>,
        rate: f32,
    ) {
        let k = self.w.ncols();
        let len = self.grid.group_len(k);
        let at = row * self.grid.groups(k) + group;
        let Group { low, high, .. } = self.groups[at];
        let (mut low_slope, mut high_slope) = (0f64, 0f64);
        for column in group * len..(group * len + len).min(k) {
            let slope = gradient[[row, column]];
            let u = self.w[[row, column]] / params.scale;
            let steps = (u + self.offsets[[row, column]]).round_ties_even();
            let code = steps + f32::from(params.zero);
            let [from_low, from_high] =
                slopes(self.grid.scheme(), params, steps - u, code, [low, high]);
            low_slope += f64::from(slope * from_low);
            high_slope += f64::from(slope * from_high);
            if (0.0..=f32::from(params.code_max)).contains(&code) {
                let offset = &mut self.offsets[[row, column]];
                *offset = (*offset - rate * sign(slope * params.scale)).clamp(-0.5, 0.5);
            }
        }
        let moved = |factor: f32, slope: f64| (factor - rate * sign(slope as f32)).min(1.0);
        let group = &mut self.groups[at];
        group.low_factor = moved(group.low_factor, low_slope);
        group.high_factor = moved(group.high_factor, high_slope);
    }
}

/// ∂ŵ/∂(factor of the low and of the high end), up to one positive factor for both schemes of one
/// factor. Inside the range ŵ = s·steps with s linear in the ends; a clipped ŵ is the end itself.
fn slopes(
    scheme: Scheme,
    params: &GroupParams,
    rest: f32,
    code: f32,
    [low, high]: [f32; 2],
) -> [f32; 2] {
    let code_max = f32::from(params.code_max);
    let inside = (0.0..=code_max).contains(&code);
    match scheme {
        Scheme::Asymmetric if inside => [-rest * low / code_max, rest * high / code_max],
        Scheme::Asymmetric if code < 0.0 => [low, 0.0],
        Scheme::Asymmetric => [0.0, high],
        Scheme::Symmetric | Scheme::Restricted => {
            let steps = code.clamp(0.0, code_max) - f32::from(params.zero);
            let slope = params.scale * if inside { rest } else { steps };
            [slope, slope]
        }
    }
}

fn sign(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.signum() }
}

#[cfg(test)]
mod tests;
