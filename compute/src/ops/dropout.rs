//! Dropout as training does it.

mod twister;

use crate::Axes;
use crate::args::{concrete, float, optional, required, single};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::widen::widen;
use lgp_memory::{DType, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;
use twister::Twister;

/// `Dropout`: inputs x, ratio (optional float, 0.5), training mode (optional bool, false).
///
/// Outputs x, with the kept elements scaled by `1 / (1 - ratio)` and zeros for the others, and the
/// mask of kept elements. Each element draws an f64 in 0..1 from numpy's `RandomState(seed)` and is
/// kept if the number is at least the ratio. Without training the output is x.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dropout {
    /// Seed of the random numbers; each run draws the same numbers.
    pub seed: u32,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "Dropout"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        if let Some(ratio) = optional(inputs, 1) {
            float(ratio.ty.dtype)?;
            single("ratio", ratio)?;
        }
        if let Some(training) = optional(inputs, 2) {
            if training.ty.dtype != DType::Bool {
                let dtype = training.ty.dtype;
                let message = format!("training_mode has dtype {dtype}, expected bool");
                return Err(Error::invalid(message));
            }
            single("training_mode", training)?;
        }
        let mask = TensorType { dtype: DType::Bool, ..x.ty.clone() };
        Ok(vec![ValueInfo::of(x.ty.clone()), ValueInfo::of(mask)])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let trains = optional(inputs, 2).is_some_and(|training| {
            let constant = training.constant.as_ref().and_then(|t| t.as_slice::<bool>().ok());
            constant.is_none_or(|values| values.first() != Some(&false))
        });
        // An element's random number depends on its position in the whole tensor.
        if trains { Axes::new() } else { Axes::each_but(&[], inputs, outputs.len()) }
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        concrete(self, inputs)?;
        let x = required(inputs, 0)?;
        let mut mask = ctx.alloc(DType::Bool, x.shape().clone())?;
        let keep = mask.as_mut_slice::<bool>()?;
        let ratio = match optional(inputs, 1) {
            Some(ratio) => single_float(ctx, ratio)?,
            None => 0.5,
        };
        let training = match optional(inputs, 2) {
            Some(training) => training.as_slice::<bool>()?.first().copied().unwrap_or(false),
            None => false,
        };
        if !training || ratio == 0. {
            keep.fill(true);
            return Ok(vec![x.to_tensor()?, mask]);
        }
        if !(0. ..1.).contains(&ratio) {
            return Err(Error::invalid(format!("ratio is {ratio}, expected 0 or more, below 1")));
        }
        let mut random = Twister::new(self.seed);
        keep.iter_mut().for_each(|keep| *keep = random.next_f64() >= ratio);
        let scale = 1. / (1. - ratio);
        let mut out = ctx.alloc(x.dtype(), x.shape().clone())?;
        if x.dtype() == DType::F64 {
            scaled(x.as_slice()?, keep, scale, 0f64, out.as_mut_slice()?);
        } else {
            #[allow(clippy::cast_possible_truncation, reason = "the scale of f32 elements")]
            scaled(x.as_slice()?, keep, scale as f32, 0f32, out.as_mut_slice()?);
        }
        Ok(vec![out, mask])
    }
}

/// `out = x · scale` where it is kept, and zero elsewhere.
fn scaled<T: Copy + std::ops::Mul<Output = T>>(
    x: &[T],
    keep: &[bool],
    scale: T,
    zero: T,
    out: &mut [T],
) {
    for (o, (x, keep)) in out.iter_mut().zip(x.iter().zip(keep)) {
        *o = if *keep { *x * scale } else { zero };
    }
}

/// The one element of a float tensor.
fn single_float(ctx: &Context, x: &TensorView<'_>) -> Result<f64> {
    if x.dtype() == DType::F64 {
        return Ok(x.as_slice::<f64>()?.first().copied().unwrap_or(0.5));
    }
    let wide = widen(ctx, x)?;
    Ok(wide.as_slice::<f32>()?.first().copied().unwrap_or(0.5).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, noise, run_all, t};

    #[test]
    fn what_is_kept_is_scaled() {
        let x = noise(&[3, 7], 0);
        let (on, off) = (t(&[], &[true]), t(&[], &[false]));
        let op = Dropout { seed: 0 };
        for (ratio, training) in [(0.25f32, &off), (0., &on)] {
            let ratio = t(&[], &[ratio]);
            let out = run_all(&op, &[Some(&x), Some(&ratio), Some(training)]).unwrap();
            assert_eq!(out[0], x);
            assert!(out[1].as_slice::<bool>().unwrap().iter().all(|k| *k));
        }
        let ratio = t(&[], &[0.6f64]);
        let out = run_all(&op, &[Some(&x), Some(&ratio), Some(&on)]).unwrap();
        // numpy's RandomState(0) begins 0.549, 0.715, 0.603, 0.545, 0.424, 0.646, 0.438.
        let kept = &out[1].as_slice::<bool>().unwrap()[..7];
        assert_eq!(kept, [false, true, true, false, false, true, false]);
        let want: Vec<f32> = x
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .zip(out[1].as_slice::<bool>().unwrap())
            .map(|(x, keep)| if *keep { x / 0.4 } else { 0. })
            .collect();
        assert_close(&out[0], &t(&[3, 7], &want), 1e-6);
        let whole = t(&[], &[1f32]);
        assert!(run_fails(&op, [&x, &whole, &on]).contains("ratio is 1"));
    }

    fn run_fails(op: &Dropout, inputs: [&Tensor; 3]) -> String {
        crate::testing::fails(op, &inputs)
    }
}
