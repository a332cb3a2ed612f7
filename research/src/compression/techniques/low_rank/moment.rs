//! The second moments of a layer's inputs, as far as the samples let them be known.

use crate::compression::inputs::Inputs;
use ndarray::Array2;

/// The least shrinkage of the inputs' second moment: vectors of one run are not independent.
const SHRINKAGE_MIN: f64 = 0.01;
/// The second moment of the inputs, drawn towards that of independent inputs,
/// so that directions which few samples happen to lack are not free. Without statistics it is that
/// of independent inputs.
///
/// Source: Chen et al., "Shrinkage algorithms for MMSE covariance estimation" (2010), equation 23
/// (OAS).
pub(super) fn moment(inputs: Option<&Inputs>, k: usize) -> Array2<f64> {
    let hessian = inputs.map(Inputs::hessian).filter(|hessian| hessian.dim() == (k, k));
    let trace = |h: &Array2<f32>| h.diag().iter().map(|v| f64::from(*v)).sum::<f64>();
    let Some(hessian) = hessian.filter(|hessian| trace(hessian) > 0.) else {
        return Array2::eye(k);
    };
    let vectors = inputs.map_or(0, Inputs::rows);
    let (trace, size, count) = (trace(hessian), k as f64, vectors as f64);
    let square: f64 = hessian.iter().map(|v| f64::from(*v).powi(2)).sum();
    let spread = (square - trace * trace / size) * (count + 1. - 2. / size);
    let share = ((1. - 2. / size) * square + trace * trace) / spread;
    // Equal variances in all directions have no spread, and need no shrinkage either.
    let share = if spread > 0. { share.clamp(SHRINKAGE_MIN, 1.) } else { 1. };
    // Sums in another order leave the two halves a little different.
    Array2::from_shape_fn((k, k), |(i, j)| {
        let half = f64::midpoint(f64::from(hessian[[i, j]]), f64::from(hessian[[j, i]]));
        (1. - share) * half + if i == j { share * trace / size } else { 0. }
    })
}

/// The second moment of inputs at one place, as the mean over `taps` places.
pub(super) fn marginal(moment: &Array2<f64>, taps: usize) -> Array2<f64> {
    let k = moment.nrows() / taps;
    let at = |i, j| (0..taps).map(|t| moment[[i * taps + t, j * taps + t]]).sum::<f64>();
    Array2::from_shape_fn((k, k), |(i, j)| at(i, j) / taps as f64)
}
