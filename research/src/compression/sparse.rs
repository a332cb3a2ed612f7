//! Unstructured and patterned sparsity of a layer's weights, and how it is divided among layers.
//!
//! A weight is `[n outputs, k inputs]`, and the layer computes `y = W x`.

mod allocate;
mod exact_obs;
mod magnitude;
mod obs;
mod pattern;
mod sparse_gpt;
mod synflow;
mod wanda;

use ndarray::{Array2, ArrayView2};

use super::inputs::Inputs;
use crate::error::{Error, Result};

pub use allocate::{
    ALLOCATIONS, Allocation, Erk, GlobalMagnitude, Lamp, Layer, Uniform, allocation, lamp_scores,
};
pub use exact_obs::ExactObs;
pub use magnitude::Magnitude;
pub use obs::{eliminate, inverse_cholesky, inverse_hessian, remove_weight, saliency};
pub(in crate::compression) use pattern::lowest;
pub use pattern::{Pattern, Scope, mask};
pub use sparse_gpt::SparseGpt;
pub use synflow::{synflow_masks, synflow_scores};
pub use wanda::Wanda;

/// A method that sets weights of a layer to zero.
pub trait Sparsifier: Sync {
    /// The method's name in the table.
    fn name(&self) -> &'static str;

    /// Returns `w`, `[n outputs, k inputs]`, with exact zeros in `pattern`.
    ///
    /// `sparsity` is the fraction of zeros, in [0, 1). An N:M pattern fixes it at 1 − n/m.
    ///
    /// # Errors
    /// Returns an error if a value is not finite, if shapes do not fit the pattern or each other,
    /// or if the method needs inputs or gradients that are absent.
    fn prune(
        &self,
        w: ArrayView2<'_, f32>,
        pattern: Pattern,
        sparsity: f64,
        inputs: Option<&Inputs>,
    ) -> Result<Array2<f32>>;
}

/// Every method, with its default settings.
pub static SPARSIFIERS: &[&dyn Sparsifier] = &[
    &Magnitude { scope: Scope::Matrix },
    &Wanda,
    &SparseGpt { block_size: 128, damping: 0.01 },
    &ExactObs { damping: 0.01 },
];

/// The method of that name in [`SPARSIFIERS`].
#[must_use]
pub fn sparsifier(name: &str) -> Option<&'static dyn Sparsifier> {
    SPARSIFIERS.iter().copied().find(|method| method.name() == name)
}

/// An error of `method`, whose words continue "cannot".
fn refuse(method: &'static str, message: impl Into<String>) -> Error {
    Error::Compression { method, message: message.into() }
}

/// Checks that a weight has elements and that each is finite.
fn check_weight(method: &'static str, w: ArrayView2<'_, f32>) -> Result<()> {
    if w.is_empty() {
        return Err(refuse(
            method,
            format!("the weight has shape {:?}, expected one or more rows and columns", w.shape()),
        ));
    }
    match w.indexed_iter().find(|(_, value)| !value.is_finite()) {
        Some((at, value)) => {
            Err(refuse(method, format!("the weight at {at:?} is {value}, expected a finite value")))
        }
        None => Ok(()),
    }
}

/// Returns updated weights as they are stored, and checks that each still fits.
fn stored(method: &'static str, w: Array2<f64>) -> Result<Array2<f32>> {
    let w = w.mapv(|value| value as f32);
    if w.iter().all(|value| value.is_finite()) {
        Ok(w)
    } else {
        Err(refuse(method, "an updated weight overflows, expected a better conditioned H"))
    }
}

/// Returns the inputs' statistics, and checks that they have a column for each of `w`'s.
fn check_inputs<'a>(
    method: &'static str,
    w: ArrayView2<'_, f32>,
    inputs: Option<&'a Inputs>,
) -> Result<&'a Inputs> {
    let inputs = inputs.ok_or_else(|| refuse(method, "no inputs, expected calibration inputs"))?;
    if inputs.width() != w.ncols() {
        return Err(refuse(
            method,
            format!("the inputs have {} columns, expected {}", inputs.width(), w.ncols()),
        ));
    }
    Ok(inputs)
}

/// H = E[x xᵀ] in double precision, the two halves made equal: sums in another order leave them a
/// little different.
fn hessian(inputs: &Inputs) -> Array2<f64> {
    let h = inputs.hessian();
    Array2::from_shape_fn(h.dim(), |(i, j)| f64::midpoint(h[[i, j]].into(), h[[j, i]].into()))
}

/// The fixtures of this folder's tests.
#[cfg(test)]
mod fixtures {
    use ndarray::{Array2, ArrayView2};
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    /// Values uniform in [−1, 1).
    pub(super) fn uniform(rows: usize, columns: usize, seed: u64) -> Array2<f32> {
        let mut rng = StdRng::seed_from_u64(seed);
        Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
    }

    /// Rows whose neighbouring columns correlate by `rho`, as an AR(1) process.
    pub(super) fn correlated(rows: usize, columns: usize, rho: f32, seed: u64) -> Array2<f32> {
        let mut x = uniform(rows, columns, seed);
        for mut row in x.rows_mut() {
            for j in 1..row.len() {
                row[j] = rho * row[j - 1] + (1.0 - rho * rho).sqrt() * row[j];
            }
        }
        x
    }

    /// The layer's loss ½ Σ_rows (w − ŵ) H (w − ŵ)ᵀ.
    pub(super) fn layer_loss(
        w: ArrayView2<f32>,
        pruned: ArrayView2<f32>,
        h: ArrayView2<f64>,
    ) -> f64 {
        let delta = w.mapv(f64::from) - pruned.mapv(f64::from);
        0.5 * (&delta.dot(&h) * &delta).sum()
    }

    pub(super) fn zeros(w: ArrayView2<f32>) -> usize {
        w.iter().filter(|v| **v == 0.0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{correlated, layer_loss, uniform, zeros};
    use super::*;

    #[test]
    fn every_method_is_found_by_a_name_of_its_own() {
        for method in SPARSIFIERS {
            let found = sparsifier(method.name()).unwrap();
            assert!(std::ptr::addr_eq(found, *method), "{}", method.name());
        }
        assert!(sparsifier("nothing").is_none());
    }

    /// Each method keeps its pattern: exact counts, and at most n of m neighbours along k.
    #[test]
    fn every_method_keeps_the_pattern() {
        let w = uniform(8, 32, 1);
        let inputs = Inputs::of(correlated(200, 32, 0.6, 2).view()).unwrap();
        for method in SPARSIFIERS {
            for sparsity in [0.0, 0.25, 0.75] {
                let pruned =
                    method.prune(w.view(), Pattern::Unstructured, sparsity, Some(&inputs)).unwrap();
                assert_eq!(zeros(pruned.view()), (256.0 * sparsity) as usize, "{}", method.name());
            }
            let pattern = Pattern::NOfM { n: 2, m: 4 };
            let pruned = method.prune(w.view(), pattern, 0.5, Some(&inputs)).unwrap();
            for group in pruned.exact_chunks((1, 4)) {
                assert_eq!(zeros(group), 2, "{}", method.name());
            }
        }
    }

    /// On correlated inputs each step towards the exact method lowers the layer's loss.
    #[test]
    fn methods_that_know_the_hessian_lose_less() {
        let w = uniform(16, 64, 4);
        // Column scales between 0.1 and 2 separate Wanda from magnitude.
        let mut x = correlated(512, 64, 0.8, 5);
        for (j, mut column) in x.columns_mut().into_iter().enumerate() {
            column *= 0.1 + 1.9 * ((j * 29) % 64) as f32 / 63.0;
        }
        let inputs = Inputs::of(x.view()).unwrap();
        let loss = |name: &str| {
            let method = sparsifier(name).unwrap();
            let pruned = method.prune(w.view(), Pattern::Unstructured, 0.5, Some(&inputs)).unwrap();
            layer_loss(w.view(), pruned.view(), hessian(&inputs).view())
        };
        let names = ["magnitude", "wanda", "sparse_gpt", "exact_obs"];
        let losses = names.map(loss);
        println!("{names:?} {losses:?}");
        assert!(losses.windows(2).all(|pair| pair[1] < pair[0]), "{losses:?}");
    }

    #[test]
    fn bad_input_is_an_error() {
        let w = uniform(4, 8, 6);
        let inputs = Inputs::of(uniform(20, 8, 7).view()).unwrap();
        let narrow = Inputs::of(uniform(20, 4, 8).view()).unwrap();
        let mut broken = w.clone();
        broken[[1, 2]] = f32::NAN;
        let empty = Array2::<f32>::zeros((4, 0));
        for method in SPARSIFIERS {
            let prune = |w: &Array2<f32>, s, i| method.prune(w.view(), Pattern::Unstructured, s, i);
            assert!(prune(&broken, 0.5, Some(&inputs)).is_err(), "{}", method.name());
            assert!(prune(&empty, 0.5, Some(&inputs)).is_err(), "{}", method.name());
            for sparsity in [-0.1, 1.0, f64::NAN] {
                assert!(prune(&w, sparsity, Some(&inputs)).is_err(), "{}", method.name());
            }
            if method.name() != "magnitude" {
                assert!(prune(&w, 0.5, None).is_err(), "{}", method.name());
                assert!(prune(&w, 0.5, Some(&narrow)).is_err(), "{}", method.name());
            }
        }
    }
}
