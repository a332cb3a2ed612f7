//! The work of an operator on a device, as data.

use super::kernel::{Argument, Call, c_type};
use super::launches::Launches;
use super::library::LibraryProduct;
use super::pointwise::Pointwise;
use crate::op::{Op, ValueInfo};

/// Most work-groups along the second and third dimension that every device takes.
pub(super) const GROUPS_MAX: usize = 65_535;

/// The launches that compute an operator, one after the other.
///
/// Only this crate makes recipes. Launching a recipe relies on a promise that each recipe keeps: in
/// buffers of at least the sizes that the recipe names, its kernels stay within the buffers,
/// whatever their contents.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    library: Option<Box<LibraryProduct>>,
    calls: Vec<Call>,
    scratch: Vec<usize>,
    /// Bytes of each input that is read, and of each output.
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl Recipe {
    /// How a device computes an operator, for inputs and outputs of these types;
    /// `None` where the operator has no kernels for them, or some dimension is not known.
    #[must_use]
    pub fn new(op: &dyn Op, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Self> {
        let sizes = Sizes::new(inputs, outputs)?;
        let launches = match Pointwise::single(op, inputs, outputs) {
            Some(pointwise) => pointwise.launches()?,
            None => op.launches(inputs, outputs)?,
        };
        Self::with(launches, &sizes)
    }

    /// All ways to compute it that are worth measuring, [`Recipe::new`] first.
    #[must_use]
    pub fn alternatives(
        op: &dyn Op,
        inputs: &[Option<&ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Vec<Self> {
        let Some(sizes) = Sizes::new(inputs, outputs) else { return Vec::new() };
        let schedules = match Pointwise::single(op, inputs, outputs) {
            Some(pointwise) => pointwise.launches().into_iter().collect(),
            None => op.schedules(inputs, outputs),
        };
        schedules.into_iter().filter_map(|launches| Self::with(launches, &sizes)).collect()
    }

    /// `None` for a grid that some devices refuse.
    fn with(launches: Launches, sizes: &Sizes) -> Option<Self> {
        if launches.calls.iter().any(|call| call.groups[1..].iter().any(|&n| n > GROUPS_MAX)) {
            return None;
        }
        let mut recipe = Self::of(launches, sizes.inputs.clone(), sizes.outputs.clone());
        for i in 0..recipe.inputs.len() {
            if !recipe.reads(i) {
                recipe.inputs[i] = 0;
            }
        }
        Some(recipe)
    }

    /// A recipe of launches without an operator, with the bytes of each input and output.
    pub(crate) fn of(launches: Launches, inputs: Vec<usize>, outputs: Vec<usize>) -> Self {
        let Launches { library, calls, scratch } = launches;
        Self { library, calls, scratch, inputs, outputs }
    }

    /// Whether any of the launches reads an input.
    #[must_use]
    pub fn reads(&self, input: usize) -> bool {
        let by_library = self.library().is_some_and(|product| product.reads(input));
        by_library || self.calls.iter().any(|call| call.arguments.contains(&Argument::Input(input)))
    }

    /// Whether buffers of these sizes are as large as the kernels need.
    pub(super) fn fits(&self, inputs: &[usize], outputs: &[usize], scratch: &[usize]) -> bool {
        let holds = |given: &[usize], wanted: &[usize]| {
            given.len() == wanted.len() && given.iter().zip(wanted).all(|(g, w)| g >= w)
        };
        holds(inputs, &self.inputs)
            && holds(outputs, &self.outputs)
            && holds(scratch, &self.scratch)
    }

    /// Bytes of each input that is read, and of each output.
    pub(super) fn sizes(&self) -> [&[usize]; 2] {
        [&self.inputs, &self.outputs]
    }

    /// Additions and multiplications of all launches.
    #[must_use]
    pub fn flops(&self) -> u64 {
        let library = self.library().map_or(0, LibraryProduct::flops);
        library + self.calls.iter().map(|call| call.flops).sum::<u64>()
    }

    /// The product that the vendor's library computes before the kernels.
    #[must_use]
    pub fn library(&self) -> Option<&LibraryProduct> {
        self.library.as_deref()
    }

    /// The launches of kernels.
    #[must_use]
    pub fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// Bytes of each scratch buffer.
    #[must_use]
    pub fn scratch(&self) -> &[usize] {
        &self.scratch
    }
}

/// Bytes of an operator's inputs and outputs. They are computed before the operator is asked for
/// launches, so that its products of dimensions cannot overflow.
struct Sizes {
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

impl Sizes {
    fn new(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Self> {
        let bytes_in = |info: &Option<&ValueInfo>| info.map_or(Some(0), bytes);
        Some(Self {
            inputs: inputs.iter().map(bytes_in).collect::<Option<_>>()?,
            outputs: outputs.iter().map(bytes).collect::<Option<_>>()?,
        })
    }
}

/// Bytes of a tensor. `None` for unknown dimensions, a dtype that kernels lack, or more elements
/// than an `i32` counts.
fn bytes(info: &ValueInfo) -> Option<usize> {
    let shape = info.ty.concrete_shape()?;
    c_type(info.ty.dtype)?;
    let few = i32::try_from(shape.elements().ok()?).is_ok();
    shape.byte_len(info.ty.dtype).ok().filter(|_| few)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::ConvTranspose;
    use lgp_memory::{DType, TensorType};

    /// CUDA refuses more than 65,535 work-groups along the third dimension, here groups × phases.
    #[test]
    fn a_grid_that_some_devices_refuse_is_no_recipe() {
        let value =
            |dims: [usize; 4]| ValueInfo::of(TensorType::concrete(DType::F32, &dims.into()));
        for (group, fits) in [(32, true), (64, false)] {
            let op = ConvTranspose { strides: vec![32, 32], group, ..ConvTranspose::default() };
            let (x, w) = (value([1, 2 * group, 1, 1]), value([2 * group, 2, 32, 32]));
            let y = value([1, 2 * group, 32, 32]);
            assert_eq!(Recipe::new(&op, &[Some(&x), Some(&w)], &[y]).is_some(), fits, "{group}");
        }
    }
}
