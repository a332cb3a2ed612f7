//! SparseGPT: one pass over the columns, where each removal is made up for by later columns.

use ndarray::{Array2, ArrayView1, ArrayView2, ArrayViewMut2, Axis, Slice, Zip};

use super::obs::inverse_cholesky;
use super::pattern::{Pattern, mask_n_of_m, mask_units, removed_count, setting};
use super::{Inputs, Sparsifier, check_inputs, check_weight, hessian, stored};
use crate::error::Result;

/// Optimal Brain Surgeon in the fixed order of the columns, with one Cholesky factor for all
/// outputs ("SparseGPT: Massive Language Models Can be Accurately Pruned in One-Shot", Frantar &
/// Alistarh 2023, algorithm 1).
///
/// The mask of a block of columns is chosen by w²/[H⁻¹]² over all outputs, when the pass reaches
/// the block. With H = I it is magnitude within the block and no weight is updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SparseGpt {
    /// Columns whose mask is chosen at once and whose updates reach the rest at once, as 128. It is
    /// raised to a multiple of the pattern's width.
    pub block_size: usize,
    /// The part of the mean of H's diagonal that is added to it, as 0.01.
    pub damping: f64,
}

impl Sparsifier for SparseGpt {
    fn name(&self) -> &'static str {
        "sparse_gpt"
    }

    fn prune(
        &self,
        w: ArrayView2<'_, f32>,
        pattern: Pattern,
        sparsity: f64,
        inputs: Option<&Inputs>,
    ) -> Result<Array2<f32>> {
        const METHOD: &str = "prune by SparseGPT";
        check_weight(METHOD, w)?;
        pattern.check(w.dim(), sparsity)?;
        if self.block_size == 0 {
            return Err(setting("block_size", 0, "1 or more"));
        }
        let h = hessian(check_inputs(METHOD, w, inputs)?);
        let upper = inverse_cholesky(h.view(), self.damping)?;
        let mut w = w.mapv(f64::from);
        // An always zero input has no part in the loss, so its weight goes for nothing.
        for (mut column, diagonal) in w.columns_mut().into_iter().zip(h.diag()) {
            if *diagonal == 0.0 {
                column.fill(0.0);
            }
        }
        let (n, k) = w.dim();
        let (height, width) = pattern.unit();
        let step = match pattern {
            Pattern::NOfM { m, .. } => m,
            Pattern::Unstructured | Pattern::Block { .. } => width,
        };
        let block_size = self.block_size.next_multiple_of(step);
        let removed_until = |column: usize| {
            // The difference of totals makes the whole matrix's count exact.
            removed_count(n / height * (column / width), sparsity)
        };
        for start in (0..k).step_by(block_size) {
            let end = (start + block_size).min(k);
            let columns = Slice::from(start..end);
            let upper_rows = upper.slice_axis(Axis(0), columns);
            let block_upper = upper_rows.slice_axis(Axis(1), columns);
            let mask = match pattern {
                Pattern::NOfM { .. } => None,
                Pattern::Unstructured | Pattern::Block { .. } => Some(mask_units(
                    scores(w.slice_axis(Axis(1), columns), block_upper.diag()).view(),
                    (height, width),
                    removed_until(end) - removed_until(start),
                )),
            };
            let errors = prune_block(
                w.slice_axis_mut(Axis(1), columns),
                block_upper,
                mask.unwrap_or_else(|| Array2::from_elem((n, end - start), true)),
                pattern,
            );
            let later = errors.dot(&upper_rows.slice_axis(Axis(1), Slice::from(end..)));
            w.slice_axis_mut(Axis(1), Slice::from(end..))
                .zip_mut_with(&later, |weight, change| *weight -= change);
        }
        stored(METHOD, w)
    }
}

/// w²/U_jj², twice the ΔL of each weight's removal once the columns before it are fixed.
fn scores(w: ArrayView2<'_, f64>, diagonal: ArrayView1<'_, f64>) -> Array2<f64> {
    Zip::from(w).and_broadcast(diagonal).map_collect(|weight, upper| (weight / upper).powi(2))
}

/// Sets the block's weights outside the mask to zero, updates its later columns, and returns each
/// removed weight over U_jj, `[n, columns]`, for the columns after the block.
///
/// An N:M pattern chooses its mask group by group, as its groups depend on earlier updates.
fn prune_block(
    mut w: ArrayViewMut2<'_, f64>,
    upper: ArrayView2<'_, f64>,
    mut mask: Array2<bool>,
    pattern: Pattern,
) -> Array2<f64> {
    let mut errors = Array2::zeros(w.dim());
    for j in 0..w.ncols() {
        if let Pattern::NOfM { n, m } = pattern
            && j % m == 0
        {
            let columns = Slice::from(j..j + m);
            let diagonal = upper.diag();
            let diagonal = diagonal.slice_axis(Axis(0), columns);
            let group = scores(w.slice_axis(Axis(1), columns), diagonal);
            mask.slice_axis_mut(Axis(1), columns).assign(&mask_n_of_m(group.view(), n, m));
        }
        let row = upper.row(j).split_at(Axis(0), j).1;
        let diagonal = row[0];
        let kept = mask.column(j);
        let rows = w.rows_mut().into_iter().zip(errors.column_mut(j)).zip(kept);
        for ((mut weights, error), _) in rows.filter(|(_, kept)| !**kept) {
            *error = weights[j] / diagonal;
            weights.slice_axis_mut(Axis(0), Slice::from(j..)).scaled_add(-*error, &row);
            // Rounding must not leave a nonzero.
            weights[j] = 0.0;
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{correlated, layer_loss, uniform};
    use super::super::obs::{eliminate, inverse_hessian, remove_weight};
    use super::super::{Magnitude, Scope};
    use super::*;

    /// H = I: magnitude within a block of columns, and kept weights are bit-equal.
    #[test]
    fn identity_is_magnitude_without_an_update() {
        let w = uniform(8, 32, 1);
        let inputs = Inputs::from_hessian(Array2::eye(32)).unwrap();
        let magnitude = Magnitude { scope: Scope::Matrix };
        let cases = [
            (Pattern::Unstructured, 0.4),
            (Pattern::NOfM { n: 2, m: 4 }, 0.5),
            (Pattern::NOfM { n: 1, m: 8 }, 0.875),
        ];
        for (pattern, sparsity) in cases {
            for block_size in [32, 16, 8] {
                let method = SparseGpt { block_size, damping: 0.0 };
                let pruned = method.prune(w.view(), pattern, sparsity, Some(&inputs)).unwrap();
                for start in (0..32).step_by(block_size) {
                    let columns = Slice::from(start..start + block_size);
                    let block = w.slice_axis(Axis(1), columns);
                    // 0.4 of 64, 128 and 256 weights rounds differently block by block, so the
                    // count is taken from the result.
                    let zeros =
                        pruned.slice_axis(Axis(1), columns).iter().filter(|v| **v == 0.0).count();
                    let share = zeros as f64 / block.len() as f64;
                    let expected = magnitude.prune(block, pattern, share, None).unwrap();
                    assert_eq!(
                        pruned.slice_axis(Axis(1), columns),
                        expected,
                        "{pattern:?} {block_size}"
                    );
                }
                let zeros = pruned.iter().filter(|v| **v == 0.0).count();
                assert_eq!(zeros, (256.0 * sparsity).round() as usize);
            }
        }
    }

    /// The lazy block updates equal Optimal Brain Surgeon column by column with the same mask.
    #[test]
    fn blocks_equal_surgery_in_order() {
        let w = uniform(5, 24, 2);
        let inputs = Inputs::of(correlated(100, 24, 0.8, 3).view()).unwrap();
        for (pattern, sparsity) in
            [(Pattern::Unstructured, 0.5), (Pattern::NOfM { n: 2, m: 4 }, 0.5)]
        {
            let method = SparseGpt { block_size: 8, damping: 0.01 };
            let pruned = method.prune(w.view(), pattern, sparsity, Some(&inputs)).unwrap();
            for (row, pruned) in w.rows().into_iter().zip(pruned.rows()) {
                let mut inverse = inverse_hessian(hessian(&inputs).view(), 0.01).unwrap();
                let mut row: Vec<f64> = row.iter().map(|v| f64::from(*v)).collect();
                for q in 0..24 {
                    // A passed column is fixed, kept or not, so it leaves H either way.
                    let inverse_row = inverse.row(q).to_vec();
                    if pruned[q] == 0.0 {
                        remove_weight(&mut row, &inverse_row, q);
                    }
                    eliminate(&mut inverse, q);
                }
                for (expected, found) in row.iter().zip(pruned) {
                    assert!((expected - f64::from(*found)).abs() < 1e-6);
                }
            }
        }
    }

    /// On AR(1) inputs the updates lower the loss of magnitude pruning in every pattern.
    #[test]
    fn updates_lower_the_loss() {
        let w = uniform(16, 64, 4);
        let inputs = Inputs::of(correlated(512, 64, 0.8, 5).view()).unwrap();
        for (pattern, sparsity) in [
            (Pattern::Unstructured, 0.5),
            (Pattern::NOfM { n: 2, m: 4 }, 0.5),
            (Pattern::Block { rows: 2, cols: 4 }, 0.5),
        ] {
            let method = SparseGpt { block_size: 16, damping: 0.01 };
            let ours = method.prune(w.view(), pattern, sparsity, Some(&inputs)).unwrap();
            let magnitude = Magnitude { scope: Scope::Matrix };
            let plain = magnitude.prune(w.view(), pattern, sparsity, None).unwrap();
            assert_eq!(ours.iter().filter(|v| **v == 0.0).count(), 512);
            let h = hessian(&inputs);
            let loss = |pruned: &Array2<f32>| layer_loss(w.view(), pruned.view(), h.view());
            let ratio = loss(&plain) / loss(&ours);
            println!("{pattern:?}: magnitude / SparseGPT loss {ratio:.2}");
            assert!(ratio > 1.1, "{pattern:?} {ratio}");
        }
    }

    #[test]
    fn dead_inputs_and_bad_settings() {
        let mut x = uniform(40, 8, 6);
        x.column_mut(3).fill(0.0);
        let inputs = Inputs::of(x.view()).unwrap();
        let w = uniform(4, 8, 7);
        let prune = |block_size, damping| {
            let method = SparseGpt { block_size, damping };
            method.prune(w.view(), Pattern::Unstructured, 0.125, Some(&inputs))
        };
        let pruned = prune(8, 0.01).unwrap();
        assert!(pruned.column(3).iter().all(|v| *v == 0.0));
        assert_eq!(pruned.iter().filter(|v| **v == 0.0).count(), 4);
        assert!(prune(0, 0.01).is_err());
        assert!(prune(8, -0.01).is_err());
    }
}
