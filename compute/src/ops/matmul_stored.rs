//! Matrix product whose right side stays as it is stored, in fewer bits than it is multiplied in. No
//! operator of ONNX: a pass puts it in place of `MatMul` for devices, which widen a weight on its way
//! from memory.

mod device;

use super::{Cast, DequantizeLinear, MatMul, UnpackBits};
use crate::args::{arity, optional, rank, required, same_dtype};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor, TensorView};

/// `a · w` in f32: a of shape `[…, k]`, the stored weight, its scales and its zero points; the last
/// two may be absent.
///
/// With `bits`, weight, scales and zero points are as that takes them. Otherwise the weight is a
/// matrix `[k, n]` of f16 or bf16; or of i8 or u8, and stands for `(w − zero point) · scale`: the scale
/// is f32 and has one element, or one for each column, and so has the zero point, of w's dtype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatMulStored {
    /// How the weight is packed, if it is.
    pub bits: Option<UnpackBits>,
}

const OP: &str = "MatMulStored";
/// How bytes become floats again: scales belong to columns.
const COLUMNS: DequantizeLinear = DequantizeLinear { axis: 1, block: 0, to: Some(DType::F32) };

impl MatMulStored {
    /// The weight as `MatMul` takes it.
    fn weight(&self, inputs: &[Option<&ValueInfo>]) -> Result<ValueInfo> {
        let stored = required(OP, inputs, 1)?;
        let wide = match (&self.bits, stored.ty.dtype) {
            (Some(bits), _) => bits.infer(&inputs[1..])?,
            (None, DType::F16 | DType::BF16) if optional(inputs, 2).is_none() => {
                Cast { to: DType::F32 }.infer(&inputs[1..2])?
            }
            (None, DType::I8 | DType::U8) => {
                same_dtype(OP, "the scale", DType::F32, required(OP, inputs, 2)?.ty.dtype)?;
                COLUMNS.infer(&inputs[1..])?
            }
            (None, other) => return Err(Error::unsupported(OP, format!("a weight of {other}"))),
        };
        let wide = wide.into_iter().next();
        let wide = wide.ok_or_else(|| Error::invalid(OP, "the weight has no type"))?;
        rank(OP, "the weight", &wide, 2)?;
        Ok(wide)
    }
}

impl Op for MatMulStored {
    fn name(&self) -> &'static str {
        OP
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity(OP, inputs, 2, 4)?;
        MatMul.infer(&[Some(required(OP, inputs, 0)?), Some(&self.weight(inputs)?)])
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let [a, stored @ ..] = inputs else { return Err(Error::invalid(OP, "input 0 is missing")) };
        let wide = match (&self.bits, stored) {
            (Some(bits), _) => bits.run(ctx, stored)?,
            (None, [_, Some(_), ..]) => COLUMNS.run(ctx, stored)?,
            (None, _) => Cast { to: DType::F32 }.run(ctx, stored)?,
        };
        MatMul.run(ctx, &[a.clone(), wide.first().map(Tensor::view)])
    }
}
