//! Integer matrix products on devices.

use crate::args::optional;
use crate::device::{Argument, Launches, Zero};
use crate::op::ValueInfo;
use crate::ops::matmul::device::{product, schedules_of};

pub(super) fn launches(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
    product(inputs, zeros(inputs)?, outputs)
}

pub(super) fn schedules(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
    zeros(inputs).map_or(Vec::new(), |zeros| schedules_of(inputs, zeros, outputs))
}

/// The zero points of both operands; `None` where kernels cannot read them.
fn zeros(inputs: &[Option<&ValueInfo>]) -> Option<[Option<Zero>; 2]> {
    let [Some(a), Some(b), ..] = inputs else { return None };
    let (a, b) = (a.ty.concrete_shape()?, b.ty.concrete_shape()?);
    let rows = a.iter().rev().nth(1).copied().unwrap_or(1);
    let columns = if b.rank() > 1 { b.last().copied()? } else { 1 };
    // One zero point for all, or one for each row or column, alike in each batch.
    let zero = |i: usize, size: usize| -> Option<Option<Zero>> {
        let Some(zero) = optional(inputs, i) else { return Some(None) };
        let count = zero.ty.concrete_shape()?.elements().ok()?;
        let each = count != 1;
        (!each || count == size).then_some(Some(Zero { argument: Argument::Input(i), each }))
    };
    Some([zero(2, rows)?, zero(3, columns)?])
}
