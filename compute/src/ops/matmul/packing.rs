//! The constant right side of a product, laid out as kernels read it.

use crate::error::Result;
use crate::op::{Context, ValueInfo};
use crate::ops::{MatMulPacked, MatMulSparse};
use crate::rewrite::{Hints, Operand, Step};
use lgp_memory::{DType, Tensor};

/// The form of a product with a matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    /// Whether the matrix is `[n, k]` instead of `[k, n]`.
    pub(crate) transposed: bool,
    /// The factor of the addend; 0 without one.
    pub(crate) beta: f32,
}

/// The form of `MatMul`.
pub(crate) const PLAIN: Product = Product { transposed: false, beta: 0. };

/// The product with its constant f32 matrix packed; on devices with the non-zero elements alone,
/// where these are few.
pub(crate) fn prepared(
    product: Option<Product>,
    inputs: &[Option<&ValueInfo>],
    hints: Hints,
) -> Result<Option<Step>> {
    let (Some(product), [Some(a), Some(b), rest @ ..]) = (product, inputs) else { return Ok(None) };
    let weight = b.constant.as_ref().filter(|w| w.dtype() == DType::F32 && w.shape().rank() == 2);
    let Some(weight) = weight.filter(|_| a.ty.dtype == DType::F32) else { return Ok(None) };
    if hints.on_device {
        if product.transposed || !rest.is_empty() {
            return Ok(None);
        }
        let Some((op, parts)) = MatMulSparse::pack(&weight.view())? else { return Ok(None) };
        let parts = parts.into_iter().map(Operand::Constant);
        let inputs = std::iter::once(Operand::Input(0)).chain(parts).collect();
        return Ok(Some(Step::new(op, inputs)));
    }
    let columns = weight.shape()[usize::from(!product.transposed)];
    let addend = rest.first().copied().flatten().filter(|_| product.beta != 0.);
    let bias = match addend {
        None => None,
        Some(c) => match c.constant.as_ref().and_then(|c| row(c, columns)) {
            Some(row) => Some(row.iter().map(|x| x * product.beta).collect::<Vec<f32>>()),
            None => return Ok(None),
        },
    };
    let ctx = Context::new(1).with_isa(hints.isa);
    let (op, packed) = MatMulPacked::pack(&ctx, &weight.view(), product.transposed, hints.bf16)?;
    let mut inputs = vec![Operand::Input(0), Operand::Constant(packed)];
    if let Some(bias) = bias {
        inputs.push(Operand::Constant(Tensor::from_slice([columns], &bias)?));
    }
    Ok(Some(Step::new(op, inputs)))
}

/// A constant as one f32 for each of `n` columns, if it broadcasts along rows.
fn row(c: &Tensor, n: usize) -> Option<Vec<f32>> {
    let data = c.as_slice::<f32>().ok()?;
    match c.shape().dims() {
        [] | [1] | [1, 1] => Some(vec![*data.first()?; n]),
        [m] | [1, m] if *m == n => Some(data.to_vec()),
        _ => None,
    }
}
