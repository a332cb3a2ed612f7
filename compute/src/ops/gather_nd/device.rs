//! GatherND on devices. An index out of range takes the nearest slice, where the CPU refuses it.

use super::GatherNd;
use crate::args::optional;
use crate::device::{Argument, Call, Kernel, Launches, c_type, groups, word};
use crate::index::strides;
use crate::op::ValueInfo;

const GROUP: usize = 64;

pub(super) fn launches(
    op: &GatherNd,
    inputs: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> Option<Launches> {
    let (x, indices) = (optional(inputs, 0)?, optional(inputs, 1)?);
    let (dtype, index) = (x.ty.dtype, indices.ty.dtype);
    let count = outputs.first()?.ty.concrete_shape()?.elements().ok()?;
    if count == 0 {
        return Some(Launches::default());
    }
    let (dims, tuples) = (x.ty.concrete_shape()?, indices.ty.concrete_shape()?);
    let (width, outer) = tuples.split_last()?;
    let batches: usize = dims[..op.batch_dims].iter().product();
    let per_batch = outer.iter().product::<usize>().checked_div(batches)?;
    let slices = Slices::new(&dims, op.batch_dims, *width)?;
    let kernel = Kernel::new("gather_nd", include_str!("gather_nd.cl"), [GROUP, 1, 1])
        .define("WORD", word(dtype)?)
        .define("INDEX", c_type(index)?)
        .define("SLICE(tuple)", &slices.place);
    let mut arguments = vec![Argument::Input(0), Argument::Input(1), Argument::Output(0)];
    for number in [count, slices.run, per_batch, slices.of_batch] {
        arguments.push(Argument::U32(u32::try_from(number).ok()?));
    }
    let bytes = (2 * count * dtype.size() + tuples.byte_len(index).ok()?) as u64;
    let call = Call { kernel, groups: [groups(count, GROUP), 1, 1], arguments, flops: 0, bytes };
    Some(call.into())
}

/// Slices of a tensor that tuples of indices name.
pub(crate) struct Slices {
    /// The expression of the slice's number in its batch; its variables are `tuple`, the tuple's
    /// number, and `indices`.
    pub(crate) place: String,
    /// Number of slices of a batch.
    pub(crate) of_batch: usize,
    /// Number of elements of a slice.
    pub(crate) run: usize,
}

impl Slices {
    /// The slices for tuples of `width` indices into the axes after the first `batch`. `None` where
    /// there is no slice, or fewer such axes than `width`.
    pub(crate) fn new(dims: &[usize], batch: usize, width: usize) -> Option<Self> {
        let (named, rest) = dims.get(batch..)?.split_at_checked(width)?;
        let term = |(j, (size, step)): (usize, (&usize, usize))| {
            format!("element_of((i64)indices[(tuple) * {width}u + {j}u], {size}u) * {step}u")
        };
        let terms: Vec<String> = named.iter().zip(strides(named)).enumerate().map(term).collect();
        let place = if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") };
        let (of_batch, run) = (named.iter().product(), rest.iter().product());
        (of_batch > 0 && run > 0).then_some(Self { place, of_batch, run })
    }
}
