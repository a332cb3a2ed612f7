//! The forms of operators that read and write quantised bytes.

use crate::axes::AxisKind;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::{Clip, DequantizeLinear, QLookup, QuantizeLinear};
use crate::quantized::Quant;
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Tensor};

/// A float tensor that an operator reads, and the bytes that it was dequantised from.
#[derive(Debug, Clone, Copy)]
pub struct Dequantized<'a> {
    /// The info of the float tensor.
    pub info: &'a ValueInfo,
    /// The scale and zero point of the bytes, where they have one scale; `None` without bytes.
    pub quant: Option<Quant>,
    /// The bytes, where they are constant.
    pub weight: Option<&'a QuantizedWeight>,
}

/// A constant of bytes with its scales.
#[derive(Debug, Clone)]
pub struct QuantizedWeight {
    /// i8 or u8.
    pub tensor: Tensor,
    /// One scale, or one for each position of the axis.
    pub scale: Vec<f32>,
    /// The zero points, as many as scales.
    pub zero: Vec<i32>,
    /// The axis of the scales, where there are several scales.
    pub axis: usize,
}

/// How an operator's float result is quantised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requantized {
    /// The bytes of the result.
    pub quant: Quant,
    /// The floats are limited to this range before they are quantised.
    pub limits: (f32, f32),
}

impl Requantized {
    /// Whether the floats are quantised without limits.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.limits == (f32::NEG_INFINITY, f32::INFINITY)
    }
}

/// An operator on bytes. In its steps [`Operand::Input`] is the bytes of an input that has bytes,
/// and the input itself otherwise.
#[derive(Debug, Clone)]
pub struct OnBytes {
    /// The steps, in order; the last one makes the bytes of the output.
    pub steps: Vec<Step>,
    /// Whether the steps read and write images whose channels come last.
    pub channels_last: bool,
    /// Whether the steps are cheap enough to run beside the operator on floats.
    pub is_cheap: bool,
}

impl OnBytes {
    /// One step: an operator on the bytes of some inputs.
    #[must_use]
    pub fn new(op: impl Op, inputs: &[usize]) -> Self {
        let inputs = inputs.iter().map(|&i| Operand::Input(i)).collect();
        Self { steps: vec![Step::new(op, inputs)], channels_last: false, is_cheap: false }
    }

    /// The same on images whose channels come last.
    #[must_use]
    pub fn channels_last(self) -> Self {
        Self { channels_last: true, ..self }
    }
}

/// The form on bytes of an operator that moves elements, or that computes each element from one
/// element of one input.
pub(crate) fn generic<O: Op + ?Sized>(
    op: &O,
    inputs: &[Option<Dequantized<'_>>],
    y: &Requantized,
) -> Option<OnBytes> {
    moved(op, inputs, y).or_else(|| looked_up(op, inputs, y))
}

/// An operator that moves elements moves bytes, where all have one scale and one zero point.
fn moved<O: Op + ?Sized>(
    op: &O,
    inputs: &[Option<Dequantized<'_>>],
    y: &Requantized,
) -> Option<OnBytes> {
    let fits = |input: &Dequantized<'_>| match input.quant {
        Some(quant) => quant == y.quant,
        // Inputs of sizes and positions are not of f32.
        None => input.info.ty.dtype != DType::F32,
    };
    let any = inputs.iter().flatten().any(|input| input.quant.is_some());
    if !(op.moves() && any && y.is_plain() && inputs.iter().flatten().all(fits)) {
        return None;
    }
    let operand = |(i, input): (usize, &Option<Dequantized<'_>>)| match input {
        Some(_) => Operand::Input(i),
        None => Operand::Absent,
    };
    let operands = inputs.iter().enumerate().map(operand).collect();
    Some(OnBytes { steps: vec![Step::same(operands)], channels_last: false, is_cheap: true })
}

/// An operator that is a function of one element becomes a table of 256 bytes.
fn looked_up<O: Op + ?Sized>(
    op: &O,
    inputs: &[Option<Dequantized<'_>>],
    y: &Requantized,
) -> Option<OnBytes> {
    let mut of = inputs.iter().enumerate().filter_map(|(i, input)| Some((i, (*input)?.quant?)));
    let (at, x) = of.next().filter(|_| of.next().is_none())?;
    let single = |input: &Dequantized<'_>| {
        input.info.constant.as_ref().is_some_and(|constant| constant.len() == 1)
    };
    let others = inputs.iter().enumerate().filter(|(i, _)| *i != at);
    if !others.filter_map(|(_, input)| input.as_ref()).all(single) {
        return None;
    }
    let infos: Vec<Option<&ValueInfo>> =
        inputs.iter().map(|input| input.as_ref().map(|input| input.info)).collect();
    let outputs = op.infer(&infos).ok()?;
    let rank = infos[at]?.rank()?;
    let axes = op.axes(&infos, &outputs);
    let is_own = |axis: usize| {
        axes.of_output(0, axis)
            .is_some_and(|it| it.kind == AxisKind::Each && it.in_input(at) == Some(axis))
    };
    if outputs.len() != 1 || outputs[0].rank() != Some(rank) || !(0..rank).all(is_own) {
        return None;
    }
    let function = |floats: &Tensor| {
        let views: Vec<_> = inputs
            .iter()
            .enumerate()
            .map(|(i, input)| match input {
                _ if i == at => Some(floats.view()),
                Some(input) => input.info.constant.as_ref().map(Tensor::view),
                None => None,
            })
            .collect();
        op.run(&Context::new(1), &views).ok()?.into_iter().next()
    };
    let steps = vec![Step::new(table(x, function, y)?, vec![Operand::Input(at)])];
    Some(OnBytes { steps, channels_last: false, is_cheap: true })
}

/// The table that requantises bytes to another scale and zero point.
#[must_use]
pub fn requantized(x: Quant, y: &Requantized) -> Option<QLookup> {
    table(x, |floats| Some(floats.clone()), y)
}

/// The table that dequantises a byte, applies a function and limits, and quantises the result.
fn table(
    x: Quant,
    function: impl FnOnce(&Tensor) -> Option<Tensor>,
    y: &Requantized,
) -> Option<QLookup> {
    let patterns: Vec<u8> = (0..=u8::MAX).collect();
    let bytes = Tensor::from_bytes(x.dtype, [256], &patterns).ok()?;
    let scale = |q: Quant| Tensor::scalar(q.scale).ok();
    let zero = |q: Quant| match q.dtype {
        DType::I8 => Tensor::scalar(i8::try_from(q.zero).ok()?).ok(),
        _ => Tensor::scalar(u8::try_from(q.zero).ok()?).ok(),
    };
    let run = |op: &dyn Op, inputs: &[&Tensor]| {
        let views: Vec<_> = inputs.iter().map(|t| Some(t.view())).collect();
        op.run(&Context::new(1), &views).ok()?.into_iter().next()
    };
    let floats = run(&DequantizeLinear::default(), &[&bytes, &scale(x)?, &zero(x)?])?;
    let mut floats = function(&floats)?;
    if !y.is_plain() {
        floats = run(&Clip { min: Some(y.limits.0), max: Some(y.limits.1) }, &[&floats])?;
    }
    let q = y.quant;
    let out = run(&QuantizeLinear::default(), &[&floats, &scale(q)?, &zero(q)?])?;
    let table = Box::new(<[u8; 256]>::try_from(out.as_bytes()).ok()?);
    Some(QLookup { from: x.dtype, to: q.dtype, table })
}

/// A constant bias in steps of the 32-bit sums, `x_scale · scale` each. `None` where rounding a
/// bias to such steps loses more than a sixteenth of the output's scale.
pub(crate) fn bias_steps(
    bias: &Tensor,
    x_scale: f32,
    scales: &[f32],
    y_scale: f32,
) -> Option<Vec<i32>> {
    let bias = bias.as_slice::<f32>().ok()?;
    let mut out = Vec::with_capacity(bias.len());
    for (i, bias) in bias.iter().enumerate() {
        let scale = if scales.len() == 1 { scales[0] } else { *scales.get(i)? };
        let step = f64::from(x_scale) * f64::from(scale);
        let steps = (f64::from(*bias) / step).round_ties_even();
        let off = (steps * step - f64::from(*bias)).abs();
        if steps.is_nan() || steps.abs() > f64::from(1 << 30) || off > f64::from(y_scale) / 16. {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "checked just before")]
        out.push(steps as i32);
    }
    Some(out)
}

/// A weight in i8 with a scale for each position of an axis, rounded to the nearest.
///
/// # Errors
/// Out of memory; a weight that is not of f32.
pub(crate) fn quantized_along(weight: &Tensor, axis: usize) -> crate::Result<QuantizedWeight> {
    let data = weight.as_slice::<f32>()?;
    let (_, along, inner) = crate::movement::around(weight.shape(), axis);
    let position = |i: usize| i / inner.max(1) % along.max(1);
    let mut most = vec![0f32; along];
    for (i, w) in data.iter().enumerate() {
        let most = &mut most[position(i)];
        *most = most.max(w.abs());
    }
    let scale: Vec<f32> = most.iter().map(|&m| if m > 0. { m / 127. } else { 1. }).collect();
    #[allow(clippy::cast_possible_truncation, reason = "clamped to a byte")]
    let bytes: Vec<i8> = data
        .iter()
        .enumerate()
        .map(|(i, w)| (w / scale[position(i)]).round_ties_even().clamp(-127., 127.) as i8)
        .collect();
    let tensor = Tensor::from_slice(weight.shape().clone(), &bytes)?;
    let zero = vec![0; scale.len()];
    Ok(QuantizedWeight { tensor, scale, zero, axis })
}
