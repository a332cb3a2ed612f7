//! Sums and products of bytes, and the affine functions of arithmetic with constants.

use super::{Binary, BinaryKind};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::op::ValueInfo;
use crate::ops::{QAdd, QMul};
use crate::rewrite::Affine;
use lgp_memory::{DType, Dim};

/// The sum of bytes of one shape, or the product of bytes that broadcast.
pub(super) fn on_bytes(
    op: &Binary,
    inputs: &[Option<Dequantized<'_>>],
    y: &Requantized,
) -> Option<OnBytes> {
    let [Some(first), Some(second)] = inputs else { return None };
    let (a, b) = (first.quant?, second.quant?);
    match op.kind {
        BinaryKind::Add => {
            let (x, z) = (first.info.sym_shape()?, second.info.sym_shape()?);
            let same = x == z && !x.contains(&Dim::Unknown);
            let op = QAdd { a, b, y: y.quant, limits: y.limits };
            same.then(|| OnBytes::new(op, &[0, 1]))
        }
        BinaryKind::Mul => Some(OnBytes::new(QMul { a, b, y: y.quant, limits: y.limits }, &[0, 1])),
        _ => None,
    }
}

/// A sum, difference, product or quotient with a constant that has one element, or one for each
/// position of an axis.
pub(super) fn affine(op: &Binary, inputs: &[Option<&ValueInfo>]) -> Option<Affine> {
    let [Some(a), Some(b)] = inputs else { return None };
    let (x, constant, turned) = match (&a.constant, &b.constant) {
        (None, Some(constant)) => (a, constant, false),
        (Some(constant), None) => (b, constant, true),
        _ => return None,
    };
    let dims = constant.shape().dims();
    if constant.dtype() != DType::F32 || dims.len() > x.rank()? || constant.is_empty() {
        return None;
    }
    let mut long = dims.iter().rev().enumerate().filter(|(_, n)| **n != 1);
    let axis = long.next().map(|(from_end, _)| from_end + 1);
    if long.next().is_some() {
        return None;
    }
    let values: Vec<f64> = constant.as_slice::<f32>().ok()?.iter().map(|&v| v.into()).collect();
    let negative = || values.iter().map(|v| -v).collect();
    let (factors, shifts) = match (op.kind, turned) {
        (BinaryKind::Add, _) => (vec![1.], values),
        (BinaryKind::Sub, false) => (vec![1.], negative()),
        (BinaryKind::Sub, true) => (vec![-1.], values),
        (BinaryKind::Mul, _) => (values, vec![0.]),
        (BinaryKind::Div, false) => (values.iter().map(|v| 1. / v).collect(), vec![0.]),
        _ => return None,
    };
    let finite = factors.iter().chain(&shifts).all(|v| v.is_finite());
    finite.then_some(Affine { x: usize::from(turned), axis, factors, shifts })
}
