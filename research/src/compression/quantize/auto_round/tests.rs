//! Tests of AutoRound's gradient and of its error.

use super::super::fixtures::{ar1, gaussian, rng};
use super::*;
use crate::compression::inputs::output_error;

const SCHEMES: [Scheme; 3] = [Scheme::Symmetric, Scheme::Restricted, Scheme::Asymmetric];

/// The slopes are those of finite differences of ŵ, when rounding is the identity plus a constant
/// for values inside the range, and a clipped value keeps its code.
#[test]
fn slopes_are_derivatives() {
    let (low, high, step) = (-1.0f32, 2.0f32, 1e-2f32);
    for scheme in SCHEMES {
        let grid = Grid::new(4, None, scheme).unwrap();
        let scale = |a: f32, b: f32| match scheme {
            Scheme::Asymmetric => (high * b - low * a) / 15.0,
            Scheme::Symmetric => -high * b / 8.0,
            Scheme::Restricted => high * b / 7.0,
        };
        let params = grid.fit_range(low, high);
        for (w, offset) in [(0.33f32, 0.2f32), (-0.7, -0.4), (3.0, 0.0), (-2.5, 0.0)] {
            let u = w / params.scale;
            let steps = (u + offset).round_ties_even();
            let code = steps + f32::from(params.zero);
            let value = |a: f32, b: f32| {
                if (0.0..=15.0).contains(&code) {
                    return scale(a, b) * (w / scale(a, b) + steps - u);
                }
                // The end itself, whose zero point follows the ends.
                match scheme {
                    Scheme::Asymmetric => {
                        if w < 0.0 {
                            low * a
                        } else {
                            high * b
                        }
                    }
                    _ => scale(a, b) * (code.clamp(0.0, 15.0) - 8.0),
                }
            };
            let found = slopes(scheme, &params, steps - u, code, [low, high]);
            let both =
                (value(1.0 + step, 1.0 + step) - value(1.0 - step, 1.0 - step)) / (2.0 * step);
            let low = (value(1.0 + step, 1.0) - value(1.0 - step, 1.0)) / (2.0 * step);
            let expected = if scheme == Scheme::Asymmetric { [low, both - low] } else { [both; 2] };
            for (a, b) in found.iter().zip(expected) {
                assert!((a - b).abs() < 2e-4, "{scheme:?} {w}: {found:?} {expected:?}");
            }
        }
    }
}

/// The error on correlated inputs falls below that of round to nearest by more than a tenth.
#[test]
fn learns_correlations() {
    let w = gaussian(32, 64, &mut rng(111));
    let h = ar1(64, 0.8);
    let inputs = Inputs::from_hessian(h.clone()).unwrap();
    for scheme in SCHEMES {
        for (bits, group) in [(2, Some(32)), (4, Some(32)), (4, None)] {
            let grid = Grid::new(bits, group, scheme).unwrap();
            let error = |q: Quantized| output_error(w.view(), q.dequantize().view(), &h).unwrap();
            let nearest = error(round_nearest(w.view(), &grid));
            let found = AutoRound::DEFAULT.quantize(w.view(), &grid, Some(&inputs)).unwrap();
            let ratio = error(found) / nearest;
            println!("auto_round {scheme:?} {bits} {group:?}: {ratio:.3} of nearest");
            assert!(ratio < 0.9, "{scheme:?} {bits} {group:?} {ratio}");
        }
    }
}

/// Without correlations no offset helps; a step that does is only found in the clipping, and one
/// step alone is round to nearest.
#[test]
fn never_worse_than_nearest() {
    let w = gaussian(70, 48, &mut rng(112));
    let inputs = Inputs::from_hessian(Array2::eye(48)).unwrap();
    for scheme in SCHEMES {
        let grid = Grid::new(8, Some(20), scheme).unwrap();
        let nearest = round_nearest(w.view(), &grid);
        let found = AutoRound { steps: 5 }.quantize(w.view(), &grid, Some(&inputs)).unwrap();
        assert!(found.error(w.view()).unwrap() <= nearest.error(w.view()).unwrap());
    }
    let grid = Grid::new(4, None, Scheme::Symmetric).unwrap();
    assert!(AutoRound { steps: 0 }.quantize(w.view(), &grid, Some(&inputs)).is_err());
    assert!(AutoRound::DEFAULT.quantize(w.view(), &grid, None).is_err());
}
