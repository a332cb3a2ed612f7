//! Operators on f16 and bf16 through their kernels in f32.

use super::{Context, Op, ValueInfo};
use crate::error::Result;
use crate::widen::{convert, widen};
use lgp_memory::{DType, Tensor, TensorView};

/// A function from inputs to outputs.
type Compute<'a> = dyn Fn(&[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> + 'a;

/// Whether an operator's first input, which decides its type, is f16 or bf16.
pub(super) fn is_half(inputs: &[Option<TensorView<'_>>]) -> bool {
    let first = inputs.first().and_then(Option::as_ref);
    first.is_some_and(|x| matches!(x.dtype(), DType::F16 | DType::BF16))
}

/// Computes an operator in f32 whose first input is f16 or bf16. Inputs in f16 and bf16 are
/// widened, and outputs are rounded back.
pub(super) fn widened<O: Op + ?Sized>(
    op: &O,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    // Types are checked first: after widening, a mix of f16 and f32 inputs would pass as f32.
    let infos = crate::args::infos(inputs)?;
    let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
    op.infer_types(&infos)?;
    in_f32(ctx, inputs, &|wide| op.compute(ctx, wide))
}

fn in_f32(
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    compute: &Compute<'_>,
) -> Result<Vec<Tensor>> {
    let narrow = inputs.first().and_then(Option::as_ref).map_or(DType::F32, TensorView::dtype);
    let wide: Vec<Option<Tensor>> = inputs
        .iter()
        .map(|x| x.as_ref().map(|x| widen(ctx, x)).transpose())
        .collect::<Result<_>>()?;
    let views: Vec<Option<TensorView<'_>>> =
        wide.iter().map(|x| x.as_ref().map(Tensor::view)).collect();
    let outputs = compute(&views)?;
    outputs
        .into_iter()
        .map(|y| if y.dtype() == DType::F32 { convert(ctx, &y.view(), narrow) } else { Ok(y) })
        .collect()
}

/// Bytes that a run of an operator takes from the pool besides its outputs, for inputs of known
/// shapes: the kernel's own bytes, and the copies in f32 of f16 and bf16 inputs and outputs.
#[must_use]
pub fn scratch_bytes(op: &dyn Op, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
    let half = |info: &ValueInfo| matches!(info.ty.dtype, DType::F16 | DType::BF16);
    if !op.widens_halves() || !inputs.first().copied().flatten().is_some_and(half) {
        return op.scratch_bytes(threads, inputs);
    }
    let mut copies = 0usize;
    let mut wide: Vec<Option<ValueInfo>> = Vec::with_capacity(inputs.len());
    for input in inputs {
        let mut info = input.cloned();
        if let Some(info) = info.as_mut().filter(|info| half(info)) {
            (info.ty.dtype, info.constant) = (DType::F32, None);
            copies = copies.saturating_add(info.bytes_in(DType::F32));
        }
        wide.push(info);
    }
    let wide: Vec<Option<&ValueInfo>> = wide.iter().map(Option::as_ref).collect();
    for output in op.infer(&wide).unwrap_or_default() {
        if output.ty.dtype == DType::F32 {
            copies = copies.saturating_add(output.bytes_in(DType::F32));
        }
    }
    copies.saturating_add(op.scratch_bytes(threads, &wide))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{Cast, Cell, Conv, ConvInteger, ConvTranspose, DeformConv, LinearAttention};
    use crate::ops::{MatMul, QuantizeLinear, Range, Recurrent};
    use half::f16;
    use lgp_memory::TensorType;

    fn zeros(dtype: DType, dims: &[usize]) -> Tensor {
        Tensor::zeros(dtype, dims).unwrap()
    }

    #[test]
    fn halves_are_widened_once_all_dtypes_fit() {
        let ctx = Context::new(1);
        let (a, b) = (zeros(DType::F16, &[2, 2]), zeros(DType::F32, &[2, 2]));
        let error = MatMul.run(&ctx, &[Some(a.view()), Some(b.view())]).unwrap_err().to_string();
        assert_eq!(error, "MatMul: input 1 has dtype f32, expected f16");
        // The length is known in f32 only.
        let scalars = [0f32, 3., 1.].map(|x| Tensor::scalar(f16::from_f32(x)).unwrap());
        let out = Range.run(&ctx, &scalars.each_ref().map(|x| Some(x.view()))).unwrap();
        assert_eq!(out[0].as_slice::<f16>().unwrap(), [0f32, 1., 2.].map(f16::from_f32));
    }

    /// The pool's bytes beyond the outputs are near the predicted bytes; the pool rounds sizes up.
    #[test]
    fn scratch_is_what_the_pool_sees() {
        let f32s = |dims: &[usize]| zeros(DType::F32, dims);
        let conv = Conv { group: 1, ..Conv::default() };
        let linear = LinearAttention {
            query_heads: 4,
            key_heads: 4,
            scale: None,
            gated: false,
            delta: false,
        };
        let cases: Vec<(Box<dyn Op>, Vec<Tensor>)> = vec![
            (Box::new(ConvTranspose::default()), vec![f32s(&[1, 8, 32, 32]), f32s(&[8, 8, 3, 3])]),
            (
                Box::new(DeformConv::default()),
                vec![f32s(&[1, 8, 32, 32]), f32s(&[8, 8, 3, 3]), f32s(&[1, 18, 30, 30])],
            ),
            (
                Box::new(Recurrent::new(Cell::Rnn)),
                vec![f32s(&[64, 8, 16]), f32s(&[1, 64, 16]), f32s(&[1, 64, 64])],
            ),
            (Box::new(linear), vec![f32s(&[2, 64, 64]), f32s(&[2, 64, 64]), f32s(&[2, 64, 64])]),
            (
                Box::new(QuantizeLinear::default()),
                vec![zeros(DType::F16, &[256, 256]), Tensor::scalar(1f32).unwrap()],
            ),
            (Box::new(Cast { to: DType::F64 }), vec![zeros(DType::F8E5M2, &[256, 256])]),
            (
                Box::new(ConvInteger { conv }),
                vec![zeros(DType::U8, &[1, 8, 64, 64]), zeros(DType::I8, &[8, 8, 3, 3])],
            ),
        ];
        for (op, inputs) in cases {
            let info = |x: &Tensor| ValueInfo::of(TensorType::concrete(x.dtype(), x.shape()));
            let infos: Vec<ValueInfo> = inputs.iter().map(info).collect();
            let ctx = Context::new(1);
            let views: Vec<_> = inputs.iter().map(|x| Some(x.view())).collect();
            let outputs = op.run(&ctx, &views).unwrap();
            let own: usize = outputs.iter().map(|y| y.as_bytes().len()).sum();
            let taken = ctx.pool().stats().high_water_bytes - own;
            let given: Vec<_> = infos.iter().map(Some).collect();
            let counted = scratch_bytes(&*op, 1, &given);
            let name = op.name();
            assert!(taken * 8 <= counted * 9, "{name}: {taken} taken, {counted} counted");
            assert!(counted * 3 <= taken * 4, "{name}: {taken} taken, {counted} counted");
        }
    }
}
