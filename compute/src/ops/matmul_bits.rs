//! Matrix product whose right side stays in few bits on the CPU: kernels make floats of them in
//! registers. No operator of ONNX: a pass puts it in place of `MatMul`.

mod columns;
mod few;
mod layout;
mod many;
mod pack;
#[cfg(test)]
mod tests;

use super::matmul_packed::{absorbed, infer_rows, row_axes};
use crate::Axes;
use crate::args::{concrete_one, optional, required};
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::gemm::Epilogue;
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Absorbed, Following};
use few::FEW;
use layout::Layout;
pub use layout::Zeros;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `activation(a · w + bias + residual)` in f32: a of shape `[…, k]`, the packed weight (u32), then
/// a bias of `[n]` and a residual of the output's shape `[…, n]`, which may be absent. An element of
/// w stands for `(q − zero) · scale`.
///
/// An infinite element of a row makes all elements of the row's result NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct MatMulBits {
    /// The inner dimension.
    pub k: usize,
    /// Columns of the weight.
    pub n: usize,
    /// Bits of an element: 2, 4 or 8.
    pub bits: usize,
    /// Elements along k that share a scale and a zero point; together they take whole words of 32
    /// bits.
    pub block: usize,
    /// The zero points.
    pub zeros: Zeros,
    /// The activation, applied last.
    pub activation: Activation,
}

const NAME: &str = "MatMulBits";

impl MatMulBits {
    fn layout(&self) -> Result<Layout> {
        let &Self { k, n, bits, block, zeros, .. } = self;
        let whole = block.checked_mul(bits).is_some_and(|size| size.is_multiple_of(32));
        if !matches!(bits, 2 | 4 | 8) || block == 0 || !whole {
            return Err(Error::unsupported(format!("{bits} bits in blocks of {block}")));
        }
        Ok(Layout { k, n, bits, block, zeros })
    }
}

impl Op for MatMulBits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let words = self.layout()?.words().map_or(Dim::Unknown, Dim::Known);
        infer_rows(inputs, (self.k, self.n), (DType::U32, words))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        row_axes(inputs)
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let elements = outputs.first().map_or(0, crate::cost::elements);
        elements.saturating_mul(self.k as u64)
    }

    fn absorbing(&self, inputs: &[Option<&ValueInfo>], next: &Following<'_>) -> Option<Absorbed> {
        let with = |activation| Self { activation, ..self.clone() };
        absorbed(self, (self.activation, self.n), inputs, next, with)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let layout = self.layout()?;
        let a = required(inputs, 0)?.as_slice::<f32>()?;
        let words = required(inputs, 1)?.as_slice::<u32>()?;
        let slice = |i| optional(inputs, i).map(|x| x.as_slice::<f32>()).transpose();
        let epilogue =
            Epilogue { bias: slice(2)?, residual: slice(3)?, activation: self.activation };
        let mut out = ctx.alloc(dtype, shape)?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        let m = out.len() / self.n;
        let mut scratch = ctx.scratch(DType::F32, [self.scratch_floats(ctx.threads(), m)])?;
        let scratch = scratch.as_mut_slice::<f32>()?;
        let c = out.as_mut_slice::<f32>()?;
        if m <= FEW {
            few::multiply(ctx, &layout, (words, a), scratch, c, epilogue);
        } else {
            many::multiply(ctx, &layout, (words, a), scratch, c, epilogue)?;
        }
        Ok(vec![out])
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = optional(inputs, 0).and_then(|x| x.ty.concrete_shape());
        let rows = shape.and_then(|shape| {
            let (_, rows) = shape.split_last()?;
            rows.iter().try_fold(1usize, |all, &rows| all.checked_mul(rows))
        });
        self.scratch_floats(threads, rows.unwrap_or(0)).saturating_mul(4)
    }
}

impl MatMulBits {
    /// Floats of scratch memory of a product of `m` rows.
    fn scratch_floats(&self, threads: usize, m: usize) -> usize {
        let Some(layout) = self.layout().ok().filter(|_| m > 0 && self.n > 0) else { return 0 };
        if m <= FEW {
            few::left_floats(&layout).saturating_mul(m)
        } else {
            many::scratch_floats(&layout, threads)
        }
    }
}
