//! Convolution of 8-bit tensors, summed in 32 bits.

mod device;
#[cfg(test)]
mod tests;

use crate::args::{optional, required, same_dtype};
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::matmul_integer::byte;
use crate::ops::{Cast, Conv};
use crate::quantized::widened;
use crate::{Axes, Axis, AxisKind};
use lgp_memory::{DType, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// `ConvInteger`: inputs x and weight, each i8 or u8, and their zero points (optional): one, or one
/// for each output channel of the weight. The output is i32.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConvInteger {
    /// Window and groups.
    pub conv: Conv,
}

impl Op for ConvInteger {
    fn name(&self) -> &'static str {
        "ConvInteger"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let mut wide = Vec::with_capacity(2);
        for i in 0..2 {
            let x = required(inputs, i)?;
            byte(x.ty.dtype)?;
            if let Some(zero) = optional(inputs, 2 + i) {
                same_dtype(&format!("zero point {i}"), x.ty.dtype, zero.ty.dtype)?;
            }
            let mut x = (*x).clone();
            (x.ty.dtype, x.constant) = (DType::F64, None);
            wide.push(x);
        }
        let mut out = self.conv.infer(&[Some(&wide[0]), Some(&wide[1])])?;
        out.iter_mut().for_each(|o| o.ty.dtype = DType::I32);
        Ok(out)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        // Only zero points of rank 1 may have one entry per channel.
        let zeros = optional(inputs, 3).filter(|zeros| zeros.rank() == Some(1));
        self.conv.image_axes(inputs, zeros.map(|_| 3))
    }

    fn for_length(&self, axis: &Axis, length: usize) -> Option<Arc<dyn Op>> {
        // Only a depthwise convolution has this axis, and it has a group for each channel.
        let is_channel = axis.kind == AxisKind::Each && axis.in_input(0) == Some(1);
        is_channel.then(|| -> Arc<dyn Op> {
            Arc::new(Self { conv: Conv { group: length, ..self.conv.clone() } })
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        self.conv.multiply_adds(inputs, outputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        // The inputs and the result in f64, and the scratch memory of their convolution.
        let wide: Vec<ValueInfo> = inputs
            .iter()
            .take(2)
            .flatten()
            .map(|info| ValueInfo::of(TensorType { dtype: DType::F64, ..info.ty.clone() }))
            .collect();
        let given: Vec<_> = wide.iter().map(Some).collect();
        let result = self.conv.infer(&given).unwrap_or_default();
        let copies = wide.iter().chain(&result).map(|info| info.bytes_in(DType::F64));
        copies.fold(self.conv.scratch_bytes(threads, &given), usize::saturating_add)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        crate::args::concrete(self, inputs)?;
        // Sums of products of bytes are exact in f64.
        let mut wide = Vec::with_capacity(2);
        for i in 0..2 {
            let x = required(inputs, i)?;
            let zero = optional(inputs, 2 + i);
            wide.push(centred(ctx, x, zero, i == 1)?);
        }
        let out = self.conv.run(ctx, &[Some(wide[0].view()), Some(wide[1].view())])?;
        let Some(out) = out.first() else { return Ok(Vec::new()) };
        Cast { to: DType::I32 }.run(ctx, &[Some(out.view())])
    }
}

/// The elements minus their zero point: one for all, or with `per_row` one for each index of the
/// first axis.
fn centred(
    ctx: &Context,
    x: &TensorView<'_>,
    zero: Option<&TensorView<'_>>,
    per_row: bool,
) -> Result<Tensor> {
    let zero = zero.map_or(Ok(vec![0]), widened)?;
    let rows = x.shape().first().copied().unwrap_or(0);
    if zero.len() != 1 && !(per_row && zero.len() == rows) {
        let message = format!("{} zero points given, expected 1 or {rows}", zero.len());
        return Err(crate::Error::invalid(message));
    }
    let mut out = ctx.scratch(DType::F64, x.shape().clone())?;
    if out.is_empty() {
        return Ok(out);
    }
    let row = x.len() / rows;
    let x = widened(x)?;
    let values = out.as_mut_slice::<f64>()?.chunks_exact_mut(row).zip(x.chunks_exact(row));
    for (i, (out, x)) in values.enumerate() {
        let zero = zero[i % zero.len()];
        out.iter_mut().zip(x).for_each(|(o, x)| *o = f64::from(x - zero));
    }
    Ok(out)
}
