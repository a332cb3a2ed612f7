//! Determinants.

use crate::Axes;
use crate::args::{concrete_one, float, output, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use num_traits::ToPrimitive;
use std::ops::RangeInclusive;

/// `Det`: one float input `[…, n, n]`, the output `[…]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Det;

impl Op for Det {
    fn name(&self) -> &'static str {
        "Det"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let Some(dims) = x.sym_shape() else { return Ok(output(x.ty.dtype, None)) };
        let [outer @ .., rows, columns] = dims else {
            let message = format!("rank is {}, expected 2 or more", dims.len());
            return Err(Error::invalid(message));
        };
        dims::expect("the last axis", rows, columns)?;
        Ok(output(x.ty.dtype, Some(outer.to_vec())))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = inputs.first().copied().flatten().and_then(ValueInfo::rank).unwrap_or(0);
        Axes::each_but(&[rank.saturating_sub(2), rank.saturating_sub(1)], inputs, outputs.len())
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let x = inputs.first().copied().flatten();
        let n = x.and_then(|x| x.dim(x.rank()?.checked_sub(1)?)?.known()).unwrap_or(0) as u64;
        // Each step has a row and a column less than the one before.
        let one = n.saturating_pow(3) / 3;
        outputs.first().map_or(0, crate::cost::elements).saturating_mul(one)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let n = x.shape().last().copied().unwrap_or(0);
        let mut out = ctx.alloc(dtype, shape)?;
        with_type!(dtype, real T => {
            let x = x.as_slice::<T>()?;
            for (i, out) in out.as_mut_slice::<T>()?.iter_mut().enumerate() {
                let matrix = x[i * n * n..][..n * n].iter();
                let wide = matrix.map(|x| x.to_f64().unwrap_or(f64::NAN)).collect();
                *out = num_traits::cast(determinant(wide, n)).unwrap_or(T::NAN);
            }
            Ok(())
        })?;
        Ok(vec![out])
    }
}

/// By elimination with partial pivoting.
fn determinant(mut a: Vec<f64>, n: usize) -> f64 {
    let mut product = 1.;
    for k in 0..n {
        let largest = |i: &usize, j: &usize| a[i * n + k].abs().total_cmp(&a[j * n + k].abs());
        let pivot = (k..n).max_by(largest).unwrap_or(k);
        if pivot != k {
            (k..n).for_each(|j| a.swap(pivot * n + j, k * n + j));
            product = -product;
        }
        let top = a[k * n + k];
        product *= top;
        if top == 0. {
            return product;
        }
        for i in k + 1..n {
            let factor = a[i * n + k] / top;
            for j in k..n {
                a[i * n + j] -= factor * a[k * n + j];
            }
        }
    }
    product
}
