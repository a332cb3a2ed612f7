//! Writes elements and slices at positions that an input gives.

mod cpu;
mod device;
#[cfg(test)]
mod tests;

use super::gather_elements::within;
use super::gather_nd::too_wide;
use crate::Axes;
use crate::args::{axis, not_bool, optional, output, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::index::index_dtype;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// How an update changes an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScatterReduction {
    /// It replaces the element; of several updates the last stays.
    #[default]
    None,
    /// It is added to the element.
    Add,
    /// It is multiplied with the element.
    Mul,
    /// The smaller of both stays.
    Min,
    /// The larger of both stays.
    Max,
}

/// `ScatterElements`: inputs data, indices (i32 or i64) and updates of the indices' shape.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScatterElements {
    /// Axis of data that is indexed, negative from the back.
    pub axis: i64,
    /// How updates combine with the data.
    pub reduction: ScatterReduction,
}

/// `ScatterND`: inputs data, indices (i32 or i64), whose last axis holds positions, and updates:
/// a slice of data for each position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScatterNd {
    /// How updates combine with the data.
    pub reduction: ScatterReduction,
}

/// The three inputs, their dtypes checked.
fn checked<'a>(
    reduction: ScatterReduction,
    inputs: &'a [Option<&ValueInfo>],
) -> Result<[&'a ValueInfo; 3]> {
    let x = required(inputs, 0)?;
    let (indices, updates) = (required(inputs, 1)?, required(inputs, 2)?);
    index_dtype("indices", indices.ty.dtype)?;
    same_dtype("updates", x.ty.dtype, updates.ty.dtype)?;
    if reduction != ScatterReduction::None {
        not_bool(x.ty.dtype)?;
    }
    Ok([x, indices, updates])
}

impl Op for ScatterElements {
    fn name(&self) -> &'static str {
        "ScatterElements"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let [x, indices, updates] = checked(self.reduction, inputs)?;
        if let (Some(x), Some(i)) = (x.sym_shape(), indices.sym_shape()) {
            let axis = axis(self.axis, x.len())?;
            within(x, i, axis)?;
        }
        if let (Some(i), Some(u)) = (indices.sym_shape(), updates.sym_shape()) {
            same_shape(i, u)?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let dims = |i: usize| optional(inputs, i).and_then(|x| x.sym_shape());
        let (Some(x), Some(indices)) = (dims(0), dims(1)) else { return Axes::new() };
        let Ok(along) = axis(self.axis, x.len()) else { return Axes::new() };
        // With fewer indices than data on an axis, some of its positions have no index.
        let aligned = |axis: &usize| {
            let dim = &x[*axis];
            *axis != along && *dim != Dim::Unknown && indices.get(*axis) == Some(dim)
        };
        (0..x.len())
            .filter(aligned)
            .fold(Axes::new(), |axes, axis| axes.each((0..3).map(|i| (i, axis)), [(0, axis)]))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        multiply_adds(self.reduction, inputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::elements(self, inputs)
    }

    fn widens_halves(&self) -> bool {
        self.reduction != ScatterReduction::None
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::elements(self, inputs)
    }
}

impl Op for ScatterNd {
    fn name(&self) -> &'static str {
        "ScatterND"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let [x, indices, updates] = checked(self.reduction, inputs)?;
        if let (Some(x), Some(i)) = (x.sym_shape(), indices.sym_shape()) {
            let Some((last, outer)) = i.split_last() else {
                return Err(Error::invalid("indices have rank 0, expected 1 or more"));
            };
            if let (Some(width), Some(u)) = (last.known(), updates.sym_shape()) {
                let rest = x.get(width..).ok_or_else(|| too_wide(width, x.len()))?;
                same_shape(&[outer, rest].concat(), u)?;
            }
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let dims = |i: usize| optional(inputs, i).and_then(|x| x.sym_shape());
        let (Some(x), Some([outer @ .., width])) = (dims(0), dims(1)) else { return Axes::new() };
        let Some(width) = width.known() else { return Axes::new() };
        // The axes of a slice follow the axes that the indices name.
        (width..x.len()).fold(Axes::new(), |axes, axis| {
            axes.each([(0, axis), (2, outer.len() + axis - width)], [(0, axis)])
        })
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        multiply_adds(self.reduction, inputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Option<Launches> {
        device::slices(self, inputs)
    }

    fn widens_halves(&self) -> bool {
        self.reduction != ScatterReduction::None
    }

    fn compute(&self, _: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::slices(self, inputs)
    }
}

/// One for each update, but none where updates are only copied.
fn multiply_adds(reduction: ScatterReduction, inputs: &[Option<&ValueInfo>]) -> u64 {
    let updates = optional(inputs, 2).filter(|_| reduction != ScatterReduction::None);
    updates.map_or(0, |updates| crate::cost::elements(updates))
}

fn same_shape(want: &[lgp_memory::Dim], given: &[lgp_memory::Dim]) -> Result<()> {
    if want.len() != given.len() {
        let message = format!("updates have rank {}, expected {}", given.len(), want.len());
        return Err(Error::invalid(message));
    }
    want.iter().zip(given).try_for_each(|(a, b)| dims::expect("an axis of the updates", a, b))
}
