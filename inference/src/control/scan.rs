//! The operator that runs a graph on each slice of tensors.

use super::{Body, exact, present, present_infos, stack_of_none, stacked};
use lgp_compute::{Context, Error, Op, Result, ValueInfo, launch, ops};
use lgp_memory::{Datum, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// ONNX's `Scan`. Inputs: the states, the tensors that are scanned, and the values that the graph
/// takes from around it.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) body: Body,
    /// How many tensors are scanned.
    pub(crate) scanned: usize,
    /// The axis along which each is scanned.
    pub(crate) input_axes: Vec<i64>,
    /// Whether each is scanned from its end.
    pub(crate) input_backward: Vec<bool>,
    /// The axis along which each output's slices are stacked.
    pub(crate) output_axes: Vec<i64>,
    /// Whether each output's slices are stacked from the end.
    pub(crate) output_backward: Vec<bool>,
    /// Opset 8: all states and tensors have a batch axis in front, and the first input says how
    /// long each sequence of the batch is.
    pub(crate) batched: bool,
}

impl Scan {
    fn states(&self) -> Result<usize> {
        self.body.own.checked_sub(self.scanned).filter(|&n| n <= self.body.outputs()).ok_or_else(
            || {
                let (own, scanned) = (self.body.own, self.scanned);
                let message = format!("its graph takes {own} values, expected at least {scanned}");
                Error::invalid(message)
            },
        )
    }

    /// The axis of scanned input `k` of a tensor of rank `rank`.
    fn axis(axes: &[i64], k: usize, rank: usize) -> Result<usize> {
        let axis = axes.get(k).copied().unwrap_or(0);
        let rank_signed = i64::try_from(rank).unwrap_or(i64::MAX);
        let from_front = if axis < 0 { axis + rank_signed } else { axis };
        usize::try_from(from_front).ok().filter(|&a| a < rank).ok_or_else(|| {
            Error::invalid(format!("axis {axis} is outside a tensor of rank {rank}"))
        })
    }

    /// Scans one sequence; answers the last states and the stacked slices.
    fn scan(
        &self,
        ctx: &Context,
        mut states: Vec<Datum>,
        scanned: &[Tensor],
        length: Option<usize>,
        around: &[Datum],
    ) -> Result<Vec<Datum>> {
        let count = states.len();
        let mut axes = Vec::with_capacity(scanned.len());
        let mut steps = None;
        for (k, tensor) in scanned.iter().enumerate() {
            let axis = Self::axis(&self.input_axes, k, tensor.shape().rank())?;
            let size = tensor.shape()[axis];
            if steps.is_some_and(|steps| steps != size) {
                let message = format!("input {k} has {size} slices, others {steps:?}");
                return Err(Error::invalid(message));
            }
            steps = Some(size);
            axes.push(axis);
        }
        let steps = length.unwrap_or(usize::MAX).min(steps.unwrap_or(0));
        let mut lists: Vec<Vec<Tensor>> = vec![Vec::new(); self.body.outputs() - count];
        for step in 0..steps {
            let mut given = std::mem::take(&mut states);
            for (k, (tensor, &axis)) in scanned.iter().zip(&axes).enumerate() {
                let backward = self.input_backward.get(k).copied().unwrap_or(false);
                let at = if backward { steps - 1 - step } else { step };
                given.push(slice(ctx, tensor, axis, at)?.into());
            }
            given.extend(around.iter().cloned());
            let mut outputs = self.body.run(ctx, given)?.into_iter();
            states.extend(outputs.by_ref().take(count));
            for (list, value) in lists.iter_mut().zip(outputs) {
                let Datum::Tensor(tensor) = value else {
                    let message = format!("its graph returns {}, expected a tensor", value.kind());
                    return Err(Error::invalid(message));
                };
                list.push(tensor);
            }
        }
        for (k, mut list) in lists.into_iter().enumerate() {
            if list.is_empty() {
                states.push(self.no_slices(count + k, &states, scanned, around)?.into());
                continue;
            }
            if self.output_backward.get(k).copied().unwrap_or(false) {
                list.reverse();
            }
            let axis = Self::axis(&self.output_axes, k, list[0].shape().rank() + 1)?;
            let axis = i64::try_from(axis).unwrap_or(0);
            states.push(stacked(ctx, &list, axis)?.into());
        }
        Ok(states)
    }

    /// An output without any slice.
    fn no_slices(
        &self,
        output: usize,
        states: &[Datum],
        scanned: &[Tensor],
        around: &[Datum],
    ) -> Result<Tensor> {
        let count = self.states()?;
        let mut infos: Vec<ValueInfo> = states[..count].iter().map(exact).collect();
        for (k, tensor) in scanned.iter().enumerate() {
            let mut dims = tensor.shape().to_vec();
            dims.remove(Self::axis(&self.input_axes, k, dims.len())?);
            infos.push(ValueInfo::of(TensorType::concrete(tensor.dtype(), &dims.into())));
        }
        infos.extend(around.iter().map(exact));
        let info = self.body.infer(infos)?.swap_remove(output);
        let rank = info.ty.shape.as_ref().map_or(0, SymShape::rank);
        let axis = Self::axis(&self.output_axes, output - count, rank + 1)?;
        stack_of_none(info, axis)
    }

    /// Opset 8: scans one sequence after the other, and stacks the results along the batch axis.
    fn scan_batch(
        &self,
        ctx: &Context,
        lengths: Option<&Datum>,
        states: &[Datum],
        scanned: &[Tensor],
        around: &[Datum],
    ) -> Result<Vec<Datum>> {
        let tensors = states.iter().map(tensor_of).collect::<Result<Vec<&Tensor>>>()?;
        let mut batch = None;
        for tensor in tensors.iter().copied().chain(scanned) {
            let size = tensor.shape().first().copied().unwrap_or(0);
            if batch.is_some_and(|batch| batch != size) || size == 0 {
                return Err(Error::invalid(format!("batches of {batch:?} and {size}")));
            }
            batch = Some(size);
        }
        let lengths = lengths.map(|l| tensor_of(l)?.as_slice::<i64>().map_err(Error::from));
        let lengths = lengths.transpose()?;
        let longest = scanned.first().and_then(|t| t.shape().get(1)).copied().unwrap_or(0);
        let mut columns: Vec<Vec<Tensor>> = Vec::new();
        for b in 0..batch.unwrap_or(0) {
            let cut = |t: &Tensor| slice(ctx, t, 0, b);
            let own = tensors.iter().map(|t| Ok(cut(t)?.into())).collect::<Result<Vec<Datum>>>()?;
            let parts = scanned.iter().map(cut).collect::<Result<Vec<Tensor>>>()?;
            let length = match lengths.and_then(|l| l.get(b)) {
                None => None,
                Some(&n) => {
                    Some(usize::try_from(n).ok().filter(|&n| n <= longest).ok_or_else(|| {
                        Error::invalid(format!("sequence length {n} exceeds {longest}"))
                    })?)
                }
            };
            let out = self.scan(ctx, own, &parts, length, around)?;
            columns.resize_with(out.len(), Vec::new);
            for (k, (column, value)) in columns.iter_mut().zip(out).enumerate() {
                let tensor = tensor_of(&value)?;
                // Zeros follow the slices of a shorter sequence.
                let tensor = if k < states.len() {
                    tensor.clone()
                } else {
                    lengthened(ctx, tensor, longest)?
                };
                column.push(tensor);
            }
        }
        columns.iter().map(|column| Ok(stacked(ctx, column, 0)?.into())).collect()
    }
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        "Scan"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        usize::from(self.batched) + self.body.own..=usize::MAX
    }

    fn held_bytes(&self) -> usize {
        self.body.stored_bytes()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let states = self.states()?;
        let skip = usize::from(self.batched);
        let mut infos = present_infos(inputs.get(skip..).unwrap_or_default())?;
        for (k, info) in infos[..self.body.own].iter_mut().enumerate() {
            if let Some(shape) = &mut info.ty.shape {
                if self.batched && shape.rank() > 0 {
                    shape.0.remove(0);
                }
                if k >= states {
                    let axis = Self::axis(&self.input_axes, k - states, shape.rank())?;
                    shape.0.remove(axis);
                }
            }
        }
        let outputs = self.body.infer(infos)?;
        let outputs = outputs.into_iter().enumerate().map(|(k, mut info)| {
            if let Some(shape) = &mut info.ty.shape {
                if k >= states {
                    let axis = Self::axis(&self.output_axes, k - states, shape.rank() + 1)?;
                    shape.0.insert(axis, Dim::Unknown);
                }
                if self.batched {
                    shape.0.insert(0, Dim::Unknown);
                }
            }
            Ok(ValueInfo::of(info.ty))
        });
        outputs.collect()
    }

    // Operators inside may draw random numbers.
    fn is_deterministic(&self) -> bool {
        false
    }

    fn compute(&self, _: &Context, _: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        Err(Error::unsupported("tensors alone"))
    }

    fn takes_data(&self) -> bool {
        true
    }

    fn compute_data(&self, ctx: &Context, inputs: Vec<Option<Datum>>) -> Result<Vec<Datum>> {
        let count = self.states()?;
        let mut inputs = inputs.into_iter();
        let lengths = if self.batched { inputs.next().flatten() } else { None };
        let mut states = present(inputs)?;
        let around = states.split_off(self.body.own);
        let scanned = states.split_off(count);
        let scanned =
            scanned.iter().map(|d| tensor_of(d).cloned()).collect::<Result<Vec<Tensor>>>()?;
        if self.batched {
            self.scan_batch(ctx, lengths.as_ref(), &states, &scanned, &around)
        } else {
            self.scan(ctx, states, &scanned, None, &around)
        }
    }
}

fn tensor_of(value: &Datum) -> Result<&Tensor> {
    let wrong = || Error::invalid(format!("{} is given, expected a tensor", value.kind()));
    value.tensor().ok_or_else(wrong)
}

/// Slice `at` of a tensor, without the axis along which it is cut.
fn slice(ctx: &Context, x: &Tensor, axis: usize, at: usize) -> Result<Tensor> {
    let signed = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let index = Tensor::scalar(signed(at))?;
    let gather = ops::Gather { axis: signed(axis) };
    launch(&gather, ctx, &[Some(x.view()), Some(index.view())])?
        .pop()
        .ok_or_else(|| Error::invalid("there is no slice"))
}

/// The tensor, filled with zeros up to `length` along its first axis.
fn lengthened(ctx: &Context, x: &Tensor, length: usize) -> Result<Tensor> {
    let mut dims = x.shape().to_vec();
    let missing = length.saturating_sub(dims.first().copied().unwrap_or(0));
    if missing == 0 {
        return Ok(x.clone());
    }
    dims[0] = missing;
    let zeros = Tensor::zeros(x.dtype(), dims)?;
    launch(&ops::Concat { axis: 0 }, ctx, &[Some(x.view()), Some(zeros.view())])?
        .pop()
        .ok_or_else(|| Error::invalid("there is no slice"))
}
