//! Matrix product whose right side was packed when the model was loaded, with bias, residual and
//! activation. No operator of ONNX: passes put it in place of `MatMul` and `Gemm`.

#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete_one, optional, output, required, same_dtype};
use crate::dims;
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::gemm::{self, Epilogue, Packed, Rows, Word};
use crate::op::{Context, Op, ValueInfo};
use crate::rewrite::{Absorbed, Following};
use crate::simd::dispatch;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `activation(a · b + bias + residual)` in f32: a of shape `[…, k]`, the packed weight, then a bias
/// of `[n]` and a residual of the output's shape `[…, n]`, which may be absent.
#[derive(Debug, Clone, PartialEq)]
pub struct MatMulPacked {
    /// The inner dimension.
    pub k: usize,
    /// Columns of the weight.
    pub n: usize,
    /// Whether weight and left side are rounded to bf16; sums are f32.
    pub bf16: bool,
    /// The activation, applied last.
    pub activation: Activation,
}

const NAME: &str = "MatMulPacked";

impl MatMulPacked {
    /// Packs a weight of `[k, n]`, or of `[n, k]` where it is `transposed`, as f32.
    ///
    /// With `fast`, the weight is rounded to bf16 where the machine multiplies bf16.
    ///
    /// # Errors
    /// A weight that is not a matrix of f32, or out of memory.
    pub fn pack(
        ctx: &Context,
        weight: &TensorView<'_>,
        transposed: bool,
        fast: bool,
    ) -> Result<(Self, Tensor)> {
        same_dtype("the weight", DType::F32, weight.dtype()).map_err(|error| error.of(NAME))?;
        let &[rows, columns] = weight.shape().dims() else {
            let message = format!("the weight has rank {}, expected 2", weight.shape().rank());
            return Err(Error::invalid(message).of(NAME));
        };
        let (k, n, strides) = match transposed {
            false => (rows, columns, (columns, 1)),
            true => (columns, rows, (1, columns)),
        };
        let op = Self { k, n, bf16: fast && ctx.simd().bf16(), activation: Activation::None };
        let too_large = || Error::invalid(format!("a weight of {k} x {n} is too large")).of(NAME);
        let words = Packed::words(op.steps(), n).ok_or_else(too_large)?;
        let mut packed = Tensor::zeros(DType::F32, [words])?;
        let (from, to) = (weight.as_slice::<f32>()?, packed.as_mut_slice::<f32>()?);
        if op.bf16 {
            gemm::pack_bf16(from, (k, n), strides, to);
        } else {
            gemm::pack(from, (k, n), strides, to);
        }
        Ok((op, packed))
    }

    fn steps(&self) -> usize {
        if self.bf16 { self.k.div_ceil(2) } else { self.k }
    }
}

/// The output of a product with a packed weight of `[k, n]`, which is a vector of so many words of a
/// dtype. Inputs: a of `[…, k]`, the weight, the bias and the residual.
pub(super) fn infer_rows(
    inputs: &[Option<&ValueInfo>],
    (k, n): (usize, usize),
    (word, words): (DType, Dim),
) -> Result<Vec<ValueInfo>> {
    let (a, _) = (required(inputs, 0)?, required(inputs, 1)?);
    for (i, what) in ["input 0", "the weight", "the bias", "the residual"].iter().enumerate() {
        if let Some(x) = optional(inputs, i) {
            same_dtype(what, if i == 1 { word } else { DType::F32 }, x.ty.dtype)?;
        }
    }
    let expected = [(1, "the weight", words), (2, "the bias", Dim::Known(n))];
    for (i, what, size) in expected {
        match optional(inputs, i).and_then(|x| x.sym_shape()) {
            Some([given]) => dims::expect(what, &size, given)?,
            Some(dims) => {
                let message = format!("{what} has rank {}, expected 1", dims.len());
                return Err(Error::invalid(message));
            }
            None => {}
        }
    }
    let Some(dims) = a.sym_shape() else { return Ok(output(DType::F32, None)) };
    let Some((inner, rows)) = dims.split_last() else {
        return Err(Error::invalid("input 0 is a scalar, expected rank 1 or more"));
    };
    dims::expect("the last dimension of input 0", &Dim::Known(k), inner)?;
    let mut shape = rows.to_vec();
    shape.push(Dim::Known(n));
    if let Some(residual) = optional(inputs, 3).and_then(|x| x.sym_shape()) {
        dims::expect_all("the residual", &shape, residual)?;
    }
    Ok(output(DType::F32, Some(shape)))
}

/// The axes of such a product: its rows are independent.
pub(super) fn row_axes(inputs: &[Option<&ValueInfo>]) -> Axes {
    let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
    let rows = 0..rank.saturating_sub(1);
    rows.fold(Axes::new(), |axes, axis| {
        let given = [0, 3].into_iter().filter(|&i| optional(inputs, i).is_some());
        axes.each(given.map(|i| (i, axis)), [(0, axis)])
    })
}

/// Such a product that also does the work of `next`. `with` gives it an activation.
pub(super) fn absorbed<O: Op + Clone>(
    op: &O,
    (activation, n): (Activation, usize),
    inputs: &[Option<&ValueInfo>],
    next: &Following<'_>,
    with: impl FnOnce(Activation) -> O,
) -> Option<Absorbed> {
    let is_free = |i: usize| optional(inputs, i).is_none();
    if activation != Activation::None {
        return None;
    }
    match *next {
        Following::Activation(activation) => Some(Absorbed::held(with(activation))),
        Following::Row(row) => {
            (is_free(2) && row.len() == n).then(|| Absorbed::given(op.clone(), 2))
        }
        Following::Residual => is_free(3).then(|| Absorbed::given(op.clone(), 3)),
    }
}

impl Op for MatMulPacked {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let words = Packed::words(self.steps(), self.n).map_or(Dim::Unknown, Dim::Known);
        infer_rows(inputs, (self.k, self.n), (DType::F32, words))
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
        let a = required(inputs, 0)?.as_slice::<f32>()?;
        let words = required(inputs, 1)?.as_slice::<f32>()?;
        let slice = |i| optional(inputs, i).map(|x| x.as_slice::<f32>()).transpose();
        let epilogue =
            Epilogue { bias: slice(2)?, residual: slice(3)?, activation: self.activation };
        let mut out = ctx.alloc(dtype, shape)?;
        let m = out.len().checked_div(self.n).unwrap_or(0);
        let packed = Packed::new(words, self.steps(), self.n)
            .ok_or_else(|| Error::invalid("the weight is packed otherwise"))?;
        let c = out.as_mut_slice::<f32>()?;
        if !self.bf16 {
            let rows = Rows { words: a, row: self.k };
            gemm::multiply(ctx, m, rows, packed, c, Word::F32, epilogue);
        } else if ctx.simd().bf16() {
            let steps = self.steps();
            let mut left = ctx.scratch(DType::F32, [m, steps])?;
            let left = left.as_mut_slice::<f32>()?;
            to_pairs(ctx, a, self.k, left);
            let rows = Rows { words: left, row: steps };
            gemm::multiply(ctx, m, rows, packed, c, Word::Pairs, epilogue);
        } else {
            let message = "a weight in bf16 on a machine without bf16 products";
            return Err(Error::unsupported(message));
        }
        Ok(vec![out])
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = optional(inputs, 0).and_then(|x| x.ty.concrete_shape());
        let Some(shape) = shape.filter(|_| self.bf16) else { return 0 };
        let rows = shape.split_last().map_or(0, |(_, rows)| rows.iter().product());
        self.steps().saturating_mul(rows).saturating_mul(4)
    }
}

/// Rounds rows of `k` numbers to pairs of bf16.
fn to_pairs(ctx: &Context, a: &[f32], k: usize, left: &mut [f32]) {
    let steps = k.div_ceil(2);
    ctx.split(left, steps, steps, |first, part| {
        dispatch(
            ctx.simd(),
            #[inline(always)]
            || {
                for (i, to) in part.chunks_exact_mut(steps).enumerate() {
                    gemm::pairs_of_row(&a[(first + i) * k..][..k], to);
                }
            },
        );
    });
}
