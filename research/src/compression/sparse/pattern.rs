//! Where zeros may lie: anywhere, n kept of each m neighbours, or in blocks; and the mask that
//! keeps the highest scores.

use std::cmp::Ordering;

use ndarray::{Array2, ArrayView2, Axis, Zip};

use super::refuse;
use crate::error::{Error, Result};

const METHOD: &str = "choose a sparsity mask";

/// Where the zeros of a weight `[n outputs, k inputs]` lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere.
    Unstructured,
    /// At most `n` nonzeros in each `m` neighbours along k, as 2:4.
    NOfM {
        /// The weights kept of each group.
        n: usize,
        /// The group's length, which divides k.
        m: usize,
    },
    /// In whole blocks, whose sides divide the weight's.
    Block {
        /// Outputs of a block.
        rows: usize,
        /// Inputs of a block.
        cols: usize,
    },
}

impl Pattern {
    /// The sparsity that the pattern fixes: 1 − n/m, or none.
    #[must_use]
    pub fn sparsity(self) -> Option<f64> {
        match self {
            Self::NOfM { n, m } => Some(1.0 - n as f64 / m as f64),
            Self::Unstructured | Self::Block { .. } => None,
        }
    }

    /// Checks that a weight of this shape can have `sparsity` in the pattern.
    pub(super) fn check(self, (rows, columns): (usize, usize), sparsity: f64) -> Result<()> {
        if !(0.0..1.0).contains(&sparsity) {
            return Err(setting("sparsity", sparsity, "0 or more and below 1"));
        }
        if rows == 0 || columns == 0 {
            let found = format!("shape [{rows}, {columns}], expected one or more of each");
            return Err(refuse(METHOD, found));
        }
        match self {
            Self::Unstructured => Ok(()),
            Self::NOfM { n, m } if n == 0 || n > m => {
                Err(setting("pattern", format!("{n}:{m}"), "1 <= n <= m"))
            }
            Self::NOfM { n, m } if (sparsity - (1.0 - n as f64 / m as f64)).abs() > 1e-6 => {
                Err(setting("sparsity", sparsity, "1 - n/m with an n:m pattern"))
            }
            Self::NOfM { m, .. } if !columns.is_multiple_of(m) => {
                Err(refuse(METHOD, format!("{columns} columns, expected a multiple of {m}")))
            }
            Self::Block { rows: 0, .. } | Self::Block { cols: 0, .. } => {
                Err(setting("pattern", "a block with a side of 0", "sides of 1 or more"))
            }
            Self::Block { rows: r, cols: c }
                if !rows.is_multiple_of(r) || !columns.is_multiple_of(c) =>
            {
                let found = format!("shape [{rows}, {columns}], expected multiples of [{r}, {c}]");
                Err(refuse(METHOD, found))
            }
            Self::NOfM { .. } | Self::Block { .. } => Ok(()),
        }
    }

    /// The outputs and inputs of the unit that is kept or removed as a whole.
    pub(super) fn unit(self) -> (usize, usize) {
        match self {
            Self::Block { rows, cols } => (rows, cols),
            Self::Unstructured | Self::NOfM { .. } => (1, 1),
        }
    }
}

/// Which weights are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of one output, or of one row of blocks.
    Row,
    /// Those of the whole matrix.
    Matrix,
}

/// Returns the mask, true where a weight stays, that keeps the highest `scores`, `[n, k]`.
///
/// Each comparison removes exactly `round(sparsity · units)` units, a unit being a weight or a
/// block, whose score is the sum of its weights' scores. Of equal scores the later is removed.
/// N:M compares within its groups, whatever `scope` is.
///
/// # Errors
/// Returns an error if a score is not finite, if the sparsity is outside [0, 1) or not the
/// pattern's, or if the pattern does not divide the shape.
pub fn mask(
    scores: ArrayView2<'_, f64>,
    pattern: Pattern,
    sparsity: f64,
    scope: Scope,
) -> Result<Array2<bool>> {
    pattern.check(scores.dim(), sparsity)?;
    if let Some((at, score)) = scores.indexed_iter().find(|(_, score)| !score.is_finite()) {
        return Err(refuse(METHOD, format!("the score at {at:?} is {score}, expected finite")));
    }
    if let Pattern::NOfM { n, m } = pattern {
        return Ok(mask_n_of_m(scores, n, m));
    }
    let (rows, _) = scores.dim();
    let (height, width) = pattern.unit();
    let band = if scope == Scope::Row { height } else { rows };
    let mut mask = Array2::from_elem(scores.dim(), true);
    for (scores, mut mask) in
        scores.axis_chunks_iter(Axis(0), band).zip(mask.axis_chunks_iter_mut(Axis(0), band))
    {
        let units = scores.len() / (height * width);
        mask.assign(&mask_units(scores, (height, width), removed_count(units, sparsity)));
    }
    Ok(mask)
}

/// The units that a sparsity removes of `units`: the nearest whole number.
pub(super) fn removed_count(units: usize, sparsity: f64) -> usize {
    ((units as f64 * sparsity).round() as usize).min(units)
}

/// Returns the mask without the `removed` units of the lowest summed scores.
///
/// The unit's sides divide the shape.
pub(super) fn mask_units(
    scores: ArrayView2<'_, f64>,
    unit: (usize, usize),
    removed: usize,
) -> Array2<bool> {
    let sums: Vec<f64> = scores.exact_chunks(unit).into_iter().map(|block| block.sum()).collect();
    let kept = keep_highest(&sums, removed);
    let mut mask = Array2::from_elem(scores.dim(), true);
    for (mut block, kept) in mask.exact_chunks_mut(unit).into_iter().zip(kept) {
        block.fill(kept);
    }
    mask
}

/// Returns the mask that keeps the `n` highest scores of each `m` neighbours in a row.
///
/// `m` divides the number of columns, and `n` is at most `m`.
pub(super) fn mask_n_of_m(scores: ArrayView2<'_, f64>, n: usize, m: usize) -> Array2<bool> {
    let mut mask = Array2::from_elem(scores.dim(), true);
    Zip::from(mask.exact_chunks_mut((1, m))).and(scores.exact_chunks((1, m))).for_each(
        |mut mask, scores| {
            let scores: Vec<f64> = scores.iter().copied().collect();
            for (mask, kept) in mask.iter_mut().zip(keep_highest(&scores, m - n)) {
                *mask = kept;
            }
        },
    );
    mask
}

/// Returns true for each score but the `removed` lowest; of equal scores the later goes first.
pub(super) fn keep_highest(scores: &[f64], removed: usize) -> Vec<bool> {
    let mut kept = vec![true; scores.len()];
    for index in lowest(scores, removed) {
        kept[index] = false;
    }
    kept
}

/// Returns the indices of the `count` lowest scores, in no order; of equal scores the later is
/// lower.
pub(in crate::compression) fn lowest(scores: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    if count < order.len() {
        order.select_nth_unstable_by(count, |a, b| lower_first(scores, *a, *b));
    }
    order.truncate(count);
    order
}

/// Orders two indices by ascending score; of equal scores the later comes first.
pub(super) fn lower_first(scores: &[f64], a: usize, b: usize) -> Ordering {
    scores[a].total_cmp(&scores[b]).then(b.cmp(&a))
}

/// Returns `w` with zeros where the mask is false.
pub(super) fn apply(w: ArrayView2<'_, f32>, mask: &Array2<bool>) -> Array2<f32> {
    Zip::from(w).and(mask).map_collect(|value, kept| if *kept { *value } else { 0.0 })
}

/// The error of a setting.
pub(super) fn setting(name: &'static str, value: impl ToString, expected: &'static str) -> Error {
    Error::Setting { name, value: value.to_string(), expected }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::uniform;
    use super::*;
    use ndarray::array;

    fn scores() -> Array2<f64> {
        uniform(12, 24, 1).mapv(|v| f64::from(v.abs()))
    }

    /// The counts are exact, and no removed score exceeds a kept one of its comparison.
    #[test]
    fn the_mask_keeps_the_highest_scores() {
        let scores = scores();
        for (sparsity, per_row) in [(0.0, 0), (0.3, 7), (0.5, 12), (0.99, 24)] {
            let by_row = mask(scores.view(), Pattern::Unstructured, sparsity, Scope::Row).unwrap();
            for (mask, scores) in by_row.rows().into_iter().zip(scores.rows()) {
                assert_eq!(mask.iter().filter(|kept| !**kept).count(), per_row);
                let split = |kept| mask.iter().zip(scores).filter(move |p| *p.0 == kept);
                let removed = split(false).map(|p| *p.1).fold(0.0, f64::max);
                assert!(split(true).all(|p| *p.1 >= removed));
            }
            let whole =
                mask(scores.view(), Pattern::Unstructured, sparsity, Scope::Matrix).unwrap();
            let removed = whole.iter().filter(|kept| !**kept).count();
            assert_eq!(removed, (288.0 * sparsity).round() as usize);
        }
    }

    #[test]
    fn blocks_go_as_a_whole() {
        let scores = scores();
        let pattern = Pattern::Block { rows: 3, cols: 4 };
        for (scope, per_band) in [(Scope::Row, Some(2)), (Scope::Matrix, None)] {
            let mask = mask(scores.view(), pattern, 1.0 / 3.0, scope).unwrap();
            let mut removed = 0;
            for band in mask.exact_chunks((3, 24)) {
                let blocks: Vec<bool> =
                    band.exact_chunks((3, 4)).into_iter().map(|b| b[[0, 0]]).collect();
                assert!(
                    band.exact_chunks((3, 4))
                        .into_iter()
                        .all(|b| b.iter().all(|v| *v == b[[0, 0]]))
                );
                let here = blocks.iter().filter(|kept| !**kept).count();
                assert!(per_band.is_none_or(|count| count == here));
                removed += here;
            }
            assert_eq!(removed, 8);
        }
    }

    #[test]
    fn two_of_four_by_hand() {
        let scores = array![[1.0, 4.0, 3.0, 2.0, 5.0, 5.0, 5.0, 0.0]];
        let mask = mask(scores.view(), Pattern::NOfM { n: 2, m: 4 }, 0.5, Scope::Row).unwrap();
        // Of the three equal scores the earlier two stay.
        assert_eq!(mask, array![[false, true, true, false, true, true, false, false]]);
    }

    #[test]
    fn bad_patterns_are_errors() {
        let scores = scores();
        let cases = [
            (Pattern::NOfM { n: 2, m: 5 }, 0.6),
            (Pattern::NOfM { n: 2, m: 4 }, 0.6),
            (Pattern::NOfM { n: 0, m: 4 }, 0.9),
            (Pattern::NOfM { n: 5, m: 4 }, 0.5),
            (Pattern::Block { rows: 5, cols: 4 }, 0.5),
            (Pattern::Block { rows: 0, cols: 4 }, 0.5),
            (Pattern::Unstructured, 1.0),
        ];
        for (pattern, sparsity) in cases {
            assert!(mask(scores.view(), pattern, sparsity, Scope::Row).is_err(), "{pattern:?}");
        }
        assert!(
            mask(Array2::zeros((0, 4)).view(), Pattern::Unstructured, 0.5, Scope::Row).is_err()
        );
        let infinite = array![[1.0, f64::INFINITY]];
        assert!(mask(infinite.view(), Pattern::Unstructured, 0.5, Scope::Row).is_err());
    }
}
