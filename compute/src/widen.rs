//! Conversions between f16 or bf16 and f32, around kernels in f32.

use crate::error::Result;
use crate::op::{Context, ValueInfo};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use lgp_memory::{DType, Tensor, TensorView};

impl ValueInfo {
    /// Bytes of a tensor of this shape in a dtype; 0 while the shape is unknown.
    pub(crate) fn bytes_in(&self, dtype: DType) -> usize {
        self.ty.concrete_shape().and_then(|shape| shape.byte_len(dtype).ok()).unwrap_or(0)
    }
}

/// Converts between f32 and f16 or bf16 into an output; other dtypes pass unchanged.
pub(crate) fn convert(ctx: &Context, x: &TensorView<'_>, to: DType) -> Result<Tensor> {
    converted(x, to, || ctx.alloc(to, x.shape().clone()))
}

/// Widens f16 and bf16 to f32 in scratch memory; other dtypes pass unchanged.
pub(crate) fn widen(ctx: &Context, x: &TensorView<'_>) -> Result<Tensor> {
    converted(x, DType::F32, || ctx.scratch(DType::F32, x.shape().clone()))
}

fn converted(
    x: &TensorView<'_>,
    to: DType,
    alloc: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    let out = match (x.dtype(), to) {
        (DType::F16, DType::F32) => {
            let mut out = alloc()?;
            x.as_slice::<f16>()?.convert_to_f32_slice(out.as_mut_slice()?);
            out
        }
        (DType::BF16, DType::F32) => {
            let mut out = alloc()?;
            x.as_slice::<bf16>()?.convert_to_f32_slice(out.as_mut_slice()?);
            out
        }
        (DType::F32, DType::F16) => {
            let mut out = alloc()?;
            out.as_mut_slice::<f16>()?.convert_from_f32_slice(x.as_slice()?);
            out
        }
        (DType::F32, DType::BF16) => {
            let mut out = alloc()?;
            out.as_mut_slice::<bf16>()?.convert_from_f32_slice(x.as_slice()?);
            out
        }
        _ => x.to_tensor()?,
    };
    Ok(out)
}
