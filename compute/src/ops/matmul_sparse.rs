//! Matrix product with a sparse weight: few of its elements, or of its square blocks, are not zero.
//! No operator of ONNX: a pass puts it in place of `MatMul` for devices.

mod device;
mod pack;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{concrete_one, optional, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `a · w` in f32. Input 0 is a, of shape `[…, k]`; inputs 1 to 3 are the weight, `[k, n]`, by
/// columns of blocks: the first block of each column and the end of the last (i32,
/// `[n / block + 1]`), the row of each block (i32), and the blocks' elements (f32,
/// `[blocks, block, block]`, rows of k).
///
/// With blocks of one element this is the compressed sparse column form, CSC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatMulSparse {
    /// The inner dimension, a multiple of `block`.
    pub k: usize,
    /// Columns of the weight, a multiple of `block`.
    pub n: usize,
    /// Rows and columns of a block.
    pub block: usize,
}

const OP: &str = "MatMulSparse";

impl MatMulSparse {
    /// Fails unless all blocks are within the weight.
    fn check(&self, starts: &[i32], rows: &[i32], values: &[f32]) -> Result<()> {
        let inside = |r: &i32| usize::try_from(*r).is_ok_and(|r| r < self.k / self.block);
        let ordered = starts.first() == Some(&0)
            && starts.is_sorted()
            && starts.last().map(|&end| usize::try_from(end)) == Some(Ok(rows.len()));
        let elements = rows.len().checked_mul(self.block * self.block);
        if ordered && rows.iter().all(inside) && elements == Some(values.len()) {
            return Ok(());
        }
        let (blocks, numbers) = (rows.len(), values.len());
        let message = format!("{blocks} blocks of {numbers} elements are not in a weight of ");
        Err(Error::invalid(format!("{message}{} x {}", self.k, self.n)))
    }
}

impl Op for MatMulSparse {
    fn name(&self) -> &'static str {
        OP
    }

    fn arity(&self) -> RangeInclusive<usize> {
        4..=4
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let Self { k, n, block } = *self;
        if block == 0 || !k.is_multiple_of(block) || !n.is_multiple_of(block) {
            return Err(Error::invalid(format!("blocks of {block} in {k} x {n}")));
        }
        for (i, dtype) in [DType::F32, DType::I32, DType::I32, DType::F32].into_iter().enumerate() {
            same_dtype(&format!("input {i}"), dtype, required(inputs, i)?.ty.dtype)?;
        }
        let starts = required(inputs, 1)?.sym_shape();
        if let Some(dims) = starts {
            dims::expect_all("input 1", &[Dim::Known(n / block + 1)], dims)?;
        }
        let Some(dims) = required(inputs, 0)?.sym_shape() else {
            return Ok(output(DType::F32, None));
        };
        let Some((inner, rows)) = dims.split_last() else {
            return Err(Error::invalid("input 0 is a scalar, expected rank 1 or more"));
        };
        dims::expect("the last dimension of input 0", &Dim::Known(k), inner)?;
        let mut shape = rows.to_vec();
        shape.push(Dim::Known(n));
        Ok(output(DType::F32, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        Axes::each_but(&[rank.saturating_sub(1)], inputs, outputs.len())
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let elements = outputs.first().map_or(0, crate::cost::elements);
        let rows = elements.checked_div(self.n as u64).unwrap_or(0);
        rows.saturating_mul(optional(inputs, 3).map_or(0, |x| crate::cost::elements(x)))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let floats = |i| -> Result<&[f32]> { Ok(required(inputs, i)?.as_slice::<f32>()?) };
        let whole = |i| -> Result<&[i32]> { Ok(required(inputs, i)?.as_slice::<i32>()?) };
        let (a, starts, rows, values) = (floats(0)?, whole(1)?, whole(2)?, floats(3)?);
        self.check(starts, rows, values)?;
        let Self { k, n, block } = *self;
        let mut out = ctx.alloc(dtype, shape)?;
        if n == 0 {
            return Ok(vec![out]);
        }
        let index = |i: i32| usize::try_from(i).unwrap_or(0);
        ctx.split(out.as_mut_slice::<f32>()?, n, 2 * values.len(), |first, part| {
            for (i, y) in part.chunks_exact_mut(n).enumerate() {
                let a = &a[(first + i) * k..][..k];
                for (y, ends) in y.chunks_exact_mut(block).zip(starts.windows(2)) {
                    y.fill(0.);
                    for b in index(ends[0])..index(ends[1]) {
                        let a = &a[index(rows[b]) * block..][..block];
                        let values = &values[b * block * block..][..block * block];
                        for (a, values) in a.iter().zip(values.chunks_exact(block)) {
                            y.iter_mut().zip(values).for_each(|(y, w)| *y += a * w);
                        }
                    }
                }
            }
        });
        Ok(vec![out])
    }
}
