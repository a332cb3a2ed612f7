//! Sequences and optionals.

use crate::onnx::dtype;
use crate::onnx::node::{NodeCx, Refusal};
use lgp_compute::ops::{
    ConcatFromSequence, Optional, OptionalGetElement, OptionalHasElement, SequenceAt,
    SequenceConstruct, SequenceEmpty, SequenceErase, SequenceInsert, SequenceLength,
    SplitToSequence,
};
use lgp_memory::{DType, TensorType, ValueKind};

pub(crate) fn at(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(SequenceAt)
}

pub(crate) fn construct(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(SequenceConstruct)
}

pub(crate) fn empty(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let dtype = match cx.int("dtype")? {
        Some(code) => dtype::from_onnx(code)
            .map_err(|given| format!("attribute 'dtype' is {given}, which is not supported"))?,
        None => DType::F32,
    };
    cx.map(SequenceEmpty { dtype })
}

pub(crate) fn erase(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(SequenceErase)
}

pub(crate) fn insert(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(SequenceInsert)
}

pub(crate) fn length(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(SequenceLength)
}

pub(crate) fn split(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = SplitToSequence {
        axis: cx.int("axis")?.unwrap_or(0),
        keep_dims: cx.flag("keepdims")?.unwrap_or(true),
    };
    cx.map(op)
}

pub(crate) fn concat(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let op = ConcatFromSequence {
        axis: cx.int("axis")?.ok_or("attribute 'axis' is missing")?,
        new_axis: cx.flag("new_axis")?.unwrap_or(false),
    };
    cx.map(op)
}

pub(crate) fn optional(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let declared = cx.type_attr("type")?;
    let (kind, ty) = match declared {
        Some((ValueKind::Sequence, ty)) => (ValueKind::OptionalSequence, ty),
        Some((_, ty)) => (ValueKind::Optional, ty),
        None => (ValueKind::Optional, TensorType { dtype: DType::F32, shape: None }),
    };
    cx.map(Optional { kind, ty })
}

pub(crate) fn optional_get(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(OptionalGetElement)
}

pub(crate) fn optional_has(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    cx.map(OptionalHasElement)
}
