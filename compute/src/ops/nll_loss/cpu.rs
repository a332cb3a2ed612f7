//! Negative log likelihood loss on the CPU: it reads one element of x for each sample.

use super::{NllLoss, Reduction};
use crate::args::{concrete_one, integers, optional, required};
use crate::error::{Error, Result};
use crate::matrix::Real;
use crate::movement::around;
use crate::number::with_type;
use crate::op::Context;
use lgp_memory::{Tensor, TensorView};

pub(super) fn run(
    op: &NllLoss,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let mut out = ctx.alloc(dtype, shape)?;
    with_type!(dtype, real T => losses::<T>(op, inputs, out.as_mut_slice()?))?;
    Ok(vec![out])
}

fn losses<T: Real>(op: &NllLoss, inputs: &[Option<TensorView<'_>>], out: &mut [T]) -> Result<()> {
    let x = required(inputs, 0)?;
    let target = integers(&required(inputs, 1)?.to_tensor()?)?;
    let weight = optional(inputs, 2).map(TensorView::as_slice::<T>).transpose()?;
    let (_, classes, inner) = around(x.shape(), 1);
    let x = x.as_slice::<T>()?;
    let (mut sum, mut total) = (T::zero(), T::zero());
    for (i, &class) in target.iter().enumerate() {
        let (loss, share) = if op.ignore_index == Some(class) {
            (T::zero(), T::zero())
        } else {
            let Some(class) = usize::try_from(class).ok().filter(|&c| c < classes) else {
                let message = format!("target {class} is not one of {classes} classes");
                return Err(Error::invalid(message));
            };
            let share = weight.map_or(T::one(), |w| w[class]);
            (-x[(i / inner * classes + class) * inner + i % inner] * share, share)
        };
        if op.reduction == Reduction::None {
            out[i] = loss;
        }
        sum = sum + loss;
        total = total + share;
    }
    match (op.reduction, out) {
        (Reduction::Sum, [out]) => *out = sum,
        (Reduction::Mean, [out]) => *out = sum / total,
        _ => {}
    }
    Ok(())
}
