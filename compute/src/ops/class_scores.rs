//! From a classifier's raw scores to a class and transformed scores.

#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, required};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::post_transform::{PostTransform, logistic, probit};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// How a class is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClassRule {
    /// The first of the highest scores.
    Highest,
    /// Two classes with one score: the second class above a threshold.
    Above {
        /// The threshold.
        threshold: f32,
        /// Whether the score is a probability, so that the first class has 1 minus the score.
        /// Otherwise the first class has the negated score.
        probability: bool,
    },
    /// Two classes with two scores: the second class when its score is above a threshold.
    SecondAbove {
        /// The threshold.
        threshold: f32,
    },
}

/// Input scores (f32, `[rows, scores]`), outputs the index of the class (i64, `[rows]`) and the
/// classes' scores (f32, `[rows, classes]`), transformed. Softmax leaves two classes with one score
/// unchanged, as in ONNX Runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassScores {
    /// How the class is chosen.
    pub rule: ClassRule,
    /// The transformation of the scores.
    pub post: PostTransform,
}

impl Op for ClassScores {
    fn name(&self) -> &'static str {
        "ClassScores"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let (rows, scores) = match x.sym_shape() {
            None => (Dim::Unknown, Dim::Unknown),
            Some([rows, scores]) => (rows.clone(), scores.clone()),
            Some(_) => return Err(Error::invalid("expected [rows, scores]")),
        };
        let scores = match self.rule {
            ClassRule::Highest if scores == Dim::Known(0) => {
                return Err(Error::invalid("there are no scores"));
            }
            ClassRule::SecondAbove { .. } if scores.known().is_some_and(|n| n != 2) => {
                return Err(Error::invalid("the number of scores is not 2"));
            }
            ClassRule::Highest | ClassRule::SecondAbove { .. } => scores,
            ClassRule::Above { .. } => {
                if scores.known().is_some_and(|n| n != 1) {
                    return Err(Error::invalid("several scores, expected 1"));
                }
                Dim::Known(2)
            }
        };
        let of = |dtype, dims| ValueInfo::of(TensorType { dtype, shape: Some(SymShape(dims)) });
        Ok(vec![of(DType::I64, vec![rows.clone()]), of(DType::F32, vec![rows, scores])])
    }

    fn axes(&self, _inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        Axes::new().each([(0, 0)], [(0, 0), (1, 0)])
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let infos = crate::args::concrete(self, inputs)?;
        let x = required(inputs, 0)?;
        let x = crate::ops::Cast { to: DType::F32 }.run(ctx, &[Some(x.clone())])?;
        let x = x.first().ok_or_else(|| Error::invalid("no input"))?;
        let mut out = Vec::with_capacity(2);
        for (dtype, shape) in infos {
            out.push(ctx.alloc(dtype, shape)?);
        }
        let [classes, scores] = out.as_mut_slice() else { return Ok(out) };
        let (given, made) = (x.shape()[1], scores.shape()[1]);
        let x = x.as_slice::<f32>()?;
        ctx.split(classes.as_mut_slice::<i64>()?, 1, given.max(1), |start, out| {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.class(&x[(start + i) * given..][..given]);
            }
        });
        ctx.split(scores.as_mut_slice::<f32>()?, made, made * 8, |start, out| {
            let mut row = vec![0.; made];
            for (i, out) in out.chunks_exact_mut(made).enumerate() {
                self.transform(&x[(start + i) * given..][..given], &mut row);
                #[allow(clippy::cast_possible_truncation, reason = "f32 by specification")]
                out.iter_mut().zip(&row).for_each(|(o, y)| *o = *y as f32);
            }
        });
        Ok(out)
    }
}

impl ClassScores {
    fn class(&self, row: &[f32]) -> i64 {
        match self.rule {
            ClassRule::Above { threshold, .. } => i64::from(row[0] > threshold),
            ClassRule::SecondAbove { threshold } => i64::from(row[1] > threshold),
            ClassRule::Highest => {
                let first = |best: usize, i: usize| if row[i] > row[best] { i } else { best };
                i64::try_from((0..row.len()).fold(0, first)).unwrap_or(0)
            }
        }
    }

    fn transform(&self, row: &[f32], out: &mut [f64]) {
        let score = f64::from(row[0]);
        let probability = match self.rule {
            ClassRule::Above { probability, .. } => probability,
            ClassRule::Highest | ClassRule::SecondAbove { .. } => {
                out.iter_mut().zip(row).for_each(|(o, x)| *o = f64::from(*x));
                return self.post.apply(out);
            }
        };
        out.copy_from_slice(&match self.post {
            PostTransform::Logistic => [logistic(-score), logistic(score)],
            PostTransform::Probit => [probit(1. - score), probit(score)],
            _ if probability => [1. - score, score],
            _ => [-score, score],
        });
    }
}
