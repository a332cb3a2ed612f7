//! Strings: joining, splitting, matching, normalising, counting.

mod normalize;
mod split;
#[cfg(test)]
mod tests;
mod tf_idf;

pub use normalize::{CaseChange, StringNormalizer};
pub use split::StringSplit;
pub use tf_idf::{NGrams, TfIdfVectorizer, TfIdfWeighting};

use crate::Axes;
use crate::args::{output, required};
use crate::dims;
use crate::error::{Error, Result, wrong_dtype};
use crate::op::{Context, Op, ValueInfo};
use crate::walk::Walk;
use lgp_memory::{DType, Shape, Tensor, TensorView};
use std::ops::RangeInclusive;

/// Fails unless an input holds strings.
fn expect_strings(i: usize, info: &ValueInfo) -> Result<()> {
    if info.ty.dtype == DType::Str { Ok(()) } else { Err(wrong_dtype(i, info.ty.dtype)) }
}

/// `StringConcat`: two tensors of strings, broadcast to each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StringConcat;

impl Op for StringConcat {
    fn name(&self) -> &'static str {
        "StringConcat"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let a = required(inputs, 0)?;
        let b = required(inputs, 1)?;
        expect_strings(0, a)?;
        expect_strings(1, b)?;
        let shape = match (a.sym_shape(), b.sym_shape()) {
            (Some(a), Some(b)) => Some(dims::broadcast(a, b)?),
            _ => None,
        };
        Ok(output(DType::Str, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (_, shape) = crate::args::concrete_one(self, inputs)?;
        let a = required(inputs, 0)?;
        let b = required(inputs, 1)?;
        let (left, right) = (a.strings()?, b.strings()?);
        let walk = Walk::new(&shape, [a.shape(), b.shape()])?;
        let count = shape.elements()?;
        let mut out = Vec::with_capacity(count);
        for row in 0..count.checked_div(walk.row).unwrap_or(0) {
            let [at_left, at_right] = walk.starts(row);
            let [step_left, step_right] = walk.steps;
            for i in 0..walk.row {
                out.push(
                    left[at_left + i * step_left].to_owned() + right[at_right + i * step_right],
                );
            }
        }
        Ok(vec![Tensor::from_strings(shape, &out)?])
    }
}

/// `RegexFullMatch`: whether each string matches a pattern from its first to its last character.
/// The pattern is in the syntax of RE2, as far as the `regex` crate shares it.
#[derive(Debug, Clone)]
pub struct RegexFullMatch(regex::Regex);

impl RegexFullMatch {
    /// # Errors
    /// [`Error::Invalid`] if the pattern is malformed or its automaton takes too much memory.
    pub fn new(pattern: &str) -> Result<Self> {
        let failed = |e: regex::Error| Error::invalid(format!("pattern: {e}")).of("RegexFullMatch");
        // A pattern that is valid by itself cannot close the group that is put around it.
        regex::Regex::new(pattern).map_err(failed)?;
        let whole = regex::Regex::new(&format!("^(?:{pattern})$"));
        // Only a comment of verbose syntax can hide the group's end, and a new line ends it.
        let whole = whole.or_else(|_| regex::Regex::new(&format!("^(?:{pattern}\n)$")));
        Ok(Self(whole.map_err(failed)?))
    }
}

impl Op for RegexFullMatch {
    fn name(&self) -> &'static str {
        "RegexFullMatch"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        expect_strings(0, x)?;
        Ok(output(DType::Bool, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape): (DType, Shape) = crate::args::concrete_one(self, inputs)?;
        let mut out = ctx.alloc(dtype, shape)?;
        let texts = required(inputs, 0)?.strings()?;
        for (out, text) in out.as_mut_slice::<bool>()?.iter_mut().zip(texts) {
            *out = self.0.is_match(text);
        }
        Ok(vec![out])
    }
}
