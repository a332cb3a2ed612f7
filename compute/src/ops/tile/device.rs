//! Tile on a device: each axis becomes two, of which the outer one repeats.

use crate::device::{Launches, plain, viewed};
use crate::op::ValueInfo;
use lgp_memory::{Layout, Shape};

pub(super) fn launches(
    _op: &super::Tile,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let output = outputs.first()?;
    let whole = plain(inputs.first().copied().flatten()?)?;
    let repeated = output.ty.concrete_shape()?;
    if repeated.contains(&0) {
        return Some(Launches::default());
    }
    let pairs = |of: &dyn Fn(usize, usize) -> usize| -> Vec<usize> {
        let axes = whole.dims().iter().zip(repeated.iter());
        axes.flat_map(|(&size, &all)| [of(size, all), size]).collect()
    };
    let view = Layout::contiguous(&Shape::from(pairs(&|_, _| 1))).ok()?;
    viewed(&view.broadcast(&Shape::from(pairs(&|size, all| all / size))).ok()?, output)
}
