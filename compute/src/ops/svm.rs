//! Support vector machines: kernels between rows and support vectors, and sums over them.

mod couple;
mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::tree_ensemble::{row_axes, rows};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// A kernel, which measures how similar a row and a support vector are.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the formulas")]
pub enum Kernel {
    /// `x · v`
    Linear,
    /// `(gamma x · v + offset) ^ degree`
    Poly { gamma: f32, offset: f32, degree: f32 },
    /// `exp(-gamma |x - v|²)`
    Rbf { gamma: f32 },
    /// `tanh(gamma x · v + offset)`
    Sigmoid { gamma: f32, offset: f32 },
}

/// The output of the machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// `Σ coefficient · kernel + rho`: one score.
    Regression,
    /// A score for each pair of classes; the output is the pairs' scores, then the votes of each
    /// class. Holds the number of support vectors of each class, which are stored class by class.
    Pairs(Vec<usize>),
    /// As `Pairs`, but the output is the probability of each class: the pairs' scores become
    /// probabilities by these slopes and offsets (Platt), which are then coupled (Wu, Lin and
    /// Weng 2004, the second method).
    Probabilities {
        /// Number of support vectors of each class.
        counts: Vec<usize>,
        /// Slope for each pair.
        slopes: Vec<f32>,
        /// Offset for each pair.
        offsets: Vec<f32>,
    },
}

/// `SVMRegressor` and `SVMClassifier` up to the scores: input `[rows, features]`, output f32
/// `[rows, scores]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Svm {
    kernel: Kernel,
    decision: Decision,
    /// `[vectors, features]`
    vectors: Vec<f32>,
    features: usize,
    /// For a regression one for each vector; for `n` classes `n - 1` rows of one for each vector.
    coefficients: Vec<f32>,
    /// For a regression one; for classes one for each pair.
    rho: Vec<f32>,
}

const NAME: &str = "Svm";

impl Svm {
    /// Checks that all lengths fit each other.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the length that does not fit.
    pub fn new(
        kernel: Kernel,
        decision: Decision,
        vectors: Vec<f32>,
        count: usize,
        coefficients: Vec<f32>,
        rho: Vec<f32>,
    ) -> Result<Self> {
        let check = |what: &str, given: usize, expected: Option<usize>| {
            if Some(given) == expected {
                return Ok(());
            }
            let expected = expected.map_or("fewer".to_owned(), |n| n.to_string());
            Err(Error::invalid(format!("{given} {what}, expected {expected}")).of(NAME))
        };
        let features = vectors.len().checked_div(count).unwrap_or(0);
        check("numbers in support vectors", vectors.len(), features.checked_mul(count))?;
        if features == 0 && count > 0 {
            let message = format!("no numbers in support vectors, expected {count} or more");
            return Err(Error::invalid(message).of(NAME));
        }
        let classes = decision.classes();
        if let Decision::Pairs(counts) | Decision::Probabilities { counts, .. } = &decision {
            if !(2..=CLASSES_MAX).contains(&classes) {
                let message = format!("{classes} classes, expected 2 to {CLASSES_MAX}");
                return Err(Error::invalid(message).of(NAME));
            }
            let sum = counts.iter().try_fold(0usize, |n, &c| n.checked_add(c));
            check("support vectors", count, sum)?;
        }
        let pairs = decision.pairs();
        check("coefficients", coefficients.len(), count.checked_mul(classes.max(2) - 1))?;
        check("values of rho", rho.len(), Some(pairs))?;
        if let Decision::Probabilities { slopes, offsets, .. } = &decision {
            check("slopes of probabilities", slopes.len(), Some(pairs))?;
            check("offsets of probabilities", offsets.len(), Some(pairs))?;
        }
        Ok(Self { kernel, decision, vectors, features, coefficients, rho })
    }

    fn scores(&self) -> usize {
        match &self.decision {
            Decision::Regression => 1,
            Decision::Pairs(counts) => self.decision.pairs() + counts.len(),
            Decision::Probabilities { counts, .. } => counts.len(),
        }
    }
}

/// The number of pairs grows with the square of the classes.
const CLASSES_MAX: usize = 4096;

impl Decision {
    fn classes(&self) -> usize {
        match self {
            Self::Regression => 0,
            Self::Pairs(counts) | Self::Probabilities { counts, .. } => counts.len(),
        }
    }

    /// Pairs of classes, or 1.
    fn pairs(&self) -> usize {
        match self.classes() {
            0 => 1,
            n => n * (n - 1) / 2,
        }
    }
}

impl Op for Svm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let rows = rows(required(inputs, 0)?)?;
        Ok(output(DType::F32, Some(vec![rows, Dim::Known(self.scores())])))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        row_axes(inputs)
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let rows = outputs.first().and_then(|y| y.dim(0)?.known()).unwrap_or(0);
        rows.saturating_mul(self.vectors.len().saturating_add(self.coefficients.len())) as u64
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
