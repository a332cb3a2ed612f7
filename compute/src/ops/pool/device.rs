//! Pooling on devices.

use super::Pool;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, groups, planes};
use crate::op::ValueInfo;
use crate::ops::pooling::PoolKind;
use crate::window::{Axis, three};
use lgp_memory::{DType, Shape};

const GROUP: usize = 64;

/// Windows over elements of type `dtype`, from an input of `dims` to an output of `shape`.
pub(crate) struct Windows {
    pub(crate) dtype: DType,
    pub(crate) dims: Shape,
    pub(crate) shape: Shape,
    pub(crate) axes: [Axis; 3],
}

impl Windows {
    /// `None` where a dimension is unknown or 0.
    pub(crate) fn of(
        op: &Pool,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Self> {
        let x = optional(inputs, 0)?;
        let (dims, shape) = (x.ty.concrete_shape()?, outputs.first()?.ty.concrete_shape()?);
        if dims.contains(&0) || shape.contains(&0) {
            return None;
        }
        let axes = three(&op.windows(&dims).ok()?).ok()?;
        Some(Self { dtype: x.ty.dtype, dims, shape, axes })
    }
}

pub(super) fn launches(
    op: &Pool,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let Windows { dtype, dims, shape, axes } = Windows::of(op, inputs, outputs)?;
    let kernel = Kernel::new("pool", include_str!("pool.cl"), [GROUP, 1, 1]).window(&axes);
    let mut kernel = function(kernel, op.kind, dtype)?;
    for (axis, name) in axes.iter().zip(["END_D", "END_H", "END_W"]) {
        kernel = kernel.define(name, axis.end);
    }
    let outputs: usize = shape.iter().product();
    let count = u32::try_from(dims[0] * dims[1]).ok()?;
    let mut arguments = vec![Argument::Input(0), Argument::Output(0), Argument::U32(count)];
    arguments.extend(planes(&axes)?);
    let taps: usize = axes.iter().map(|axis| axis.kernel).product();
    let bytes = dims.byte_len(dtype).ok()? + shape.byte_len(dtype).ok()?;
    let (flops, bytes) = ((outputs * taps) as u64, bytes as u64);
    Some(Call { kernel, groups: [groups(outputs, GROUP), 1, 1], arguments, flops, bytes }.into())
}

/// The kernel with the functions of a kind of pooling. Maxima of integers stay integers.
fn function(kernel: Kernel, kind: PoolKind, dtype: DType) -> Option<Kernel> {
    let count_padding = kind == PoolKind::Average { count_include_pad: true };
    let kernel = kernel.define("COUNT_PADDING", usize::from(count_padding));
    let [combine, result] = match kind {
        // NaN stays.
        PoolKind::Max => ["((a) != (a) || (a) > (b) ? (a) : (b))", "(a)"],
        PoolKind::Average { .. } => ["((a) + (b))", "((a) / (float)(n))"],
        PoolKind::Sum => ["((a) + (b))", "(a)"],
    };
    let kernel = kernel.define("COMBINE(a, b)", combine).define("RESULT(a, n)", result);
    let bits = 8 * dtype.size();
    let start = match (kind, dtype) {
        (PoolKind::Max, DType::F32 | DType::F16 | DType::BF16) => "-INFINITY".to_owned(),
        (PoolKind::Max, DType::I8 | DType::I16 | DType::I32 | DType::I64) => {
            format!("(X_TYPE)((i64)((u64)1 << 63) >> {})", 64 - bits)
        }
        _ => "0".to_owned(),
    };
    kernel.define("START", start).elements(dtype)
}
