//! Matrix product with a scaled addend.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, output, rank, required, same_dtype};
use crate::bytes::{Dequantized, OnBytes, Requantized};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::matmul;
use crate::ops::matmul::packing::Product;
use crate::rewrite::{Hints, Step};
use lgp_memory::{Dim, SymShape, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `Gemm`: `alpha · op(a) · op(b) + beta · c` with a, b of rank 2 and c (optional) that broadcasts
/// to the product.
#[derive(Debug, Clone, PartialEq)]
pub struct Gemm {
    /// Scale of the product.
    pub alpha: f32,
    /// Scale of c.
    pub beta: f32,
    /// Transposes a.
    pub trans_a: bool,
    /// Transposes b.
    pub trans_b: bool,
}

impl Default for Gemm {
    fn default() -> Self {
        Self { alpha: 1., beta: 1., trans_a: false, trans_b: false }
    }
}

#[allow(clippy::float_cmp, reason = "exactly the defaults")]
impl Gemm {
    /// Whether the result is `a · op(b) + c`, without scales.
    fn is_plain(&self) -> bool {
        self.alpha == 1. && self.beta == 1. && !self.trans_a
    }

    /// The product that a packed weight can compute, where c is a row.
    fn plain(&self, inputs: &[Option<&ValueInfo>]) -> Option<Product> {
        // As in BLAS, an addend that is scaled by 0 is not read: infinity times 0 would be NaN.
        let beta = if optional(inputs, 2).is_some() { self.beta } else { 0. };
        (self.alpha == 1. && !self.trans_a).then_some(Product { transposed: self.trans_b, beta })
    }
}

impl Op for Gemm {
    fn name(&self) -> &'static str {
        "Gemm"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (a, b) = (required(inputs, 0)?, required(inputs, 1)?);
        float(a.ty.dtype)?;
        same_dtype("input 1", a.ty.dtype, b.ty.dtype)?;
        let pair = |what, info: &ValueInfo, transposed| -> Result<[Dim; 2]> {
            rank(what, info, 2)?;
            Ok(match info.sym_shape() {
                Some([x, y]) if transposed => [y.clone(), x.clone()],
                Some([x, y]) => [x.clone(), y.clone()],
                _ => [Dim::Unknown, Dim::Unknown],
            })
        };
        let [m, k] = pair("input 0", a, self.trans_a)?;
        let [inner, n] = pair("input 1", b, self.trans_b)?;
        dims::expect("the inner dimension of input 1", &k, &inner)?;
        let shape = vec![m, n];
        if let Some(c) = optional(inputs, 2) {
            same_dtype("input 2", a.ty.dtype, c.ty.dtype)?;
            if let Some(dims) = c.sym_shape() {
                let whole = dims::broadcast(dims, &shape)?;
                let grows = whole.len() > 2
                    || whole
                        .iter()
                        .zip(&shape)
                        .any(|(whole, dim)| dims::expect("", dim, whole).is_err());
                if grows {
                    let (c, shape) = (SymShape(dims.to_vec()), SymShape(shape));
                    let message = format!("input 2 of shape {c} does not broadcast to {shape}");
                    return Err(Error::invalid(message));
                }
            }
        }
        Ok(output(a.ty.dtype, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let [(row, inner_a), (inner_b, column)] =
            [self.trans_a, self.trans_b].map(|turned| if turned { (1, 0) } else { (0, 1) });
        let product = Axes::new().all([(0, inner_a), (1, inner_b)], []);
        let Some(c) = optional(inputs, 2).map_or(Some(0), |c| c.rank()) else { return product };
        // c is aligned at its end.
        let addend = |from_end: usize| c.checked_sub(from_end).map(|axis| (2, axis));
        product
            .each(std::iter::once((0, row)).chain(addend(2)), [(0, 0)])
            .each(std::iter::once((1, column)).chain(addend(1)), [(0, 1)])
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let a = optional(inputs, 0).and_then(|a| a.dim(usize::from(!self.trans_a))?.known());
        let elements = outputs.first().map_or(0, crate::cost::elements);
        elements.saturating_mul(a.unwrap_or(0) as u64)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn prepared(&self, inputs: &[Option<&ValueInfo>], hints: Hints) -> Result<Option<Step>> {
        matmul::packing::prepared(self.plain(inputs), inputs, hints)
    }

    fn on_bytes(&self, inputs: &[Option<Dequantized<'_>>], y: &Requantized) -> Option<OnBytes> {
        self.is_plain().then_some(())?;
        matmul::bytes::on_bytes(self.trans_b, inputs, y)
    }

    fn on_dynamic_bytes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<(Step, bool)>> {
        if !self.is_plain() {
            return Ok(None);
        }
        matmul::bytes::on_dynamic_bytes(self.trans_b, inputs)
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
