//! Steps of optimisers, as simpler operators.

use crate::graph::ValueId;
use crate::onnx::node::{NodeCx, Refusal, unsupported};
use lgp_compute::ops::{Binary, BinaryKind, Cast, Unary, UnaryKind, Where};
use lgp_memory::{DType, Tensor};

/// The inputs of an optimiser: the learning rate, the count of updates, the tensors, as many
/// gradients, and as many of each state.
struct Step<'a, 'b> {
    cx: &'a mut NodeCx<'b>,
    tensors: usize,
    norm: f32,
}

impl<'a, 'b> Step<'a, 'b> {
    /// `groups` is the number of inputs per tensor: the tensor, its gradient and its states.
    fn new(cx: &'a mut NodeCx<'b>, groups: usize) -> Result<Self, Refusal> {
        let norm = cx.float("norm_coefficient")?.unwrap_or(0.);
        let given = cx.inputs.len().saturating_sub(2);
        if given == 0 || !given.is_multiple_of(groups) {
            return Err(format!("{given} tensors given, expected a multiple of {groups}"));
        }
        Ok(Self { cx, tensors: given / groups, norm })
    }

    fn input(&self, group: usize, tensor: usize) -> Option<ValueId> {
        self.cx.input(2 + group * self.tensors + tensor)
    }

    /// The dtype of an input; f32 where the model does not tell.
    fn dtype(&self, input: Option<ValueId>) -> DType {
        input.and_then(|id| self.cx.graph.info(id)).map_or(DType::F32, |info| info.ty.dtype)
    }

    fn binary(
        &mut self,
        kind: BinaryKind,
        a: Option<ValueId>,
        b: Option<ValueId>,
    ) -> Option<ValueId> {
        Some(self.cx.emit(Binary::new(kind), vec![a, b]))
    }

    fn linear(&mut self, x: Option<ValueId>, scale: f32, shift: f32) -> Option<ValueId> {
        Some(self.cx.emit(Unary::new(UnaryKind::Linear { scale, shift }), vec![x]))
    }

    fn sqrt(&mut self, x: Option<ValueId>) -> Option<ValueId> {
        Some(self.cx.emit(Unary::new(UnaryKind::Sqrt), vec![x]))
    }

    fn cast(&mut self, x: Option<ValueId>, to: DType) -> Option<ValueId> {
        Some(self.cx.emit(Cast { to }, vec![x]))
    }

    fn scalar(&mut self, value: f32, to: DType) -> Result<Option<ValueId>, Refusal> {
        let value = self.cx.emit_float(value)?;
        Ok(self.cast(Some(value), to))
    }

    /// `yes` from the second update on, and `no` at the first.
    fn later(
        &mut self,
        yes: Option<ValueId>,
        no: Option<ValueId>,
    ) -> Result<Option<ValueId>, Refusal> {
        let zero = Tensor::scalar(0i64).map_err(|e| e.to_string())?;
        let zero = self.cx.emit_constant(zero);
        let later = self.binary(BinaryKind::Greater, self.cx.input(1), Some(zero));
        Ok(Some(self.cx.emit(Where, vec![later, yes, no])))
    }

    /// The gradient, plus that of the regularisation.
    fn gradient(&mut self, tensor: usize) -> Option<ValueId> {
        let gradient = self.input(1, tensor);
        if self.norm == 0. {
            return gradient;
        }
        let pull = self.linear(self.input(0, tensor), self.norm, 0.);
        self.binary(BinaryKind::Add, pull, gradient)
    }

    /// `a · x + b · y`.
    fn blend(&mut self, a: f32, x: Option<ValueId>, b: f32, y: Option<ValueId>) -> Option<ValueId> {
        let (x, y) = (self.linear(x, a, 0.), self.linear(y, b, 0.));
        self.binary(BinaryKind::Add, x, y)
    }

    /// Makes a value the output of a group.
    fn output(&mut self, group: usize, tensor: usize, value: Option<ValueId>) {
        let output = self.cx.output(group * self.tensors + tensor);
        let same = Unary::new(UnaryKind::Linear { scale: 1., shift: 0. });
        self.cx.emit_into(same, vec![value], vec![output]);
    }
}

pub(crate) fn adagrad(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let decay = cx.float("decay_factor")?.unwrap_or(0.);
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-6);
    let mut step = Step::new(cx, 3)?;
    let rate = step.cx.input(0);
    let to = step.dtype(rate);
    let count = step.cast(step.cx.input(1), to);
    let slower = step.linear(count, decay, 1.);
    let rate = step.binary(BinaryKind::Div, rate, slower);
    for i in 0..step.tensors {
        let x = step.input(0, i);
        let gradient = step.gradient(i);
        let square = step.binary(BinaryKind::Mul, gradient, gradient);
        let squares = step.binary(BinaryKind::Add, step.input(2, i), square);
        let root = step.sqrt(squares);
        let root = step.linear(root, 1., epsilon);
        let rate = step.cast(rate, step.dtype(x));
        let change = step.binary(BinaryKind::Mul, rate, gradient);
        let change = step.binary(BinaryKind::Div, change, root);
        let new = step.binary(BinaryKind::Sub, x, change);
        step.output(0, i, new);
        step.output(1, i, squares);
    }
    Ok(())
}

pub(crate) fn adam(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let alpha = cx.float("alpha")?.unwrap_or(0.9);
    let beta = cx.float("beta")?.unwrap_or(0.999);
    let epsilon = cx.float("epsilon")?.unwrap_or(1e-6);
    let post = cx.float("norm_coefficient_post")?.unwrap_or(0.);
    let mut step = Step::new(cx, 4)?;
    let rate = step.cx.input(0);
    let to = step.dtype(rate);
    let rest = |step: &mut Step<'_, '_>, base: f32| {
        let base = step.scalar(base, to)?;
        let power = step.binary(BinaryKind::Pow, base, step.cx.input(1));
        Ok::<_, Refusal>(step.linear(power, -1., 1.))
    };
    let (beta_rest, alpha_rest) = (rest(&mut step, beta)?, rest(&mut step, alpha)?);
    let root = step.sqrt(beta_rest);
    let adjusted = step.binary(BinaryKind::Mul, rate, root);
    let adjusted = step.binary(BinaryKind::Div, adjusted, alpha_rest);
    let rate = step.later(adjusted, rate)?;
    for i in 0..step.tensors {
        let x = step.input(0, i);
        let gradient = step.gradient(i);
        let momentum = step.blend(alpha, step.input(2, i), 1. - alpha, gradient);
        let square = step.binary(BinaryKind::Mul, gradient, gradient);
        let squares = step.blend(beta, step.input(3, i), 1. - beta, square);
        let root = step.sqrt(squares);
        let root = step.linear(root, 1., epsilon);
        let rate = step.cast(rate, step.dtype(x));
        let change = step.binary(BinaryKind::Mul, rate, momentum);
        let change = step.binary(BinaryKind::Div, change, root);
        let new = step.binary(BinaryKind::Sub, x, change);
        let new = step.linear(new, 1. - post, 0.);
        step.output(0, i, new);
        step.output(1, i, momentum);
        step.output(2, i, squares);
    }
    Ok(())
}

pub(crate) fn momentum(cx: &mut NodeCx<'_>) -> Result<(), Refusal> {
    let missing = |key: &str| format!("attribute '{key}' is missing");
    let alpha = cx.float("alpha")?.ok_or_else(|| missing("alpha"))?;
    let beta = cx.float("beta")?.ok_or_else(|| missing("beta"))?;
    let nesterov = match cx.text("mode")?.unwrap_or_default() {
        "standard" => false,
        "nesterov" => true,
        other => return Err(unsupported("mode", other, &["standard", "nesterov"])),
    };
    let mut step = Step::new(cx, 3)?;
    for i in 0..step.tensors {
        let x = step.input(0, i);
        let to = step.dtype(x);
        let (first, later) = (step.scalar(1., to)?, step.scalar(beta, to)?);
        let beta = step.later(later, first)?;
        let gradient = step.gradient(i);
        let fresh = step.binary(BinaryKind::Mul, beta, gradient);
        let old = step.linear(step.input(2, i), alpha, 0.);
        let momentum = step.binary(BinaryKind::Add, old, fresh);
        let direction = if nesterov {
            let ahead = step.linear(momentum, alpha, 0.);
            step.binary(BinaryKind::Add, gradient, ahead)
        } else {
            momentum
        };
        let rate = step.cast(step.cx.input(0), to);
        let change = step.binary(BinaryKind::Mul, rate, direction);
        let new = step.binary(BinaryKind::Sub, x, change);
        step.output(0, i, new);
        step.output(1, i, momentum);
    }
    Ok(())
}
