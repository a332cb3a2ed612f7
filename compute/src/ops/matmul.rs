//! Matrix product, batched.

mod cpu;
pub(crate) mod device;
#[cfg(test)]
mod tests;

use crate::args::{arity, float, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};

/// `MatMul` by numpy's rules: the last two axes multiply, the others broadcast, a vector on
/// either side loses its axis again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MatMul;

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "MatMul"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity("MatMul", inputs, 2, 2)?;
        let (a, b) = (required("MatMul", inputs, 0)?, required("MatMul", inputs, 1)?);
        float("MatMul", a.ty.dtype)?;
        same_dtype("MatMul", "input 1", a.ty.dtype, b.ty.dtype)?;
        let shape = match (a.sym_shape(), b.sym_shape()) {
            (Some(a), Some(b)) => Some(shape(a, b)?),
            _ => None,
        };
        Ok(output(a.ty.dtype, shape))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(inputs, outputs)
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

/// The product's shape.
pub(crate) fn shape(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let one = Dim::Known(1);
    let (batch_a, m, k) = match a {
        [] => return Err(Error::invalid("MatMul", "input 0 is a scalar, expected rank 1 or more")),
        [k] => (&[][..], &one, k),
        [batch @ .., m, k] => (batch, m, k),
    };
    let (batch_b, inner, n) = match b {
        [] => return Err(Error::invalid("MatMul", "input 1 is a scalar, expected rank 1 or more")),
        [k] => (&[][..], k, &one),
        [batch @ .., k, n] => (batch, k, n),
    };
    dims::expect("MatMul", "the inner dimension of input 1", k, inner)?;
    let mut out = dims::broadcast("MatMul", batch_a, batch_b)?;
    if a.len() > 1 {
        out.push(m.clone());
    }
    if b.len() > 1 {
        out.push(n.clone());
    }
    Ok(out)
}
