//! Products with packed 8-bit weights on the CPU.

use super::{Finish, NAME, QInput, QMatMul};
use crate::args::{concrete_one, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::ops::dynamic_quantize_linear::dynamic_params;
use crate::ops::quantize_linear::{Params, bytes_f32};
use crate::qgemm::{Epilogue, Level, Product, Rows};
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &QMatMul,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(NAME, inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let k = op.k;
    let padded = k.next_multiple_of(4);
    let (rows, scale, zero) = match op.x {
        QInput::Bytes(quant) if padded == k && quant.flip() == 0 => {
            (x.to_tensor()?, quant.scale, quant.unsigned_zero())
        }
        QInput::Bytes(quant) => {
            let (x, flip) = (x.as_bytes(), quant.flip());
            let rows = filled(ctx, x.len() / k, padded, |row, out| {
                let x = &x[row * k..][..k];
                out.iter_mut().zip(x).for_each(|(o, x)| *o = *x ^ flip);
            })?;
            (rows, quant.scale, quant.unsigned_zero())
        }
        QInput::Floats => {
            let x = x.as_slice::<f32>()?;
            let (scale, zero) = dynamic_params(ctx.simd(), x);
            let params = Params::new(scale, zero.into(), (0, 255));
            let rows = filled(ctx, x.len() / k, padded, |row, out| {
                bytes_f32(ctx.simd(), &x[row * k..][..k], &mut out[..k], params);
            })?;
            (rows, scale, zero.into())
        }
    };
    let rows = Matrix { x: rows.as_bytes(), width: padded };
    match &op.inner.finish {
        Finish::Bytes { seeds, epilogue, .. } => {
            multiply(op, ctx, &rows, seeds, epilogue, out.as_bytes_mut()?);
        }
        Finish::Floats { .. } => {
            let Some((seeds, epilogue)) = op.floats(scale, zero) else {
                return Err(Error::invalid(NAME, "floats from bytes"));
            };
            multiply(op, ctx, &rows, &seeds, &epilogue, out.as_mut_slice::<f32>()?);
        }
    }
    Ok(vec![out])
}

/// Rows of bytes, each written by `row`; what it leaves is 0.
fn filled(
    ctx: &Context,
    rows: usize,
    width: usize,
    row: impl Fn(usize, &mut [u8]) + Sync,
) -> Result<Tensor> {
    let mut out = ctx.alloc(DType::U8, [rows, width])?;
    ctx.split(out.as_bytes_mut()?, width, width * 4, |first, part| {
        for (i, out) in part.chunks_exact_mut(width).enumerate() {
            row(first + i, out);
        }
    });
    Ok(out)
}

fn multiply<E: Epilogue>(
    op: &QMatMul,
    ctx: &Context,
    rows: &Matrix<'_>,
    seeds: &[i32],
    epilogue: &E,
    out: &mut [E::Out],
) {
    let weights = &op.inner.weights;
    let product = Product { level: Level::of(ctx.simd()), weights, seeds, epilogue };
    let cost = weights.n.saturating_mul(op.k) / 8;
    ctx.split(out, weights.n, cost, |first, part| {
        // SAFETY: rows are as wide as the weights' only segment, filled up to a multiple of four.
        unsafe { product.run(rows, first, part, weights.n) }
    });
}

/// Rows that follow each other.
struct Matrix<'a> {
    x: &'a [u8],
    width: usize,
}

impl Rows for Matrix<'_> {
    fn fill(&self, first: usize, count: usize, _: usize, at: &mut [*const u8]) {
        for (i, at) in at[..count].iter_mut().enumerate() {
            *at = self.x[(first + i) * self.width..][..self.width].as_ptr();
        }
    }
}
