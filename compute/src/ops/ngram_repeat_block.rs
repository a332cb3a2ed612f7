//! Keeps a generator from repeating itself.

use crate::Axes;
use crate::args::{concrete_one, output, rank, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::index::{index_dtype, ints};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `NGramRepeatBlock` of `com.microsoft`: inputs tokens (i64 or i32, `[batch, length]`) and scores (f32,
/// `[batch, tokens]`).
///
/// The output is the scores, with minus infinity for every token that would repeat an n-gram of its
/// sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NGramRepeatBlock {
    /// Tokens of an n-gram, at least 1.
    pub size: usize,
}

impl Op for NGramRepeatBlock {
    fn name(&self) -> &'static str {
        "NGramRepeatBlock"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        if self.size == 0 {
            return Err(Error::invalid("an n-gram has 0 tokens, expected 1 or more"));
        }
        let (tokens, scores) = (required(inputs, 0)?, required(inputs, 1)?);
        index_dtype("the tokens", tokens.ty.dtype)?;
        if scores.ty.dtype != DType::F32 {
            return Err(Error::unsupported(format!("scores of dtype {}", scores.ty.dtype)));
        }
        rank("the tokens", tokens, 2)?;
        rank("the scores", scores, 2)?;
        if let (Some([b, _]), Some([batch, _])) = (tokens.sym_shape(), scores.sym_shape()) {
            dims::expect("the batch of the scores", b, batch)?;
        }
        Ok(output(DType::F32, scores.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        Axes::new().each([(0, 0), (1, 0)], [(0, 0)])
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        concrete_one(self, inputs)?;
        let (tokens, scores) = (required(inputs, 0)?, required(inputs, 1)?);
        let (length, words) = (tokens.shape()[1], scores.shape()[1]);
        let tokens = ints("the tokens", tokens)?;
        let mut out = scores.to_tensor()?;
        if length < self.size || words == 0 {
            return Ok(vec![out]);
        }
        let rows = out.as_mut_slice::<f32>()?.chunks_exact_mut(words);
        for (row, tokens) in rows.zip(tokens.chunks_exact(length)) {
            let begun = &tokens[length + 1 - self.size..];
            for gram in tokens.windows(self.size) {
                let Some((last, before)) = gram.split_last() else { continue };
                if before != begun {
                    continue;
                }
                let score = usize::try_from(*last).ok().and_then(|last| row.get_mut(last));
                *score.ok_or_else(|| {
                    Error::invalid(format!("token {last} is not one of {words}"))
                })? = f32::NEG_INFINITY;
            }
        }
        Ok(vec![out])
    }
}

#[cfg(test)]
mod tests {
    use super::NGramRepeatBlock;
    use crate::testing::{fails, run, t};

    #[test]
    fn what_would_repeat_is_blocked() {
        let tokens = t(&[2, 4], &[1i64, 2, 3, 1, 2, 2, 2, 2]);
        let scores = t(&[2, 4], &[0.5f32; 8]);
        let no = f32::NEG_INFINITY;
        for (size, want) in [
            (1, [0.5, no, no, no, 0.5, 0.5, no, 0.5]),
            (2, [0.5, 0.5, no, 0.5, 0.5, 0.5, no, 0.5]),
            (3, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, no, 0.5]),
            (5, [0.5; 8]),
        ] {
            assert_eq!(run(&NGramRepeatBlock { size }, &[&tokens, &scores]), t(&[2, 4], &want));
        }
        let few = t(&[2, 2], &[0f32; 4]);
        let message = fails(&NGramRepeatBlock { size: 1 }, &[&tokens, &few]);
        assert_eq!(message, "NGramRepeatBlock: token 2 is not one of 2");
    }
}
