//! Positions moved by an affine map.

use crate::args::{concrete_one, float, optional, output, rank, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use num_traits::cast;
use std::ops::RangeInclusive;

/// `AffineGrid`: inputs theta `[n, r, r + 1]` and the image's size (i64 `[n, c, d1, …, dr]`, r of
/// 2 or 3); output `[n, d1, …, dr, r]`, as `GridSample` reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AffineGrid {
    /// -1 and 1 are the centres of the outermost elements, rather than their outer edges.
    pub align_corners: bool,
}

impl Op for AffineGrid {
    fn name(&self) -> &'static str {
        "AffineGrid"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (theta, size) = (required(inputs, 0)?, required(inputs, 1)?);
        float(theta.ty.dtype)?;
        rank("theta", theta, 3)?;
        rank("the size", size, 1)?;
        let Some(size) = size.target_shape()? else { return Ok(output(theta.ty.dtype, None)) };
        let (4 | 5, [n, _, spatial @ ..]) = (size.len(), size.as_slice()) else {
            let message = format!("the size has {} entries, expected 4 or 5", size.len());
            return Err(Error::invalid(message));
        };
        let r = spatial.len();
        if let Some([batch, rows, columns]) = theta.sym_shape() {
            dims::expect("theta's batch", n, batch)?;
            dims::expect("theta's axis 1", &Dim::Known(r), rows)?;
            dims::expect("theta's axis 2", &Dim::Known(r + 1), columns)?;
        }
        let mut shape = vec![n.clone()];
        shape.extend_from_slice(spatial);
        shape.push(Dim::Known(r));
        Ok(output(theta.ty.dtype, Some(shape)))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let theta = optional(inputs, 0).and_then(|theta| theta.dim(2)?.known());
        let row = theta.unwrap_or(0) as u64;
        outputs.first().map_or(0, crate::cost::elements).saturating_mul(row)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let theta = required(inputs, 0)?;
        let mut out = ctx.alloc(dtype, shape.clone())?;
        let r = shape.last().copied().unwrap_or(1);
        let spatial = &shape[1..shape.rank() - 1];
        let points: usize = spatial.iter().product();
        with_type!(dtype, real T => {
            let theta = theta.as_slice::<T>()?;
            for (i, out) in out.as_mut_slice::<T>()?.chunks_exact_mut(r).enumerate() {
                let matrix = &theta[i / points * r * (r + 1)..][..r * (r + 1)];
                let mut rest = i % points;
                // x first: a position counts from the last axis.
                let mut at = [0f64; 4];
                at[r] = 1.;
                for (slot, &n) in at.iter_mut().zip(spatial.iter().rev()) {
                    *slot = self.position(rest % n, n);
                    rest /= n;
                }
                for (out, row) in out.iter_mut().zip(matrix.chunks_exact(r + 1)) {
                    let wide = |x: &T| cast::<T, f64>(*x).unwrap_or(f64::NAN);
                    let sum = row.iter().zip(at).fold(0., |sum, (m, x)| sum + wide(m) * x);
                    *out = cast(sum).unwrap_or(T::NAN);
                }
            }
            Ok(())
        })?;
        Ok(vec![out])
    }
}

impl AffineGrid {
    /// Where element `i` of `n` lies between -1 and 1.
    fn position(&self, i: usize, n: usize) -> f64 {
        let (i, n) = (cast::<_, f64>(i).unwrap_or(0.), cast::<_, f64>(n).unwrap_or(1.));
        match self.align_corners {
            true if n > 1. => 2. * i / (n - 1.) - 1.,
            true => 0.,
            false => (2. * i + 1.) / n - 1.,
        }
    }
}
