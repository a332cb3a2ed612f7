//! Runs operators on small or numbered tensors, to learn where they move positions and whether
//! positions of zeros count.

use lgp_compute::{Axis, AxisKind, Context, Op, ValueInfo};
use lgp_memory::{DType, Tensor};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An element of another input than the numbered one.
const FOREIGN: i32 = -1;
/// Larger tensors are not numbered: their positions stay.
const ELEMENTS_MAX: usize = 1 << 26;
/// Sums in another order differ by this share at most.
const TOLERANCE: f32 = 1e-4;

/// Pairs of positions, along an axis of an input and along an axis of an output, whose elements
/// are the same.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Link {
    /// The operator's input, and its axis.
    pub(super) input: (usize, usize),
    /// The operator's output, and its axis.
    pub(super) output: (usize, usize),
    /// The pairs.
    pub(super) pairs: BTreeSet<(usize, usize)>,
}

/// An operator that moves elements, with the types of its inputs and outputs.
pub(super) struct Movement<'a> {
    pub(super) op: &'a dyn Op,
    pub(super) infos: &'a [Option<&'a ValueInfo>],
    pub(super) outputs: &'a [ValueInfo],
}

impl Movement<'_> {
    /// Whether the input's elements become elements of outputs.
    fn carries(&self, input: usize) -> bool {
        let dtype = self.outputs.first().map(|output| output.ty.dtype);
        let own = self.infos.get(input).copied().flatten().map(|info| info.ty.dtype);
        own.is_some() && own == dtype && self.op.shape_input() != Some(input)
    }

    /// The shape of output 0 as numbers.
    fn shape(&self) -> Option<Tensor> {
        let shape = self.outputs.first()?.ty.concrete_shape()?;
        let dims: Option<Vec<i64>> = shape.dims().iter().map(|&n| i64::try_from(n).ok()).collect();
        Tensor::from_slice([shape.rank()], &dims?).ok()
    }

    /// Shows where positions along an axis of an input land: the number of the position, or
    /// [`FOREIGN`], for each element of each output.
    fn numbered(&self, input: usize, axis: usize) -> Option<Vec<Vec<i32>>> {
        let mut tensors = Vec::with_capacity(self.infos.len());
        for (at, info) in self.infos.iter().enumerate() {
            let Some(info) = info else {
                tensors.push(None);
                continue;
            };
            if !self.carries(at) {
                let shape = || (self.op.shape_input() == Some(at)).then(|| self.shape()).flatten();
                tensors.push(Some(info.constant.clone().or_else(shape)?));
                continue;
            }
            let shape = info.ty.concrete_shape()?;
            let len = shape.elements().ok().filter(|&len| len <= ELEMENTS_MAX)?;
            let values: Vec<f32> = match at == input {
                false => vec![FOREIGN as f32; len],
                true => {
                    let length = *shape.dims().get(axis)?;
                    let inner: usize = shape.dims()[axis + 1..].iter().product();
                    (0..len).map(|index| (index / inner.max(1) % length.max(1)) as f32).collect()
                }
            };
            tensors.push(Some(Tensor::from_slice(shape, &values).ok()?));
        }
        let views: Vec<_> =
            tensors.iter().map(|tensor| tensor.as_ref().map(Tensor::view)).collect();
        let outputs = self.op.run(&Context::new(1), &views).ok()?;
        let numbers = |(output, info): (&Tensor, &ValueInfo)| {
            let same = info.ty.concrete_shape().is_some_and(|shape| shape == *output.shape());
            let values = output.as_slice::<f32>().ok().filter(|_| same)?;
            Some(values.iter().map(|&value| value as i32).collect())
        };
        outputs.iter().zip(self.outputs).map(numbers).collect()
    }

    /// The pairs of positions of an input's axis, or [`FOREIGN`], and of an output's axis.
    fn pairs(&self, numbers: &[i32], (output, axis): (usize, usize)) -> BTreeSet<(i32, usize)> {
        let shape = self.outputs.get(output).and_then(|info| info.ty.concrete_shape());
        let Some(shape) = shape.filter(|shape| axis < shape.rank()) else { return BTreeSet::new() };
        let length = shape.dims()[axis];
        let inner: usize = shape.dims()[axis + 1..].iter().product();
        let mut pairs = BTreeSet::new();
        let mut last = None;
        for (index, &number) in numbers.iter().enumerate() {
            let pair = (number, index / inner.max(1) % length.max(1));
            // Neighbours are mostly alike.
            if last != Some(pair) {
                pairs.insert(pair);
                last = Some(pair);
            }
        }
        pairs
    }

    /// The pairs of a link after a change of the operator or of its inputs' lengths.
    pub(super) fn pairs_of(&self, link: &Link) -> Option<BTreeSet<(usize, usize)>> {
        let numbers = self.numbered(link.input.0, link.input.1)?;
        let pairs = self.pairs(numbers.get(link.output.0)?, link.output);
        Some(own(&pairs))
    }

    /// Links between these axes of the inputs and of the outputs, which the operator's facts leave
    /// out. Where several axes become one or the reverse, only the first of them with more than one
    /// position is linked.
    pub(super) fn links(&self, inputs: &[(usize, usize)], outputs: &[(usize, usize)]) -> Vec<Link> {
        let length = |info: Option<&ValueInfo>, axis: usize| {
            info.and_then(|info| info.ty.concrete_shape()?.dims().get(axis).copied()).unwrap_or(0)
        };
        let input_length =
            |(i, axis): (usize, usize)| length(self.infos.get(i).copied().flatten(), axis);
        let output_length = |(o, axis): (usize, usize)| length(self.outputs.get(o), axis);
        let mut inputs: Vec<(usize, usize)> =
            inputs.iter().copied().filter(|&(i, _)| self.carries(i)).collect();
        inputs.sort_by_key(|&at| (input_length(at) < 2, at));
        let outputs: Vec<_> = outputs.iter().copied().filter(|&at| output_length(at) > 1).collect();
        if outputs.is_empty() && inputs.iter().all(|&at| input_length(at) < 2) {
            return Vec::new();
        }
        let found: Option<Vec<Vec<Vec<i32>>>> =
            inputs.iter().map(|&(i, axis)| self.numbered(i, axis)).collect();
        let Some(found) = found else { return Vec::new() };
        let mut links: Vec<Link> = Vec::new();
        for &output in &outputs {
            links.extend(self.merged(&inputs, &found, output, output_length(output)));
        }
        for (&input, found) in inputs.iter().zip(&found) {
            if input_length(input) > 1 && !links.iter().any(|link| link.input == input) {
                links.extend(self.split(input, found, &outputs));
            }
        }
        links.retain(|link| input_length(link.input) > 1);
        // Where another output has elements of the input too, its axes must be linked as well.
        let linked = links.clone();
        links.retain(|link| {
            let at = inputs.iter().position(|&input| input == link.input);
            let numbers = at.map_or(&[][..], |at| &found[at]);
            let mut drawn = numbers.iter().enumerate();
            drawn.all(|(o, numbers)| {
                linked.iter().any(|it| it.input == link.input && it.output.0 == o)
                    || numbers.iter().all(|&number| number == FOREIGN)
            })
        });
        links
    }

    /// Links of an output's axis, each position of which is from one position of one input.
    fn merged(
        &self,
        inputs: &[(usize, usize)],
        found: &[Vec<Vec<i32>>],
        output: (usize, usize),
        length: usize,
    ) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        let mut covered = BTreeSet::new();
        for (&input, numbers) in inputs.iter().zip(found) {
            if links.iter().any(|link| link.input.0 == input.0) {
                continue;
            }
            let Some(numbers) = numbers.get(output.0) else { continue };
            let pairs = self.pairs(numbers, output);
            let places: BTreeSet<usize> = pairs.iter().map(|pair| pair.1).collect();
            let pairs = if places.len() == pairs.len() { own(&pairs) } else { BTreeSet::new() };
            if !pairs.is_empty() {
                covered.extend(pairs.iter().map(|pair| pair.1));
                links.push(Link { input, output, pairs });
            }
        }
        if covered.len() == length { links } else { Vec::new() }
    }

    /// Links of an input's axis, each position of which goes to one position of an output's axis.
    fn split(
        &self,
        input: (usize, usize),
        found: &[Vec<i32>],
        outputs: &[(usize, usize)],
    ) -> Vec<Link> {
        let mut links: Vec<Link> = Vec::new();
        for &output in outputs {
            if links.iter().any(|link| link.output.0 == output.0) {
                continue;
            }
            let Some(numbers) = found.get(output.0) else { continue };
            let pairs = own(&self.pairs(numbers, output));
            let places: BTreeSet<usize> = pairs.iter().map(|pair| pair.0).collect();
            if !pairs.is_empty() && places.len() == pairs.len() {
                links.push(Link { input, output, pairs });
            }
        }
        links
    }
}

/// The pairs without those of foreign elements.
fn own(pairs: &BTreeSet<(i32, usize)>) -> BTreeSet<(usize, usize)> {
    pairs.iter().filter_map(|&(from, to)| Some((usize::try_from(from).ok()?, to))).collect()
}

/// Whether an operator's outputs stay the same when a position along an axis is removed at which
/// one of its inputs is zero, as in a sum of products. Axes besides are cut short for the test.
pub(super) fn zeros_do_not_count(
    op: &Arc<dyn Op>,
    axis: &Axis,
    infos: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
) -> bool {
    [1., -1.].into_iter().all(|sign| zeros_tested(op, axis, infos, outputs, sign) == Some(true))
}

fn zeros_tested(
    op: &Arc<dyn Op>,
    axis: &Axis,
    infos: &[Option<&ValueInfo>],
    outputs: &[ValueInfo],
    sign: f32,
) -> Option<bool> {
    let length = |&(i, at): &(usize, usize)| {
        Some(infos.get(i).copied().flatten()?.dim(at)?.known()?).filter(|&length| length > 1)
    };
    let read: Vec<(usize, usize)> =
        axis.inputs.iter().copied().filter(|at| length(at).is_some()).collect();
    let resized = |op: &Arc<dyn Op>, axis: &Axis, to: usize| {
        op.for_length(axis, to).unwrap_or_else(|| Arc::clone(op))
    };
    let mut op = Arc::clone(op);
    let axes = op.axes(infos, outputs);
    let mut tensors: Vec<Option<Tensor>> = Vec::with_capacity(infos.len());
    for (i, info) in infos.iter().enumerate() {
        let Some(info) = info else {
            tensors.push(None);
            continue;
        };
        if info.ty.dtype != DType::F32 {
            tensors.push(Some(info.constant.clone()?));
            continue;
        }
        let mut dims = info.ty.concrete_shape()?.dims().to_vec();
        for other in axes.iter() {
            let to = match other.kind {
                AxisKind::All => 2,
                AxisKind::Each => 1,
                _ => continue,
            };
            if let Some(dim) = other.in_input(i).and_then(|at| dims.get_mut(at)) {
                *dim = (*dim).min(to);
            }
        }
        let len: usize = dims.iter().product();
        let number = |at: usize| sign * (1. + ((at * 7 + i * 5) % 13) as f32 / 13.);
        tensors
            .push(Some(Tensor::from_slice(dims, &(0..len).map(number).collect::<Vec<_>>()).ok()?));
    }
    for other in axes.iter().filter(|other| other.kind == AxisKind::Each) {
        op = resized(&op, other, 1);
    }
    let (both, one) = (resized(&op, axis, 2), resized(&op, axis, 1));
    let run = |op: &Arc<dyn Op>, tensors: &[Option<Tensor>]| {
        let views: Vec<_> = tensors.iter().map(|it| it.as_ref().map(Tensor::view)).collect();
        op.run(&Context::new(1), &views).ok()
    };
    let mut without = tensors.clone();
    for &(i, at) in &read {
        let tensor = without.get_mut(i)?;
        *tensor = Some(super::cut::kept(tensor.as_ref()?, at, &[0]).ok()?);
    }
    let wanted = run(&one, &without)?;
    for &(i, at) in &read {
        let mut zeroed = tensors.clone();
        let tensor = zeroed.get_mut(i)?.as_mut()?;
        let inner: usize = tensor.shape().dims()[at + 1..].iter().product();
        let values = tensor.as_mut_slice::<f32>().ok()?.iter_mut().enumerate();
        values.filter(|(index, _)| index / inner % 2 == 1).for_each(|(_, value)| *value = 0.);
        let found = run(&both, &zeroed)?;
        if found.len() != wanted.len() || !found.iter().zip(&wanted).all(|(a, b)| close(a, b)) {
            return Some(false);
        }
    }
    Some(!read.is_empty())
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    let (Ok(found), Ok(wanted)) = (a.as_slice::<f32>(), b.as_slice::<f32>()) else { return false };
    let scale = wanted.iter().fold(1f32, |max, value| max.max(value.abs()));
    a.shape() == b.shape()
        && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= TOLERANCE * scale)
}
