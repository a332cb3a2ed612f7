//! The few elements of a weight that are not zero.

use super::{MatMulSparse, OP};
use crate::args::same_dtype;
use crate::error::{Error, Result};
use lgp_memory::{DType, Tensor, TensorView};

/// The sides of blocks that kernels have tiles for. Beside each side is the divisor of the share of
/// non-zero blocks up to which it is taken to be faster than a dense product. The shares are
/// estimated from the kernels' reads and multiply-adds, not measured.
const BLOCKS: [(usize, usize); 2] = [(32, 2), (16, 3)];
/// The same for single elements.
const ELEMENTS: (usize, usize) = (1, 16);

impl MatMulSparse {
    /// Packs an f32 weight `[k, n]` by blocks, or by elements where few enough are not zero. `None`
    /// for a weight whose dense product is taken to be faster.
    ///
    /// # Errors
    /// A weight that is not a matrix of f32, or out of memory.
    pub fn pack(weight: &TensorView<'_>) -> Result<Option<(Self, [Tensor; 3])>> {
        same_dtype("the weight", DType::F32, weight.dtype()).map_err(|error| error.of(OP))?;
        let &[k, n] = weight.shape().dims() else {
            let message = format!("the weight has rank {}, expected 2", weight.shape().rank());
            return Err(Error::invalid(message).of(OP));
        };
        let data = weight.as_slice::<f32>()?;
        for (block, share) in BLOCKS.into_iter().chain([ELEMENTS]) {
            let whole = k > 0 && n > 0 && k.is_multiple_of(block) && n.is_multiple_of(block);
            if !whole {
                continue;
            }
            let op = Self { k, n, block };
            let used = op.used(data);
            let blocks = (k / block) * (n / block);
            if used.iter().map(Vec::len).sum::<usize>() <= blocks / share {
                return Ok(Some((op.clone(), op.packed(data, &used)?)));
            }
        }
        Ok(None)
    }

    /// The rows of the non-zero blocks of each column of blocks.
    fn used(&self, data: &[f32]) -> Vec<Vec<usize>> {
        let Self { k, n, block } = *self;
        let mut used = vec![Vec::new(); n / block];
        for r in 0..k / block {
            let rows = data[r * block * n..][..block * n].chunks_exact(n);
            let mut any = vec![false; n / block];
            for row in rows {
                for (any, part) in any.iter_mut().zip(row.chunks_exact(block)) {
                    *any |= part.iter().any(|x| *x != 0.);
                }
            }
            let found = used.iter_mut().zip(any).filter(|(_, any)| *any);
            found.for_each(|(column, _)| column.push(r));
        }
        used
    }

    fn packed(&self, data: &[f32], used: &[Vec<usize>]) -> Result<[Tensor; 3]> {
        let Self { n, block, .. } = *self;
        let too_many = |_| Error::invalid("too many blocks").of(OP);
        let number = |i: usize| i32::try_from(i).map_err(too_many);
        let (mut starts, mut rows, mut values) = (vec![0], Vec::new(), Vec::new());
        for (j, column) in used.iter().enumerate() {
            for &r in column {
                rows.push(number(r)?);
                for i in 0..block {
                    values.extend_from_slice(&data[(r * block + i) * n + j * block..][..block]);
                }
            }
            starts.push(number(rows.len())?);
        }
        Ok([
            Tensor::from_slice([starts.len()], &starts)?,
            Tensor::from_slice([rows.len()], &rows)?,
            Tensor::from_slice([rows.len(), block, block], &values)?,
        ])
    }
}
