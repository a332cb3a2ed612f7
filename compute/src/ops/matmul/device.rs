//! MatMul on devices.

use crate::device::{Argument, Factor, Launches, Product, Zero};
use crate::op::ValueInfo;

pub(super) fn launches(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
    product(inputs, [None, None], outputs)
}

pub(super) fn schedules(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
    schedules_of(inputs, [None, None], outputs)
}

/// The schedules of [`product`].
pub(crate) fn schedules_of(
    inputs: &[Option<&ValueInfo>],
    zeros: [Option<Zero>; 2],
    outputs: &[ValueInfo],
) -> Vec<Launches> {
    let all = with_product(inputs, zeros, outputs, |product| Some(product.schedules()));
    all.unwrap_or_default()
}

/// The product of the first two inputs, after subtracting their zero points, if any.
pub(crate) fn product(
    inputs: &[Option<&ValueInfo>],
    zeros: [Option<Zero>; 2],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    with_product(inputs, zeros, outputs, |product| product.launches())
}

/// The result of `make` for the product of [`product`].
fn with_product<T>(
    inputs: &[Option<&ValueInfo>],
    zeros: [Option<Zero>; 2],
    outputs: &[ValueInfo],
    make: impl FnOnce(&Product<'_>) -> Option<T>,
) -> Option<T> {
    let [Some(a), Some(b), ..] = inputs else { return None };
    let [output] = outputs else { return None };
    let factor = |i: usize, info: &ValueInfo, along| {
        let (argument, dtype) = (Argument::Input(i), info.ty.dtype);
        Factor { zero: zeros[i], ..Factor::plain(argument, dtype, along) }
    };
    let operands = [factor(0, a, true), factor(1, b, false)];
    let (a, b) = (a.ty.concrete_shape()?, b.ty.concrete_shape()?);
    let (batch_a, m, k) = match a.dims() {
        [batch @ .., m, k] => (batch, *m, *k),
        dims => (&[][..], 1, dims.iter().product()),
    };
    let (batch_b, n) = match b.dims() {
        [batch @ .., _, n] => (batch, *n),
        _ => (&[][..], 1),
    };
    let y = output.ty.concrete_shape()?;
    let batch = &y[..batch_a.len().max(batch_b.len())];
    let y = (Argument::Output(0), output.ty.dtype);
    let whole = Product {
        sizes: [m, n, k],
        operands,
        batches: [batch, batch_a, batch_b],
        alpha: 1.,
        addend: None,
        y,
    };
    // One right side for all: the left side's batch only adds rows.
    if batch_b.iter().all(|&d| d == 1) && !zeros[0].is_some_and(|zero| zero.each) {
        let rows = batch.iter().product::<usize>().checked_mul(m)?;
        let whole = Product { sizes: [rows, n, k], batches: [&[]; 3], ..whole };
        return make(&whole);
    }
    make(&whole)
}
