//! Gemm on devices.

use super::Gemm;
use crate::args::optional;
use crate::device::{Addend, Argument, Factor, Launches, Product};
use crate::op::ValueInfo;
use lgp_memory::Shape;

pub(super) fn launches(
    op: &Gemm,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    product(op, inputs, outputs)?.launches()
}

pub(super) fn schedules(
    op: &Gemm,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    product(op, inputs, outputs).map_or(Vec::new(), |product| product.schedules())
}

fn product(
    op: &Gemm,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Product<'static>> {
    let factor = |i: usize, along: bool| -> Option<(Factor, Shape)> {
        let info = optional(inputs, i)?;
        let (argument, dtype) = (Argument::Input(i), info.ty.dtype);
        Some((Factor::plain(argument, dtype, along), info.ty.concrete_shape()?))
    };
    let (left, a) = factor(0, !op.trans_a)?;
    let (right, _) = factor(1, op.trans_b)?;
    let [output] = outputs else { return None };
    let y = output.ty.concrete_shape()?;
    let (m, n) = (y[0], y[1]);
    let k = if op.trans_a { a[0] } else { a[1] };
    let addend = |c: &ValueInfo| {
        let shape = c.ty.concrete_shape()?;
        let dims: [usize; 2] = match shape.dims() {
            [] => [1, 1],
            [columns] => [1, *columns],
            [.., rows, columns] => [*rows, *columns],
        };
        let steps = [if dims[0] == 1 { 0 } else { dims[1] }, usize::from(dims[1] != 1)];
        Some(Addend { argument: Argument::Input(2), dtype: c.ty.dtype, scale: op.beta, steps })
    };
    // As in BLAS, c is not read if beta is 0.
    let addend = match optional(inputs, 2).filter(|_| op.beta != 0.) {
        Some(c) => Some(addend(c)?),
        None => None,
    };
    Some(Product {
        sizes: [m, n, k],
        operands: [left, right],
        batches: [&[]; 3],
        alpha: op.alpha,
        addend,
        y: (Argument::Output(0), output.ty.dtype),
    })
}
