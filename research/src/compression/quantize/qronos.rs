//! Qronos: GPTQ for a layer whose inputs already carry errors of earlier layers and of rounded
//! activations. "Qronos: Correcting the Past by Shaping the Future... in Post-Training
//! Quantization" (2025).

use super::factor::{damping, inverse_factor};
use super::gptq::{Gptq, Plan, check_damping, spread_errors};
use super::grid::Grid;
use super::quantized::{Quantized, check_weight};
use super::rounding::{Rounding, needed};
use crate::compression::inputs::Inputs;
use crate::error::Result;
use ndarray::{Array2, ArrayView2};

/// Minimises E|W x − Ŵ x̃|² over Ŵ on the grid, with x the inputs of the float model and x̃ those of
/// the rounded one: H = E[x̃ x̃ᵀ], G = E[x̃ xᵀ].
///
/// The first column is rounded from the value that is best for it while the others stay,
/// (G_0 w − Σ_{j≥1} H_0j w_j) / H_00. The others then take the values that are best for the rounded
/// first, and errors spread as in GPTQ. The latter two are GPTQ of the least-squares target
/// (H + λI)⁻¹ (G + λI) w. Without G the target is w itself, and the method is GPTQ.
#[derive(Debug, Clone, Copy)]
pub struct Qronos {
    /// λ as a fraction of the mean of H's diagonal.
    pub damping: f32,
}

impl Qronos {
    /// 1 % damping.
    pub const DEFAULT: Self = Self { damping: 0.01 };
}

impl Rounding for Qronos {
    fn name(&self) -> &'static str {
        "qronos"
    }

    fn quantize(
        &self,
        w: ArrayView2<f32>,
        grid: &Grid,
        inputs: Option<&Inputs>,
    ) -> Result<Quantized> {
        const METHOD: &str = "quantise by Qronos";
        check_weight(METHOD, w)?;
        let stats = needed(METHOD, inputs, w.ncols())?;
        check_damping(self.damping)?;
        let h = stats.hessian();
        let Some(g) = stats.cross() else {
            return Gptq { damping: self.damping, act_order: false }.quantize(w, grid, inputs);
        };
        let lambda = damping(h, self.damping);
        let order: Vec<usize> = (0..w.ncols()).collect();
        let u = inverse_factor(METHOD, h, &order, lambda)?;
        let first = first_column(w, h, g);
        let mut target = w.dot(&g.t());
        target.scaled_add(lambda, &w);
        let target = target.dot(&u.t()).dot(&u);
        let plan = Plan { order: &order, known: None, first: Some(first) };
        spread_errors(target, &u, grid, &plan)
    }
}

/// The best value `[n]` of the first column while the others stay as they are.
fn first_column(w: ArrayView2<f32>, h: &Array2<f32>, g: &Array2<f32>) -> Vec<f32> {
    let own = h[[0, 0]];
    let difference = &g.row(0) - &h.row(0);
    let corrected = |row: ndarray::ArrayView1<f32>| {
        // A first input that is always 0 asks for nothing.
        if own > 0.0 { row[0] + row.dot(&difference) / own } else { row[0] }
    };
    w.rows().into_iter().map(corrected).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::super::grid::Scheme;
    use super::*;
    use faer::linalg::solvers::Solve;

    /// Correlated inputs x, and x̃ with the error that an earlier layer might leave.
    fn mismatched(rows: usize, k: usize, noise: f32, seed: u64) -> (Array2<f32>, Array2<f32>) {
        let mut rng = rng(seed);
        let mix = gaussian(k, k, &mut rng) * 0.5 + Array2::<f32>::eye(k);
        let x = gaussian(rows, k, &mut rng).dot(&mix);
        // A gain on each input, which the weight can undo, and noise.
        let gains = gaussian(1, k, &mut rng) * noise + 1.0;
        let rounded = &x * &gains.row(0) + gaussian(rows, k, &mut rng) * noise;
        (x, rounded)
    }

    fn mismatch_error(
        w: &Array2<f32>,
        what: &Array2<f32>,
        x: &Array2<f32>,
        y: &Array2<f32>,
    ) -> f64 {
        let d = x.dot(&w.t()) - y.dot(&what.t());
        d.iter().map(|&d| f64::from(d).powi(2)).sum::<f64>() / x.nrows() as f64
    }

    /// E|W x − Ŵ x̃|² is lower than GPTQ's and round to nearest's, which do not see x.
    #[test]
    fn corrects_the_inputs() {
        let w = gaussian(32, 48, &mut rng(91));
        let (x, rounded) = mismatched(1000, 48, 0.1, 92);
        let mut inputs = Inputs::new(48, true);
        inputs.add(rounded.view(), Some(x.view())).unwrap();
        for (bits, factor) in [(3, 0.9), (4, 0.6), (8, 0.4)] {
            let grid = Grid::new(bits, Some(16), Scheme::Asymmetric).unwrap();
            let methods: [&dyn Rounding; 3] =
                [&Qronos::DEFAULT, &Gptq::DEFAULT, &super::super::nearest::Nearest];
            let [found, gptq, nearest] = methods.map(|method| {
                let what = method.quantize(w.view(), &grid, Some(&inputs)).unwrap().dequantize();
                mismatch_error(&w, &what, &x, &rounded)
            });
            println!(
                "qronos {bits} bits: {:.3} of GPTQ, {:.3} of nearest",
                found / gptq,
                found / nearest
            );
            assert!(found < factor * gptq && found < factor * nearest, "{found} {gptq} {nearest}");
        }
    }

    /// The paper's two steps for each column, by least squares over the rows in f64: round the value
    /// that is best while the later weights stay, then give these the values that are best. Codes
    /// agree, since both forms of the paper's algorithm are equivalent.
    #[test]
    fn equals_the_equations() {
        let (n, k) = (5, 8);
        let w = gaussian(n, k, &mut rng(93));
        let (x, rounded) = mismatched(60, k, 0.2, 94);
        let mut inputs = Inputs::new(k, true);
        inputs.add(rounded.view(), Some(x.view())).unwrap();
        let grid = Grid::new(4, None, Scheme::Asymmetric).unwrap();
        let qronos = Qronos { damping: 1e-6 };
        let found = qronos.quantize(w.view(), &grid, Some(&inputs)).unwrap();
        let (x, y) = (x.mapv(f64::from), rounded.mapv(f64::from));
        for row in 0..n {
            let params = found.params(row, 0);
            let mut weights: Vec<f64> = w.row(row).iter().map(|&v| f64::from(v)).collect();
            let mut rest = x.dot(&w.row(row).mapv(f64::from));
            for t in 0..k {
                let mut wanted = rest.clone();
                for (j, weight) in weights.iter().enumerate().skip(t + 1) {
                    wanted.scaled_add(-weight, &y.column(j));
                }
                let best = y.column(t).dot(&wanted) / y.column(t).dot(&y.column(t));
                let code = params.code(best as f32);
                assert_eq!(code, found.codes()[row * k + t], "{row} {t} {best}");
                rest.scaled_add(-f64::from(params.value(code)), &y.column(t));
                let later = faer::Mat::from_fn(y.nrows(), k - t - 1, |i, j| y[[i, t + 1 + j]]);
                let wanted = faer::Mat::from_fn(y.nrows(), 1, |i, _| rest[i]);
                let normal = later.transpose() * &later;
                let right = later.transpose() * &wanted;
                let solution = normal.full_piv_lu().solve(&right);
                weights.iter_mut().skip(t + 1).enumerate().for_each(|(j, v)| *v = solution[(j, 0)]);
            }
        }
    }

    /// Without a mismatch the method is GPTQ: bit for bit without G, and in error with G = H.
    #[test]
    fn without_mismatch_is_gptq() {
        let w = gaussian(16, 40, &mut rng(95));
        let (x, _) = mismatched(200, 40, 0.0, 96);
        let (mut plain, mut same) = (Inputs::new(40, false), Inputs::new(40, true));
        plain.add(x.view(), None).unwrap();
        same.add(x.view(), Some(x.view())).unwrap();
        let grid = Grid::new(4, Some(8), Scheme::Symmetric).unwrap();
        let gptq = Gptq::DEFAULT.quantize(w.view(), &grid, Some(&plain)).unwrap();
        assert_eq!(Qronos::DEFAULT.quantize(w.view(), &grid, Some(&plain)).unwrap(), gptq);
        let found = Qronos::DEFAULT.quantize(w.view(), &grid, Some(&same)).unwrap();
        let [a, b] = [gptq, found].map(|q| mismatch_error(&w, &q.dequantize(), &x, &x));
        assert!((a / b - 1.0).abs() < 0.02, "{a} {b}");
        assert!(Qronos::DEFAULT.quantize(w.view(), &grid, None).is_err());
    }
}
