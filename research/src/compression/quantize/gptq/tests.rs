//! Tests of GPTQ against its equations, and of its error on correlated inputs.

use super::super::fixtures::{ar1, gaussian, normal, rng};
use super::super::grid::Scheme;
use super::*;
use crate::compression::inputs::output_error;

const SCHEMES: [Scheme; 3] = [Scheme::Symmetric, Scheme::Restricted, Scheme::Asymmetric];

fn error(rounding: &dyn Rounding, w: &Array2<f32>, grid: &Grid, inputs: &Inputs) -> f64 {
    let quantized = rounding.quantize(w.view(), grid, Some(inputs)).unwrap();
    output_error(w.view(), quantized.dequantize().view(), inputs.hessian()).unwrap()
}

/// With H = I no error spreads: codes, scales and zero points are those of round to nearest.
#[test]
fn identity_is_nearest() {
    let w = gaussian(6, 300, &mut rng(81));
    let inputs = Inputs::from_hessian(Array2::eye(300)).unwrap();
    for scheme in SCHEMES {
        for group in [None, Some(32), Some(100), Some(7)] {
            for act_order in [false, true] {
                let grid = Grid::new(4, group, scheme).unwrap();
                let gptq = Gptq { act_order, ..Gptq::DEFAULT };
                let found = gptq.quantize(w.view(), &grid, Some(&inputs)).unwrap();
                assert_eq!(found, round_nearest(w.view(), &grid), "{scheme:?} {group:?}");
            }
        }
    }
}

/// Rows of a stationary AR(1) process of variance 1.
fn ar1_rows(rows: usize, k: usize, rho: f32, seed: u64) -> Array2<f32> {
    let mut rng = rng(seed);
    let mut x = gaussian(rows, k, &mut rng);
    for mut row in x.rows_mut() {
        for j in 1..k {
            row[j] = rho * row[j - 1] + (1.0 - rho * rho).sqrt() * row[j];
        }
    }
    x
}

/// 64×128 weights of 4 bits on AR(1) inputs with ρ = ½. An error is spread until the variance of its
/// input given the later inputs is left, 1 − ρ² = ¾: the errors' ratio to round to nearest is 4/3,
/// and 1.155 for root mean squares. With a Hessian of 2048 rows, that variance is smaller by the
/// share of degrees of freedom, and the published ratio of root mean squares, 1.17, appears.
#[test]
fn ratio_on_correlated_inputs() {
    let grid = Grid::new(4, None, Scheme::Asymmetric).unwrap();
    let (mut exact, mut sampled) = ([0f64; 2], [0f64; 2]);
    for seed in 0..4 {
        let w = gaussian(64, 128, &mut rng(seed));
        let mut inputs = Inputs::new(128, false);
        inputs.add(ar1_rows(2048, 128, 0.5, seed).view(), None).unwrap();
        let known = Inputs::from_hessian(ar1(128, 0.5)).unwrap();
        for (i, rounding) in [&super::super::nearest::Nearest as &dyn Rounding, &Gptq::DEFAULT]
            .into_iter()
            .enumerate()
        {
            exact[i] += error(rounding, &w, &grid, &known);
            sampled[i] += error(rounding, &w, &grid, &inputs);
        }
    }
    let (exact, sampled) = (exact[0] / exact[1], (sampled[0] / sampled[1]).sqrt());
    println!("AR(1): exact H {exact:.3}, root for 2048 rows {sampled:.3}");
    assert!((exact - 4.0 / 3.0).abs() < 0.03, "{exact}");
    assert!((sampled - 1.17).abs() < 0.02, "{sampled}");
}

/// The paper's equations 2 and 3 in plain f64: each column's error is spread by a row of the inverse
/// Hessian, from which the column is then eliminated. The result has the same codes. With the
/// Hessian that was inverted, the steps' losses (w − ŵ)²/[H⁻¹]_qq add up to the whole error.
#[test]
fn equals_the_equations() {
    for (scheme, group) in [(Scheme::Asymmetric, None), (Scheme::Symmetric, Some(5))] {
        let (n, k) = (7, 20);
        let x = ar1_rows(100, k, 0.8, 83);
        let w = gaussian(n, k, &mut rng(84));
        let mut inputs = Inputs::new(k, false);
        inputs.add(x.view(), None).unwrap();
        let grid = Grid::new(3, group, scheme).unwrap();
        let found = Gptq::DEFAULT.quantize(w.view(), &grid, Some(&inputs)).unwrap();
        let lambda = damping(inputs.hessian(), 0.01);
        let h = inputs.hessian() + &(Array2::<f32>::eye(k) * lambda);
        let mut inverse = inverse(&h.mapv(f64::from));
        let mut rest = w.mapv(f64::from);
        let mut loss = 0f64;
        for q in 0..k {
            let own = inverse[[q, q]];
            for row in 0..n {
                let params = found.params(row, q / grid.group_len(k));
                let code = params.code(rest[[row, q]] as f32);
                assert_eq!(code, found.codes()[row * k + q], "{row} {q}");
                let error = rest[[row, q]] - f64::from(params.value(code));
                loss += error * error / own;
                for j in q..k {
                    rest[[row, j]] -= error / own * inverse[[q, j]];
                }
            }
            let column = inverse.column(q).to_owned();
            for i in 0..k {
                for j in 0..k {
                    inverse[[i, j]] -= column[i] * column[j] / own;
                }
            }
        }
        let whole = output_error(w.view(), found.dequantize().view(), &h).unwrap();
        assert!((loss / whole - 1.0).abs() < 1e-4, "{loss} {whole}");
    }
}

/// The inverse by elimination without pivots, for a positive definite matrix.
fn inverse(h: &Array2<f64>) -> Array2<f64> {
    let k = h.nrows();
    let (mut h, mut inverse) = (h.clone(), Array2::eye(k));
    for p in 0..k {
        let own = h[[p, p]];
        h.row_mut(p).mapv_inplace(|v| v / own);
        inverse.row_mut(p).mapv_inplace(|v| v / own);
        for i in (0..k).filter(|&i| i != p) {
            let factor = h[[i, p]];
            let (a, b) = (h.row(p).to_owned(), inverse.row(p).to_owned());
            h.row_mut(i).scaled_add(-factor, &a);
            inverse.row_mut(i).scaled_add(-factor, &b);
        }
    }
    inverse
}

/// More damping spreads less: the error grows from GPTQ's to that of round to nearest, which it
/// becomes.
#[test]
fn damping_leads_to_nearest() {
    let w = gaussian(32, 64, &mut rng(85));
    let inputs = Inputs::from_hessian(ar1(64, 0.9)).unwrap();
    let grid = Grid::new(4, Some(16), Scheme::Asymmetric).unwrap();
    let mut last = 0f64;
    for damping in [0.01, 1.0, 10.0, 1000.0] {
        let found = error(&Gptq { damping, act_order: false }, &w, &grid, &inputs);
        assert!(found > last, "{damping}");
        last = found;
    }
    let most = Gptq { damping: 1e7, act_order: false };
    let found = most.quantize(w.view(), &grid, Some(&inputs)).unwrap();
    assert_eq!(found, round_nearest(w.view(), &grid));
}

/// Where the inputs' powers differ, rounding the strong ones first lowers the error.
#[test]
fn act_order_helps_uneven_inputs() {
    let mut rng = rng(86);
    let w = gaussian(32, 96, &mut rng);
    let mut x = ar1_rows(400, 96, 0.9, 87);
    for mut column in x.columns_mut() {
        let power = (normal(&mut rng) * 1.5).exp();
        column.mapv_inplace(|v| v * power);
    }
    let mut inputs = Inputs::new(96, false);
    inputs.add(x.view(), None).unwrap();
    let grid = Grid::new(4, None, Scheme::Asymmetric).unwrap();
    let [plain, ordered] = [false, true]
        .map(|act_order| error(&Gptq { act_order, ..Gptq::DEFAULT }, &w, &grid, &inputs));
    println!("act_order: {:.3} of the error in order", ordered / plain);
    assert!(ordered < 0.9 * plain, "{ordered} {plain}");
}

#[test]
fn refuses_what_does_not_fit() {
    let w = Array2::<f32>::ones((2, 4));
    let grid = Grid::new(4, None, Scheme::Symmetric).unwrap();
    let good = Inputs::from_hessian(Array2::eye(4)).unwrap();
    let wide = Inputs::from_hessian(Array2::eye(5)).unwrap();
    let zero = Inputs::new(4, false);
    assert!(Gptq::DEFAULT.quantize(w.view(), &grid, None).is_err());
    for inputs in [&wide, &zero] {
        assert!(Gptq::DEFAULT.quantize(w.view(), &grid, Some(inputs)).is_err());
    }
    for damping in [-1.0, f32::NAN] {
        let gptq = Gptq { damping, act_order: false };
        assert!(gptq.quantize(w.view(), &grid, Some(&good)).is_err());
    }
    // The third input hardly moves beside the second, whose error of 0.4e38 it would take over
    // 99-fold.
    let h = ndarray::arr2(&[[1.0f32, 0.0, 0.0], [0.0, 1e4, 99.0], [0.0, 99.0, 1.0]]);
    let inputs = Inputs::from_hessian(h).unwrap();
    let huge = ndarray::arr2(&[[3e38f32, 1.4e38, 1.0]]);
    let grid = Grid::new(2, Some(2), Scheme::Asymmetric).unwrap();
    let gptq = Gptq { damping: 0.0, act_order: false };
    assert!(gptq.quantize(huge.view(), &grid, Some(&inputs)).is_err());
    let undefined = (w * f32::NAN).to_owned();
    assert!(Gptq::DEFAULT.quantize(undefined.view(), &grid, Some(&good)).is_err());
}
