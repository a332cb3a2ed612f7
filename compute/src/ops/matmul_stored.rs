//! Matrix product whose right side stays stored in fewer bits than the product uses. No operator of
//! ONNX: a pass puts it in place of `MatMul`. Devices widen a weight as they load it; on the CPU
//! [`MatMulBits`] takes its place.

mod device;

use super::matmul::{cpu, facts};
use super::{Cast, DequantizeLinear, MatMulBits, MatMulPacked, UnpackBits};
use crate::Axes;
use crate::args::{concrete_one, optional, rank, required, same_dtype};
use crate::device::Launches;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Decoder, Hints, Operand, Step};
use lgp_memory::{DType, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `a · w` in f32: a of shape `[…, k]`, the stored weight, its scales and its zero points; the last
/// two may be absent.
///
/// With `bits`, weight, scales and zero points are the inputs of that [`UnpackBits`]. Otherwise the
/// weight w is a matrix `[k, n]` of f16 or bf16; or of i8 or u8, and stands for
/// `(w − zero point) · scale`. Scale (f32) and zero point (w's dtype) have one element, or one for
/// each column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatMulStored {
    /// How the weight is packed, if it is.
    pub bits: Option<UnpackBits>,
}

/// The dequantisation of a weight of bytes, with scales along the columns.
const COLUMNS: DequantizeLinear = DequantizeLinear { axis: 1, block: 0, to: Some(DType::F32) };

impl MatMulStored {
    /// The product with a weight as stored before `decoder` makes floats of it; `None` for a weight
    /// that this operator does not read.
    pub(crate) fn of(decoder: &Decoder, inputs: &[Option<&ValueInfo>]) -> Option<Self> {
        let f32s = |i: usize| optional(inputs, i).is_some_and(|x| x.ty.dtype == DType::F32);
        let op = match decoder {
            Decoder::Unpacks(bits) => Self { bits: Some(bits.clone()) },
            Decoder::Widens => Self { bits: None },
            Decoder::Scales { axis, block, to } => {
                let scale = optional(inputs, 2)?.ty.concrete_shape()?.elements().ok()?;
                let columns = matches!(axis, 1 | -1) && *block == 0;
                let floats = to.is_none_or(|to| to == DType::F32) && f32s(2);
                (floats && (scale == 1 || columns)).then_some(Self { bits: None })?
            }
        };
        (f32s(0) && op.infer(inputs).is_ok()).then_some(op)
    }

    /// The weight as `MatMul` takes it, from the inputs after the first.
    fn expanded(&self, ctx: &Context, stored: &[Option<TensorView<'_>>]) -> Result<Tensor> {
        let wide = match (&self.bits, stored) {
            (Some(bits), _) => bits.run(ctx, stored)?,
            (None, [_, Some(_), ..]) => COLUMNS.run(ctx, stored)?,
            (None, _) => Cast { to: DType::F32 }.run(ctx, &stored[..1])?,
        };
        wide.into_iter().next().ok_or_else(|| Error::invalid("the weight has no value"))
    }

    /// The type of the weight as `MatMul` takes it.
    fn weight(&self, inputs: &[Option<&ValueInfo>]) -> Result<ValueInfo> {
        let stored = required(inputs, 1)?;
        let wide = match (&self.bits, stored.ty.dtype) {
            (Some(bits), _) => bits.infer(&inputs[1..])?,
            (None, DType::F16 | DType::BF16) if optional(inputs, 2).is_none() => {
                Cast { to: DType::F32 }.infer(&inputs[1..2])?
            }
            (None, DType::I8 | DType::U8) => {
                same_dtype("the scale", DType::F32, required(inputs, 2)?.ty.dtype)?;
                COLUMNS.infer(&inputs[1..])?
            }
            (None, other) => return Err(Error::unsupported(format!("a weight of {other}"))),
        };
        let wide = wide.into_iter().next();
        let wide = wide.ok_or_else(|| Error::invalid("the weight has no type"))?;
        rank("the weight", &wide, 2)?;
        Ok(wide)
    }
}

impl Op for MatMulStored {
    fn name(&self) -> &'static str {
        "MatMulStored"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        facts::infer(required(inputs, 0)?, &self.weight(inputs)?)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = |i: usize| optional(inputs, i).map(|x| x.rank());
        let Some(last) = rank(0).flatten().and_then(|rank| rank.checked_sub(1)) else {
            return Axes::new();
        };
        let rows = Axes::each_but(&[last], inputs, outputs.len());
        let flat = |i: usize| matches!(rank(i), None | Some(Some(0 | 1)));
        if self.bits.is_some() || !flat(2) || !flat(3) {
            return rows;
        }
        let scales = [2, 3].into_iter().filter(|&i| rank(i) == Some(Some(1))).map(|i| (i, 0));
        rows.all([(0, last), (1, 0)], []).each(std::iter::once((1, 1)).chain(scales), [(0, last)])
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        facts::multiply_adds(inputs, outputs)
    }

    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        if hints.on_device {
            return Ok(None);
        }
        let constant = |i: usize| optional(inputs, i).map(|x| x.constant.as_ref());
        let constants: Vec<Option<Option<&Tensor>>> = (1..4).map(constant).collect();
        if constants.iter().any(|x| matches!(x, Some(None))) {
            return Ok(None);
        }
        let stored: Vec<Option<TensorView<'_>>> =
            constants.iter().map(|x| x.flatten().map(Tensor::view)).collect();
        let packed = match (&self.bits, &stored[..]) {
            (Some(bits), _) => MatMulBits::pack(bits, &stored)?,
            (None, [Some(weight), Some(scale), zero]) => {
                MatMulBits::pack_bytes(weight, scale, zero.as_ref())?
            }
            (None, _) => None,
        };
        let words = |words| vec![Operand::Input(0), Operand::Constant(words)];
        if let Some((op, packed)) = packed {
            return Ok(Some(Step::new(op, words(packed))));
        }
        let ctx = Context::new(1).with_isa(hints.isa);
        let wide = self.expanded(&ctx, &stored)?;
        let (op, packed) = MatMulPacked::pack(&ctx, &wide.view(), false, hints.bf16)?;
        Ok(Some(Step::new(op, words(packed))))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let wide = self.expanded(ctx, &inputs[1..])?;
        Ok(vec![cpu::run(ctx, [required(inputs, 0)?, &wide.view()], dtype, &shape)?])
    }
}
