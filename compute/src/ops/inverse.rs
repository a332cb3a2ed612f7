//! Inverse matrices.

use crate::Axes;
use crate::args::{concrete_one, float, optional, output, required};
use crate::dims;
use crate::error::{Error, Result};
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Tensor, TensorView};
use num_traits::ToPrimitive;
use std::ops::RangeInclusive;

/// `Inverse`: one float input `[…, n, n]`, the output in its shape. A matrix that has no inverse
/// is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inverse;

impl Op for Inverse {
    fn name(&self) -> &'static str {
        "Inverse"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        match x.sym_shape() {
            None | Some([.., _, _]) => {}
            Some(dims) => {
                let message = format!("rank is {}, expected 2 or more", dims.len());
                return Err(Error::invalid(message));
            }
        }
        if let Some([.., rows, columns]) = x.sym_shape() {
            dims::expect("the last axis", rows, columns)?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        let matrix = [rank.saturating_sub(2), rank.saturating_sub(1)];
        Axes::each_but(&matrix, inputs, outputs.len())
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let n = optional(inputs, 0).and_then(|x| x.dim(x.rank()?.checked_sub(1)?)?.known());
        // The elimination updates the matrix and its inverse, n³ products each.
        let work = outputs.first().map_or(0, crate::cost::elements).saturating_mul(2);
        work.saturating_mul(n.unwrap_or(0) as u64)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let x = required(inputs, 0)?;
        let n = x.shape().last().copied().unwrap_or(0);
        let mut out = ctx.alloc(dtype, shape)?;
        if out.is_empty() {
            return Ok(vec![out]);
        }
        with_type!(dtype, real T => {
            let matrices = x.as_slice::<T>()?.chunks_exact(n * n);
            let outputs = out.as_mut_slice::<T>()?.chunks_exact_mut(n * n);
            for (i, (x, out)) in matrices.zip(outputs).enumerate() {
                let wide = x.iter().map(|x| x.to_f64().unwrap_or(f64::NAN)).collect();
                let Some(inverse) = inverse(wide, n) else {
                    return Err(Error::invalid(format!("matrix {i} has no inverse")));
                };
                for (out, x) in out.iter_mut().zip(inverse) {
                    *out = num_traits::cast(x).unwrap_or(T::NAN);
                }
            }
            Ok(())
        })?;
        Ok(vec![out])
    }
}

/// By elimination with partial pivoting; `None` where a pivot is 0.
fn inverse(mut a: Vec<f64>, n: usize) -> Option<Vec<f64>> {
    let mut out = vec![0.; n * n];
    (0..n).for_each(|i| out[i * n + i] = 1.);
    for k in 0..n {
        let largest = |i: &usize, j: &usize| a[i * n + k].abs().total_cmp(&a[j * n + k].abs());
        let pivot = (k..n).max_by(largest).unwrap_or(k);
        for j in 0..n {
            a.swap(pivot * n + j, k * n + j);
            out.swap(pivot * n + j, k * n + j);
        }
        let top = a[k * n + k];
        if top == 0. {
            return None;
        }
        for j in 0..n {
            a[k * n + j] /= top;
            out[k * n + j] /= top;
        }
        for i in (0..n).filter(|&i| i != k) {
            let factor = a[i * n + k];
            for j in 0..n {
                a[i * n + j] -= factor * a[k * n + j];
                out[i * n + j] -= factor * out[k * n + j];
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::Inverse;
    use crate::testing::{assert_close, fails, run, t};

    #[test]
    fn matrices_in_a_row() {
        let x = t(&[2, 2, 2], &[0f32, 2., 1., 0., 1., 2., 3., 4.]);
        let want = t(&[2, 2, 2], &[0f32, 1., 0.5, 0., -2., 1., 1.5, -0.5]);
        assert_close(&run(&Inverse, &[&x]), &want, 1e-6);
        let message = fails(&Inverse, &[&t(&[2, 2], &[1f64, 2., 2., 4.])]);
        assert_eq!(message, "Inverse: matrix 0 has no inverse");
        assert!(fails(&Inverse, &[&t(&[1, 2], &[1f32, 2.])]).contains("the last axis"));
        assert!(fails(&Inverse, &[&t(&[1], &[1f32])]).contains("rank is 1"));
    }
}
