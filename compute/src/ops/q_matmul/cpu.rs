//! Products with packed 8-bit weights on the CPU.

use super::{Finish, QMatMul};
use crate::args::{concrete_one, optional, required};
use crate::error::{Error, Result};
use crate::op::Context;
use crate::qgemm::{Epilogue, Product, Rows, ToFloats};
use lgp_memory::{DType, Tensor, TensorView};

pub(super) fn run(
    op: &QMatMul,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let (dtype, shape) = concrete_one(op, inputs)?;
    let x = required(inputs, 0)?;
    let mut out = ctx.alloc(dtype, shape)?;
    if out.is_empty() {
        return Ok(vec![out]);
    }
    let width = op.k.next_multiple_of(4);
    let copy;
    let bytes = if op.copies() {
        let flip = if x.dtype() == DType::I8 { 0x80 } else { 0 };
        copy = filled(ctx, x.as_bytes(), (op.k, width), flip)?;
        copy.as_bytes()
    } else {
        x.as_bytes()
    };
    let rows = Matrix { x: bytes, width };
    match &op.finish {
        Finish::Bytes { seeds, epilogue, .. } => {
            multiply(op, ctx, &rows, seeds, &**epilogue, out.as_bytes_mut()?)?;
        }
        Finish::Floats { scale, bias, activation } => {
            let one = |i| required(inputs, i).map(TensorView::as_bytes);
            let (&[a, b, c, d], &[zero]) = (one(1)?, one(2)?) else {
                return Err(Error::invalid("the scale or the zero point is not one number"));
            };
            let by = f32::from_ne_bytes([a, b, c, d]);
            let epilogue = ToFloats {
                scale: scale.iter().map(|w| by * w).collect(),
                bias,
                residual: optional(inputs, 3).map(TensorView::as_slice::<f32>).transpose()?,
                activation: *activation,
            };
            let seeds = op.weights.seeds(None, zero.into());
            multiply(op, ctx, &rows, &seeds, &epilogue, out.as_mut_slice::<f32>()?)?;
        }
    }
    Ok(vec![out])
}

/// Rows of `k` bytes as u8 in rows of `width`. The bytes after a row meet weights of 0.
fn filled(ctx: &Context, x: &[u8], (k, width): (usize, usize), flip: u8) -> Result<Tensor> {
    let mut out = ctx.scratch(DType::U8, [x.len() / k, width])?;
    ctx.split(out.as_bytes_mut()?, width, width, |first, part| {
        for (out, x) in part.chunks_exact_mut(width).zip(x[first * k..].chunks_exact(k)) {
            out.iter_mut().zip(x).for_each(|(o, x)| *o = *x ^ flip);
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
) -> Result<()> {
    let product = Product::new(ctx.simd(), &op.weights, seeds, epilogue);
    let m = rows.x.len() / rows.width;
    // SAFETY: rows are as wide as the weights' only segment, filled up to a multiple of four.
    unsafe { product.run(ctx, rows, m, (out, op.weights.n)) }
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
