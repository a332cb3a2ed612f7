//! Sums of products over named axes.

mod cpu;
mod device;
mod equation;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{not_bool, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use equation::{Equation, Label};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

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

    fn arity(&self) -> RangeInclusive<usize> {
        1..=usize::MAX
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let first = required(inputs, 0)?;
        not_bool(first.ty.dtype)?;
        let mut shapes = Vec::with_capacity(inputs.len());
        for i in 0..inputs.len() {
            let x = required(inputs, i)?;
            same_dtype(&format!("input {i}"), first.ty.dtype, x.ty.dtype)?;
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

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let names = self.names(inputs).unwrap_or_default();
        names.iter().fold(Axes::new(), |axes, name| {
            let places = name.places.iter().copied();
            let mut pairs = name.places.windows(2);
            // An axis that an input has twice is its diagonal.
            let twice = pairs.any(|pair| pair[0].0 == pair[1].0);
            match name.output {
                _ if twice => axes,
                Some(output) => axes.each(places, [(0, output)]),
                None if name.is_of_one_length(inputs) => axes.all(places, []),
                None => axes,
            }
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        let lengths = |names: Vec<Named>| {
            names.iter().fold(1u64, |n, name| n.saturating_mul(name.length(inputs) as u64))
        };
        self.names(inputs).map_or(0, lengths)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// An axis by its name.
struct Named {
    label: Label,
    /// Pairs of an input and the input's axis.
    places: Vec<(usize, usize)>,
    /// The output's axis of this name.
    output: Option<usize>,
}

impl Einsum {
    /// All axes; `None` where a rank is unknown.
    fn names(&self, inputs: &[Option<&ValueInfo>]) -> Option<Vec<Named>> {
        let ranks: Vec<usize> = inputs.iter().map(|x| (*x)?.rank()).collect::<Option<_>>()?;
        let equation = Equation::parse(&self.equation, &ranks).ok()?;
        let mut names: Vec<Named> = Vec::new();
        for (i, labels) in equation.inputs.iter().enumerate() {
            for (axis, &label) in labels.iter().enumerate() {
                if let Some(name) = names.iter_mut().find(|name| name.label == label) {
                    name.places.push((i, axis));
                } else {
                    let output = equation.output.iter().position(|&other| other == label);
                    names.push(Named { label, places: vec![(i, axis)], output });
                }
            }
        }
        Some(names)
    }
}

impl Named {
    fn dims<'a>(
        &'a self,
        inputs: &'a [Option<&ValueInfo>],
    ) -> impl Iterator<Item = Option<&'a Dim>> {
        self.places.iter().map(move |&(i, axis)| inputs.get(i).copied().flatten()?.dim(axis))
    }

    /// Whether no input is broadcast along this axis.
    fn is_of_one_length(&self, inputs: &[Option<&ValueInfo>]) -> bool {
        let first = self.dims(inputs).next().flatten();
        self.places.len() == 1 || self.dims(inputs).all(|dim| dims::surely_equal(first, dim))
    }

    /// The length; 0 while it is unknown.
    fn length(&self, inputs: &[Option<&ValueInfo>]) -> usize {
        self.dims(inputs).filter_map(|dim| dim?.known()).max().unwrap_or(0)
    }
}

/// The size that two axes of the same name have together; 1 broadcasts.
fn one(a: &Dim, b: &Dim) -> Result<Dim> {
    let both = dims::broadcast(std::slice::from_ref(a), std::slice::from_ref(b))?;
    Ok(both.into_iter().next().unwrap_or(Dim::Unknown))
}
