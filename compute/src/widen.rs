//! f16 and bf16 kernels: the f32 ones, with conversions around them.

use crate::error::Result;
use crate::op::{Context, Op};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use lgp_memory::{DType, Tensor, TensorView};

/// Whether an operator's first input, which decides its type, is f16 or bf16.
pub(crate) fn is_half(inputs: &[Option<TensorView<'_>>]) -> bool {
    let first = inputs.first().and_then(Option::as_ref);
    first.is_some_and(|x| matches!(x.dtype(), DType::F16 | DType::BF16))
}

/// Runs an operator in f32 whose first input is f16 or bf16: halves are widened, and outputs
/// rounded back.
pub(crate) fn widened(
    op: &dyn Op,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    // The rule that both halves of a kernel speak one dtype is checked before it is hidden.
    crate::args::concrete(op, inputs)?;
    widened_unchecked(op, ctx, inputs)
}

/// [`widened`] for an operator whose outputs' shapes depend on more than its inputs' shapes, and
/// which validates its inputs in f32 just as well.
pub(crate) fn widened_unchecked(
    op: &dyn Op,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let narrow = inputs.first().and_then(Option::as_ref).map_or(DType::F32, TensorView::dtype);
    let wide: Vec<Option<Tensor>> = inputs
        .iter()
        .map(|x| x.as_ref().map(|x| widen(ctx, x)).transpose())
        .collect::<Result<_>>()?;
    let views: Vec<Option<TensorView<'_>>> =
        wide.iter().map(|x| x.as_ref().map(Tensor::view)).collect();
    let outputs = op.run(ctx, &views)?;
    outputs
        .into_iter()
        .map(|y| if y.dtype() == DType::F32 { convert(ctx, &y.view(), narrow) } else { Ok(y) })
        .collect()
}

/// Converts between f32 and the halves; other dtypes pass unchanged. The result is an output.
pub(crate) fn convert(ctx: &Context, x: &TensorView<'_>, to: DType) -> Result<Tensor> {
    converted(x, to, || ctx.alloc(to, x.shape().clone()))
}

/// Widens halves to f32 for a kernel that reads no others; other dtypes pass unchanged.
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
