//! Bit by bit.

use crate::Axes;
use crate::args::{concrete_one, output, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::walk::Walk;
use lgp_memory::{DType, Element, Tensor, TensorView};
use std::ops::RangeInclusive;

/// Which function of two integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitwiseKind {
    /// Bits set in both.
    And,
    /// Bits set in either.
    Or,
    /// Bits set in exactly one.
    Xor,
    /// Bits moved up by the second's value; unsigned integers only.
    ShiftLeft,
    /// Bits moved down by the second's value; unsigned integers only.
    ShiftRight,
}

/// `BitwiseAnd`, `BitShift` and so on: two inputs of one integer dtype that broadcast to each
/// other. Bits that are shifted out are lost; a shift by the dtype's width or more gives 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitwise {
    /// The function.
    pub kind: BitwiseKind,
}

impl Op for Bitwise {
    fn name(&self) -> &'static str {
        match self.kind {
            BitwiseKind::And => "BitwiseAnd",
            BitwiseKind::Or => "BitwiseOr",
            BitwiseKind::Xor => "BitwiseXor",
            BitwiseKind::ShiftLeft | BitwiseKind::ShiftRight => "BitShift",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        same_dtype("input 1", a.ty.dtype, b.ty.dtype)?;
        let shifts = matches!(self.kind, BitwiseKind::ShiftLeft | BitwiseKind::ShiftRight);
        integer(a.ty.dtype, !shifts)?;
        let shape = match (a.sym_shape(), b.sym_shape()) {
            (Some(a), Some(b)) => Some(dims::broadcast(a, b)?),
            _ => None,
        };
        Ok(output(a.ty.dtype, shape))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        let mut out = ctx.alloc(dtype, shape.clone())?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let walk = Walk::new(&shape, [a.shape(), b.shape()])?;
        match dtype {
            DType::U8 => self.each::<u8>(ctx, &walk, a, b, &mut out)?,
            DType::I8 => self.each::<i8>(ctx, &walk, a, b, &mut out)?,
            DType::U16 => self.each::<u16>(ctx, &walk, a, b, &mut out)?,
            DType::I16 => self.each::<i16>(ctx, &walk, a, b, &mut out)?,
            DType::U32 => self.each::<u32>(ctx, &walk, a, b, &mut out)?,
            DType::I32 => self.each::<i32>(ctx, &walk, a, b, &mut out)?,
            DType::U64 => self.each::<u64>(ctx, &walk, a, b, &mut out)?,
            _ => self.each::<i64>(ctx, &walk, a, b, &mut out)?,
        }
        Ok(vec![out])
    }
}

impl Bitwise {
    fn each<T: Element + num_traits::PrimInt>(
        &self,
        ctx: &Context,
        walk: &Walk<2>,
        a: &TensorView<'_>,
        b: &TensorView<'_>,
        out: &mut Tensor,
    ) -> Result<()> {
        let width = T::zero().count_zeros();
        let by = |b: T| b.to_u32().filter(|&n| n < width);
        let f: &(dyn Fn(T, T) -> T + Sync) = match self.kind {
            BitwiseKind::And => &|a, b| a & b,
            BitwiseKind::Or => &|a, b| a | b,
            BitwiseKind::Xor => &|a, b| a ^ b,
            BitwiseKind::ShiftLeft => &|a, b| by(b).map_or(T::zero(), |n| a.unsigned_shl(n)),
            BitwiseKind::ShiftRight => &|a, b| by(b).map_or(T::zero(), |n| a.unsigned_shr(n)),
        };
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        let [sa, sb] = walk.steps;
        ctx.split(out.as_mut_slice::<T>()?, walk.row, walk.row * 4, |first, part| {
            for (i, part) in part.chunks_exact_mut(walk.row).enumerate() {
                let [x, y] = walk.starts(first + i);
                for (j, out) in part.iter_mut().enumerate() {
                    *out = f(a[x + j * sa], b[y + j * sb]);
                }
            }
        });
        Ok(())
    }
}

/// `BitwiseNot`: one input of an integer dtype.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BitwiseNot;

impl Op for BitwiseNot {
    fn name(&self) -> &'static str {
        "BitwiseNot"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        integer(x.ty.dtype, true)?;
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        Axes::elementwise(inputs, outputs)
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        concrete_one(self, inputs)?;
        let mut out = required(inputs, 0)?.to_tensor()?;
        out.as_bytes_mut()?.iter_mut().for_each(|byte| *byte = !*byte);
        Ok(vec![out])
    }
}

fn integer(dtype: DType, signed: bool) -> Result<()> {
    let fits = match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => true,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => signed,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let expected = if signed { "an integer" } else { "an unsigned integer" };
    Err(Error::invalid(format!("dtype is {dtype}, expected {expected}")))
}
