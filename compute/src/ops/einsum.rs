//! Sums of products over named axes.

mod cpu;
mod device;
mod equation;
#[cfg(test)]
mod tests;

use crate::args::{output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use equation::{Equation, Label};
use lgp_memory::{DType, Dim, Tensor, TensorView};

/// `Einsum`: one or more inputs of one numeric dtype.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Einsum {
    /// The axes' names, such as `bij,bjk->bik`; `...` stands for axes that broadcast.
    pub equation: String,
}

impl Op for Einsum {
    fn name(&self) -> &'static str {
        "Einsum"
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let first = required("Einsum", inputs, 0)?;
        if first.ty.dtype == DType::Bool {
            return Err(Error::invalid("Einsum", "it has no meaning for bool"));
        }
        let mut shapes = Vec::with_capacity(inputs.len());
        for i in 0..inputs.len() {
            let x = required("Einsum", inputs, i)?;
            same_dtype("Einsum", &format!("input {i}"), first.ty.dtype, x.ty.dtype)?;
            shapes.push(x.sym_shape());
        }
        let Some(shapes) = shapes.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok(output(first.ty.dtype, None));
        };
        let ranks: Vec<usize> = shapes.iter().map(|dims| dims.len()).collect();
        let equation = Equation::parse(&self.equation, &ranks)?;
        let mut sizes: Vec<(Label, Dim)> = Vec::new();
        for (labels, dims) in equation.inputs.iter().zip(&shapes) {
            for (label, dim) in labels.iter().zip(*dims) {
                match sizes.iter_mut().find(|(l, _)| l == label) {
                    None => sizes.push((*label, dim.clone())),
                    Some((_, size)) => *size = one(size, dim)?,
                }
            }
        }
        let size = |label: &Label| sizes.iter().find(|(l, _)| l == label).map(|(_, d)| d.clone());
        let shape = equation.output.iter().map(size).collect::<Option<Vec<_>>>();
        Ok(output(first.ty.dtype, shape))
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
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

/// The size that two axes of one name share; 1 broadcasts.
fn one(a: &Dim, b: &Dim) -> Result<Dim> {
    let both = dims::broadcast("Einsum", std::slice::from_ref(a), std::slice::from_ref(b))?;
    Ok(both.into_iter().next().unwrap_or(Dim::Unknown))
}
