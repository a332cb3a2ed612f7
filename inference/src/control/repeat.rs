//! The operator that runs a graph repeatedly on the graph's own results.

use super::{Body, exact, present, present_infos, stack_of_none, stacked, truth};
use lgp_compute::{Context, Error, Op, Result, ValueInfo};
use lgp_memory::{DType, Datum, Dim, Shape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// ONNX's `Loop`. Inputs: the largest number of iterations, the first condition, the values that an
/// iteration hands to the next, and the values that the graph takes from around it.
#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) body: Body,
    /// How many values an iteration hands to the next.
    pub(crate) carried: usize,
}

/// If graphs nest deeper than this in a loop, the shapes of the values handed on stay unknown: each
/// loop around another doubles the time to infer them.
const DEPTH_MAX: usize = 6;

impl Loop {
    /// How many values each iteration adds to a list: the graph's outputs besides the condition and
    /// the values handed on.
    fn scanned(&self) -> Result<usize> {
        let given = (self.body.own, self.body.outputs());
        match given.1.checked_sub(1 + self.carried) {
            Some(scanned) if given.0 == 2 + self.carried => Ok(scanned),
            _ => Err(Error::invalid(format!(
                "its graph takes {} values and returns {}, expected {} and at least {}",
                given.0,
                given.1,
                2 + self.carried,
                1 + self.carried
            ))),
        }
    }

    /// The types of the graph's outputs; a shape that changes between iterations is unknown.
    fn infer_body(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let scalar = |dtype| ValueInfo::of(TensorType::concrete(dtype, &Shape::default()));
        let rest = present_infos(inputs.get(2..).unwrap_or_default())?;
        let mut infos = vec![scalar(DType::I64), scalar(DType::Bool)];
        infos.extend(rest);
        if infos.len() < 2 + self.carried {
            let (given, expected) = (infos.len() - 2, self.carried);
            let message = format!("{given} values to hand on are given, expected {expected}");
            return Err(Error::invalid(message));
        }
        let carried = 2..2 + self.carried;
        let known = infos[carried.clone()].iter().any(|info| info.ty.shape.is_some());
        if known && self.body.depth <= DEPTH_MAX {
            let outputs = self.body.infer(infos.clone());
            let stays = |(a, b): (&ValueInfo, &ValueInfo)| a.ty.shape == b.ty.shape;
            if let Ok(outputs) = outputs
                && outputs[1..].iter().zip(&infos[carried.clone()]).all(stays)
            {
                return Ok(outputs);
            }
        }
        for info in &mut infos[carried] {
            info.ty.shape = None;
        }
        self.body.infer(infos)
    }
}

impl Op for Loop {
    fn name(&self) -> &'static str {
        "Loop"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        // The number of iterations and the condition are optional; the graph checks its other
        // inputs.
        0..=usize::MAX
    }

    fn held_bytes(&self) -> usize {
        self.body.stored_bytes()
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        self.scanned()?;
        let mut outputs = self.infer_body(inputs)?.split_off(1);
        for scanned in outputs.iter_mut().skip(self.carried) {
            if let Some(shape) = &mut scanned.ty.shape {
                shape.0.insert(0, Dim::Unknown);
            }
        }
        // Without any iteration, the first values are the results.
        for (output, first) in outputs.iter_mut().zip(inputs.iter().skip(2).flatten()) {
            if output.ty.shape != first.ty.shape {
                output.ty.shape = None;
            }
            if output.kind != first.kind {
                output.kind = first.kind;
            }
        }
        Ok(outputs.into_iter().map(|o| ValueInfo::holding(o.kind, o.ty)).collect())
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
        let scanned = self.scanned()?;
        let mut inputs = inputs.into_iter();
        let most = inputs.next().flatten().map(|m| count(&m)).transpose()?;
        let mut goes_on = inputs.next().flatten().map_or(Ok(true), |c| truth(&c))?;
        let mut carried = present(inputs)?;
        if carried.len() < self.carried {
            return Err(Error::invalid("values to hand on are missing"));
        }
        let around = carried.split_off(self.carried);
        let mut lists: Vec<Vec<Tensor>> = vec![Vec::new(); scanned];
        let mut iteration = 0i64;
        while goes_on && most.is_none_or(|most| iteration < most) {
            let mut given = vec![Tensor::scalar(iteration)?.into(), Tensor::scalar(true)?.into()];
            given.append(&mut carried);
            given.extend(around.iter().cloned());
            let mut outputs = self.body.run(ctx, given)?.into_iter();
            goes_on = outputs.next().map_or(Ok(false), |c| truth(&c))?;
            carried.extend(outputs.by_ref().take(self.carried));
            for (list, value) in lists.iter_mut().zip(outputs) {
                match value {
                    Datum::Tensor(tensor) => list.push(tensor),
                    other => {
                        let message =
                            format!("its graph scans {}, expected a tensor", other.kind());
                        return Err(Error::invalid(message));
                    }
                }
            }
            iteration = iteration.saturating_add(1);
        }
        for (k, list) in lists.iter().enumerate() {
            let tensor = if list.is_empty() {
                self.empty(1 + self.carried + k, &carried, &around)?
            } else {
                stacked(ctx, list, 0)?
            };
            carried.push(tensor.into());
        }
        Ok(carried)
    }
}

impl Loop {
    /// The list of no iterations: it has the dtype of the elements, and their dimensions where
    /// known.
    fn empty(&self, output: usize, carried: &[Datum], around: &[Datum]) -> Result<Tensor> {
        let infos: Vec<ValueInfo> = carried.iter().chain(around).map(exact).collect();
        let inputs = [None, None].into_iter().chain(infos.iter().map(Some)).collect::<Vec<_>>();
        stack_of_none(self.infer_body(&inputs)?.swap_remove(output), 0)
    }
}

/// The trip count: a tensor of one i64.
fn count(value: &Datum) -> Result<i64> {
    let wrong = || {
        let message = format!("the trip count is {}, expected one i64", value.kind());
        Error::invalid(message)
    };
    match value.tensor().ok_or_else(wrong)?.as_slice::<i64>() {
        Ok([count]) => Ok(*count),
        _ => Err(wrong()),
    }
}
