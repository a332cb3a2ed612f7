//! Decision trees: every row of features walks down each tree, and the leaves add up to scores.

mod cpu;
mod flat;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{optional, output, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::post_transform::PostTransform;
use flat::Flat;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Most targets: the scratch memory has the scores of a few rows.
const TARGETS_MAX: usize = 1 << 16;

/// How a split decides, given a feature and its threshold.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the names are the comparisons")]
pub enum Branch {
    LessOrEqual(f64),
    Less(f64),
    GreaterOrEqual(f64),
    Greater(f64),
    Equal(f64),
    NotEqual(f64),
    /// Whether the feature is one of these.
    Member(Vec<f64>),
}

/// Where a walk goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Child {
    /// The split with this index.
    Split(usize),
    /// The leaf with this index.
    Leaf(usize),
}

/// An inner node.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// The feature that is compared: a column of the input.
    pub feature: usize,
    /// The comparison.
    pub branch: Branch,
    /// Whether NaN goes to `yes`, whatever the comparison says.
    pub missing_is_yes: bool,
    /// Where the walk goes when the comparison holds.
    pub yes: Child,
    /// Where it goes otherwise.
    pub no: Child,
}

/// How the values of the leaves that a row reaches are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are the functions")]
pub enum Aggregate {
    #[default]
    Sum,
    Average,
    Min,
    Max,
}

/// Trees as a model describes them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trees {
    /// Inner nodes. Each belongs to one tree, and is a root or the child of one node.
    pub splits: Vec<Split>,
    /// For each leaf the targets and the values that it adds to them.
    pub leaves: Vec<Vec<(usize, f64)>>,
    /// Where each tree begins.
    pub roots: Vec<Child>,
}

/// `TreeEnsemble`: input f32, f64 or another number (taken as f32) `[rows, features]` or
/// `[features]`, output `[rows, targets]`: for each target the combined values of the leaves that a
/// row reaches, plus the base value, transformed.
#[derive(Debug, Clone)]
pub struct TreeEnsemble {
    flat: Arc<Flat>,
    targets: usize,
    aggregate: Aggregate,
    /// Empty, or one for each target.
    base: Vec<f64>,
    post: PostTransform,
    /// Whether f64 inputs give f64 outputs.
    keeps_f64: bool,
}

const NAME: &str = "TreeEnsemble";

impl TreeEnsemble {
    /// Checks the trees and lays them out for walking.
    ///
    /// # Errors
    /// [`Error::Invalid`] when an index leads nowhere, a node is reached twice (so that a walk
    /// might not end), the numbers of base values and targets differ, or there are no targets or
    /// more than 65536.
    pub fn new(
        trees: &Trees,
        targets: usize,
        aggregate: Aggregate,
        base: Vec<f64>,
        post: PostTransform,
    ) -> Result<Self> {
        if !(1..=TARGETS_MAX).contains(&targets) {
            let message = format!("{targets} targets, expected 1 to {TARGETS_MAX}");
            return Err(Error::invalid(message).of(NAME));
        }
        if !base.is_empty() && base.len() != targets {
            let message = format!("{} base values, expected {targets}", base.len());
            return Err(Error::invalid(message).of(NAME));
        }
        let flat = Flat::new(trees, targets).map_err(|error| error.of(NAME))?;
        let flat = Arc::new(flat);
        Ok(Self { flat, targets, aggregate, base, post, keeps_f64: false })
    }

    /// The same trees with outputs of f64 for inputs of f64; otherwise outputs are f32.
    #[must_use]
    pub fn keeping_f64(mut self) -> Self {
        self.keeps_f64 = true;
        self
    }

    fn output_dtype(&self, input: DType) -> DType {
        if self.keeps_f64 && input == DType::F64 { DType::F64 } else { DType::F32 }
    }
}

impl Op for TreeEnsemble {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let rows = rows(x)?;
        Ok(output(self.output_dtype(x.ty.dtype), Some(vec![rows, Dim::Known(self.targets)])))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        row_axes(inputs)
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let rows = outputs.first().and_then(|y| y.dim(0)?.known()).unwrap_or(0);
        let walks = rows.saturating_mul(self.flat.roots.len());
        walks.saturating_mul(self.flat.depth) as u64
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// The number of rows of a table of features; a single row may be a vector.
pub(crate) fn rows(x: &ValueInfo) -> Result<Dim> {
    match x.sym_shape() {
        None => Ok(Dim::Unknown),
        Some([_]) => Ok(Dim::Known(1)),
        Some([rows, _]) => Ok(rows.clone()),
        Some(dims) => Err(Error::invalid(format!(
            "the input has rank {}, expected [rows, features]",
            dims.len()
        ))),
    }
}

/// The axes of an operator that computes each row of a table of features by itself.
pub(crate) fn row_axes(inputs: &[Option<&ValueInfo>]) -> Axes {
    match optional(inputs, 0).and_then(|x| x.rank()) {
        Some(2) => Axes::new().each([(0, 0)], [(0, 0)]),
        _ => Axes::new(),
    }
}
