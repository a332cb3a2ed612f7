//! Matrix product with a scaled addend.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use crate::args::{arity, float, optional, output, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, SymShape, Tensor, TensorView};

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

impl Op for Gemm {
    fn name(&self) -> &'static str {
        "Gemm"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("Gemm", inputs, 2, 3)?;
        let (a, b) = (required("Gemm", inputs, 0)?, required("Gemm", inputs, 1)?);
        float("Gemm", a.ty.dtype)?;
        same_dtype("Gemm", "input 1", a.ty.dtype, b.ty.dtype)?;
        let pair = |what, info: &ValueInfo, transposed| -> Result<[Dim; 2]> {
            rank("Gemm", what, info, 2)?;
            Ok(match info.sym_shape() {
                Some([x, y]) if transposed => [y.clone(), x.clone()],
                Some([x, y]) => [x.clone(), y.clone()],
                _ => [Dim::Unknown, Dim::Unknown],
            })
        };
        let [m, k] = pair("input 0", a, self.trans_a)?;
        let [inner, n] = pair("input 1", b, self.trans_b)?;
        dims::expect("Gemm", "the inner dimension of input 1", &k, &inner)?;
        let shape = vec![m, n];
        if let Some(c) = optional(inputs, 2) {
            same_dtype("Gemm", "input 2", a.ty.dtype, c.ty.dtype)?;
            if let Some(dims) = c.sym_shape() {
                let whole = dims::broadcast("Gemm", dims, &shape)?;
                let grows = whole.len() > 2
                    || whole
                        .iter()
                        .zip(&shape)
                        .any(|(whole, dim)| dims::expect("Gemm", "", dim, whole).is_err());
                if grows {
                    let (c, shape) = (SymShape(dims.to_vec()), SymShape(shape));
                    let message = format!("input 2 of shape {c} does not broadcast to {shape}");
                    return Err(Error::invalid("Gemm", message));
                }
            }
        }
        Ok(output(a.ty.dtype, Some(shape)))
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

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        if crate::widen::is_half(inputs) {
            return crate::widen::widened(self, ctx, inputs);
        }
        cpu::run(self, ctx, inputs)
    }
}
