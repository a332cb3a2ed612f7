//! Products of 8-bit matrices, summed in 32 bits.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::args::{optional, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::matmul::facts;
use crate::{Axes, AxisKind};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `MatMulInteger`: inputs a and b, each i8 or u8, and their zero points (optional): one, or one
/// for each row of a and each column of b. The output is i32 and shaped by numpy's rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatMulInteger;

impl Op for MatMulInteger {
    fn name(&self) -> &'static str {
        "MatMulInteger"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        for (i, x) in [a, b].into_iter().enumerate() {
            byte(x.ty.dtype)?;
            if let Some(zero) = optional(inputs, 2 + i) {
                same_dtype(&format!("zero point {i}"), x.ty.dtype, zero.ty.dtype)?;
            }
        }
        let shape = match (a.sym_shape(), b.sym_shape()) {
            (Some(a), Some(b)) => Some(facts::shape(a, b)?),
            _ => None,
        };
        if let (Some(b), Some(zero)) = (b.sym_shape(), optional(inputs, 3))
            && let Some(zero) = zero.sym_shape()
        {
            let mut columns = b.to_vec();
            match &mut columns[..] {
                [.., inner, _] => *inner = Dim::Known(1),
                _ => columns.clear(),
            }
            per("column of b", zero, &columns)?;
        }
        if let (Some(a), Some(zero)) = (a.sym_shape(), optional(inputs, 2))
            && let Some(zero) = zero.sym_shape()
        {
            // A column of zero points, or a vector of them.
            let zero = match zero {
                [rows @ .., last]
                    if zero.len() > 1
                        && zero.len() == a.len()
                        && last.known().is_none_or(|n| n == 1) =>
                {
                    rows
                }
                all => all,
            };
            per("row of a", zero, &a[..a.len().saturating_sub(1)])?;
        }
        Ok(output(DType::I32, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = |i: usize| optional(inputs, i).map(|x| x.rank());
        if matches!(rank(2), Some(None)) || matches!(rank(3), Some(None)) {
            return Axes::new();
        }
        facts::axes(inputs, outputs).iter().fold(Axes::new(), |axes, own| {
            let zero = |side: usize| {
                let (x, zero) = (rank(side)??, rank(2 + side)??);
                Some((2 + side, zero_axis(side, own.in_input(side)?, x, zero)?))
            };
            let zeros = [0, 1].into_iter().filter(|_| own.kind == AxisKind::Each).filter_map(zero);
            let given = own.inputs.iter().copied();
            axes.with(own.kind, given.chain(zeros), own.outputs.iter().copied())
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        facts::multiply_adds(inputs, outputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// The axis of the zero points, whose rank is `zero`, for an axis of their operand, of rank `rank`,
/// other than the inner one. Vectors of zero points belong to the rows of a or the columns of b.
fn zero_axis(side: usize, axis: usize, rank: usize, zero: usize) -> Option<usize> {
    match zero {
        1 => (axis + 2 - side == rank).then_some(0),
        _ if zero == rank || (side == 0 && zero + 1 == rank) => Some(axis),
        _ => None,
    }
}

/// Fails unless the dtype has 8 bits.
pub(crate) fn byte(dtype: DType) -> Result<()> {
    if matches!(dtype, DType::I8 | DType::U8) {
        Ok(())
    } else {
        Err(Error::invalid(format!("an operand has dtype {dtype}, expected i8 or u8")))
    }
}

/// Fails unless there is one zero point, one for each row or column, or one for each row or column
/// of each matrix: then their shape is `all`.
fn per(what: &str, zero: &[Dim], all: &[Dim]) -> Result<()> {
    if zero.iter().all(|d| *d == Dim::Known(1)) {
        return Ok(());
    }
    let flat = all.last().map_or(&[][..], std::slice::from_ref);
    if [flat, all].into_iter().any(|some| dims::expect_all("", some, zero).is_ok()) {
        return Ok(());
    }
    let zero = lgp_memory::SymShape(zero.to_vec());
    Err(Error::invalid(format!("zero points have shape {zero}, expected one for each {what}")))
}
