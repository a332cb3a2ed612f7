//! Scattering on devices. An index out of range takes the nearest element, where the CPU refuses
//! it. Of several updates of an element the last one stays, or all combine in their order.

use super::{ScatterElements, ScatterNd, ScatterReduction};
use crate::args::{axis, optional};
use crate::device::{
    Argument, Call, Kernel, Launches, at_strides, c_type, fills, groups, moves, plain, word,
};
use crate::index::strides;
use crate::op::ValueInfo;
use crate::ops::gather_nd::Slices;
use lgp_memory::DType;

const GROUP: usize = 64;
const BODY: &str = include_str!("scatter.cl");
/// Most updates in a row by one work-item, unless at least as many work-items run side by side.
const WALK_MAX: usize = 64;

/// Data, indices and updates.
struct Operands<'a> {
    data: &'a ValueInfo,
    indices: &'a ValueInfo,
    updates: &'a ValueInfo,
}

impl<'a> Operands<'a> {
    fn new(inputs: &'a [Option<&ValueInfo>]) -> Option<Self> {
        let [data, indices, updates] = [0, 1, 2].map(|i| optional(inputs, i));
        Some(Self { data: data?, indices: indices?, updates: updates? })
    }

    /// The copy of the data that updates change.
    fn copy(&self) -> Option<Call> {
        let all = plain(self.data)?;
        moves(self.data.ty.dtype, (Argument::Input(0), &all), (Argument::Output(0), &all))
    }

    /// A kernel that combines updates with the data.
    fn kernel(&self, name: &'static str, reduction: ScatterReduction) -> Option<Kernel> {
        let dtype = self.data.ty.dtype;
        let [ty, combined] = match reduction {
            ScatterReduction::None => [word(dtype)?, "(b)"],
            // Halves would be rounded after each step, and integers wrap.
            _ if dtype != DType::F32 => return None,
            ScatterReduction::Add => ["float", "((a) + (b))"],
            ScatterReduction::Mul => ["float", "((a) * (b))"],
            ScatterReduction::Min => ["float", "((a) < (b) || (a) != (a) ? (a) : (b))"],
            ScatterReduction::Max => ["float", "((a) > (b) || (a) != (a) ? (a) : (b))"],
        };
        let index = c_type(self.indices.ty.dtype)?;
        let kernel = Kernel::new(name, BODY, [GROUP, 1, 1]);
        Some(kernel.define("TYPE", ty).define("INDEX", index).define("COMBINED(a, b)", combined))
    }

    /// The launch for `items` work-items.
    fn call(&self, kernel: Kernel, given: &[Argument], sizes: &[usize]) -> Option<Call> {
        let mut arguments = given.to_vec();
        for &size in sizes {
            arguments.push(Argument::U32(u32::try_from(size).ok()?));
        }
        let updates = self.updates.ty.concrete_shape()?.byte_len(self.updates.ty.dtype).ok()?;
        let indices = self.indices.ty.concrete_shape()?.byte_len(self.indices.ty.dtype).ok()?;
        let (items, bytes) = (sizes.first().copied()?, (2 * updates + indices) as u64);
        Some(Call { kernel, groups: [groups(items, GROUP), 1, 1], arguments, flops: 0, bytes })
    }
}

const ALL: [Argument; 3] = [Argument::Input(1), Argument::Input(2), Argument::Output(0)];

/// A work-item for each line along the axis: updates of a line meet no other line.
pub(super) fn elements(op: &ScatterElements, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let operands = Operands::new(inputs)?;
    let dims = operands.data.ty.concrete_shape()?;
    let mut updated = operands.indices.ty.concrete_shape()?.to_vec();
    let along = axis(op.axis, dims.rank()).ok()?;
    let mut launches = Launches::from(operands.copy()?);
    if updated.contains(&0) {
        return Some(launches);
    }
    let (mut to, mut from) = (strides(&dims), strides(&updated));
    let [size, to_step] = [dims[along], std::mem::replace(&mut to[along], 0)];
    let from_step = std::mem::replace(&mut from[along], 0);
    let each = std::mem::replace(&mut updated[along], 1);
    let lines: usize = updated.iter().product();
    if each > WALK_MAX.max(lines) {
        // Few long work-items leave a card idle, and drivers end kernels that take seconds.
        return None;
    }
    let kernel = operands
        .kernel("scatter_elements", op.reduction)?
        .define("FROM(i)", at_strides(&updated, &from, "(i)"))
        .define("TO(i)", at_strides(&updated, &to, "(i)"))
        .define("SLICE(tuple)", "0");
    launches.calls.push(operands.call(kernel, &ALL, &[lines, each, from_step, size, to_step])?);
    Some(launches).filter(|_| size > 0)
}

/// A work-item for each element of a slice makes that element's updates in all slices. Many updates
/// that replace elements have a work-item each, once the last update of each slice is found.
pub(super) fn slices(op: &ScatterNd, inputs: &[Option<&ValueInfo>]) -> Option<Launches> {
    let operands = Operands::new(inputs)?;
    let dims = operands.data.ty.concrete_shape()?;
    let indices = operands.indices.ty.concrete_shape()?;
    let mut launches = Launches::from(operands.copy()?);
    if operands.updates.ty.concrete_shape()?.contains(&0) {
        return Some(launches);
    }
    let (width, outer) = indices.split_last()?;
    let tuples: usize = outer.iter().product();
    let Slices { place, of_batch, run } = Slices::new(&dims, 0, *width)?;
    let kernel = |name| {
        let kernel = operands.kernel(name, op.reduction)?;
        Some(kernel.define("SLICE(tuple)", &place).define("FROM(i)", 0).define("TO(i)", 0))
    };
    if tuples <= WALK_MAX.max(run) {
        launches.calls.push(operands.call(kernel("scatter_slices")?, &ALL, &[run, tuples])?);
        return Some(launches);
    }
    if op.reduction != ScatterReduction::None {
        return None;
    }
    let last = Argument::Scratch(0);
    launches.scratch.push(of_batch * 4);
    launches.calls.push(fills(DType::U32, "0", last, of_batch)?);
    let given = [Argument::Input(1), last];
    launches.calls.push(operands.call(kernel("scatter_last")?, &given, &[tuples])?);
    let given = [Argument::Input(1), Argument::Input(2), last, Argument::Output(0)];
    launches.calls.push(operands.call(kernel("scatter_latest")?, &given, &[tuples * run, run])?);
    Some(launches)
}
