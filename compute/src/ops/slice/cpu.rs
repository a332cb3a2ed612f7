//! Slice on the CPU.

use super::Slice;
use crate::args::{infos, required};
use crate::error::{Error, Result};
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Tensor, TensorView};

pub(super) fn run(
    op: &Slice,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    crate::args::concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let infos = infos(inputs)?;
    let infos: Vec<_> = infos.iter().map(Option::as_ref).collect();
    let cuts = op.cuts(&infos, x.shape().rank())?;
    let cuts = cuts.ok_or_else(|| Error::unsupported("so many axes"))?;
    let mut view = Layout::contiguous(x.shape())?;
    for cut in cuts {
        let (start, len) = cut.on(x.shape()[cut.axis]);
        let step = isize::try_from(cut.step).unwrap_or(isize::MAX);
        view = view.sliced(cut.axis, start, step, len)?;
    }
    Ok(vec![strided(ctx, x, &view)?])
}
