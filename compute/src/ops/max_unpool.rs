//! The partial inverse of max pooling.

use crate::args::{concrete_one, float, optional, output, rank, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::pad;
use crate::window::per_axis;
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `MaxUnpool`: inputs x `[n, c, spatial…]`, i64 indices of x's shape into the flattened output,
/// and the output's shape (optional). Elements that no index names are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxUnpool {
    /// Window size, one a spatial axis.
    pub kernel: Vec<usize>,
    /// One a spatial axis; empty means all 1.
    pub strides: Vec<usize>,
    /// All begins, then all ends; empty means none.
    pub pads: Vec<usize>,
}

impl MaxUnpool {
    /// The shape whose elements the indices count.
    fn shape(&self, x: &[Dim]) -> Result<Vec<Dim>> {
        let n = self.kernel.len();
        if x.len() != n + 2 || n == 0 {
            let message = format!("kernel {:?} does not fit rank {}", self.kernel, x.len());
            return Err(Error::invalid(message));
        }
        let strides = per_axis("strides", &self.strides, n, 1)?;
        let pads = per_axis("pads", &self.pads, 2 * n, 0)?;
        let mut out = x[..2].to_vec();
        for (axis, dim) in x[2..].iter().enumerate() {
            out.push(match dim {
                Dim::Known(size) => {
                    let full = size
                        .checked_sub(1)
                        .and_then(|steps| {
                            steps.checked_mul(strides[axis])?.checked_add(self.kernel[axis])
                        })
                        .and_then(|full| full.checked_sub(pads[axis])?.checked_sub(pads[n + axis]));
                    Dim::Known(full.ok_or_else(|| {
                        Error::invalid(format!("axis {axis} of size {size} has no valid size"))
                    })?)
                }
                _ => Dim::Unknown,
            });
        }
        Ok(out)
    }
}

impl Op for MaxUnpool {
    fn name(&self) -> &'static str {
        "MaxUnpool"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        float(x.ty.dtype)?;
        if indices.ty.dtype != DType::I64 {
            let dtype = indices.ty.dtype;
            return Err(Error::invalid(format!("indices have dtype {dtype}, expected i64")));
        }
        if let (Some(x), Some(indices)) = (x.sym_shape(), indices.sym_shape()) {
            let same = x.len() == indices.len()
                && x.iter().zip(indices).all(|(a, b)| dims::expect("", a, b).is_ok());
            if !same {
                return Err(Error::invalid("the indices have another shape than the values"));
            }
        }
        let natural = x.sym_shape().map(|x| self.shape(x)).transpose()?;
        let shape = match optional(inputs, 2) {
            Some(given) => {
                rank("output_shape", given, 1)?;
                let given = given.target_shape()?;
                if let (Some(given), Some(natural)) = (&given, &natural) {
                    let smaller = |(g, n): (&Dim, &Dim)| match (g.known(), n.known()) {
                        (Some(g), Some(n)) => g < n,
                        _ => false,
                    };
                    if given.len() != natural.len() || given.iter().zip(natural).any(smaller) {
                        let message =
                            format!("output_shape is {given:?}, expected {natural:?} or more");
                        return Err(Error::invalid(message));
                    }
                }
                given
            }
            None => natural,
        };
        Ok(output(x.ty.dtype, shape))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let (x, indices) = (required(inputs, 0)?, required(inputs, 1)?);
        let dims: Vec<Dim> = x.shape().iter().map(|&n| Dim::Known(n)).collect();
        let natural: Vec<usize> = self.shape(&dims)?.iter().filter_map(Dim::known).collect();
        let mut out = ctx.alloc(dtype, natural.clone())?;
        let size = dtype.size();
        let bytes = out.as_bytes_mut()?;
        bytes.fill(0);
        for (value, &index) in x.as_bytes().chunks_exact(size).zip(indices.as_slice::<i64>()?) {
            let to = usize::try_from(index).ok().and_then(|i| i.checked_mul(size));
            let Some(to) = to.and_then(|to| bytes.get_mut(to..)?.get_mut(..size)) else {
                let message = format!("index {index} is outside an output of shape {natural:?}");
                return Err(Error::invalid(message));
            };
            to.copy_from_slice(value);
        }
        if natural == shape.dims() {
            return Ok(vec![out]);
        }
        // A larger output shape only adds zeros at the ends.
        let mut all = vec![0i64; natural.len()];
        all.extend(shape.iter().zip(&natural).map(|(s, n)| i64::try_from(s - n).unwrap_or(0)));
        let grow = pad::Pad { mode: pad::PadMode::Constant, pads: Some(all), value: None };
        grow.run(ctx, &[Some(out.view())])
    }
}
