//! Batch normalisation at inference: a scale and a shift per channel.

mod cpu;
mod device;

use crate::Axes;
use crate::args::{float, output, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::ops::{Binary, BinaryKind};
use crate::reorder::Reordered;
use crate::rewrite::Affine;
use crate::rewrite::{Operand, Step};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `BatchNormalization` with running statistics.
///
/// Inputs: x `[n, c, …]`, scale, bias, mean, variance, each `[c]`. One output of x's type.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchNorm {
    /// Added to the variance before the square root.
    pub epsilon: f32,
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}

impl BatchNorm {
    /// The factor and the shift of each channel, where all parameters are known.
    fn folded(&self, inputs: &[Option<&ValueInfo>]) -> Option<[Vec<f64>; 2]> {
        let part =
            |i: usize| inputs.get(i).copied().flatten()?.constant.as_ref()?.as_slice::<f32>().ok();
        let (scale, shift, mean, variance) = (part(1)?, part(2)?, part(3)?, part(4)?);
        if [shift, mean, variance].iter().any(|part| part.len() != scale.len()) {
            return None;
        }
        // In double precision, so that folding costs one rounding.
        let factors: Vec<f64> = scale
            .iter()
            .zip(variance)
            .map(|(&s, &v)| f64::from(s) / (f64::from(v) + f64::from(self.epsilon)).sqrt())
            .collect();
        let moved = shift.iter().zip(mean).zip(&factors);
        let shifts = moved.map(|((&s, &m), f)| f64::from(s) - f64::from(m) * f).collect();
        Some([factors, shifts])
    }
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        "BatchNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        5..=5
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        float(x.ty.dtype)?;
        let channels = channels(x)?;
        for (i, what) in [(1, "scale"), (2, "bias"), (3, "mean"), (4, "variance")] {
            entries(what, x, required(inputs, i)?, &channels)?;
        }
        Ok(output(x.ty.dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let channel = (0..5).map(|i| (i, usize::from(i == 0)));
        Axes::each_but(&[1], inputs, outputs.len()).each(channel, [(0, 1)])
    }

    fn launches(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn reordered<'a>(
        &'a self,
        order: &'a [usize],
        inputs: &[Option<&'a ValueInfo>],
        outputs: &[ValueInfo],
    ) -> Option<Reordered<'a>> {
        let x = inputs.first().copied().flatten()?;
        let channel = order.iter().position(|&axis| axis == 1)?;
        let fits = x.ty.dtype == DType::F32 && x.rank() == Some(order.len()) && outputs.len() == 1;
        let [factors, shifts] = self.folded(inputs).filter(|_| fits)?;
        let mut dims = vec![1; order.len() - channel];
        dims[0] = factors.len();
        let step = move |kind, x, values: &[f64]| -> Result<Step> {
            let values: Vec<f32> = values.iter().map(|v| *v as f32).collect();
            let constant = Operand::Constant(Tensor::from_slice(dims.clone(), &values)?);
            Ok(Step::new(Binary::new(kind), vec![x, constant]))
        };
        let reads = (0..inputs.len()).map(|i| i == 0).collect();
        Some(Reordered::new(reads, vec![true], move |_| {
            let scaled = step(BinaryKind::Mul, Operand::Input(0), &factors)?;
            Ok(vec![scaled, step(BinaryKind::Add, Operand::Made(0), &shifts)?])
        }))
    }

    fn affine(&self, inputs: &[Option<&ValueInfo>]) -> Option<Affine> {
        let from_end = inputs.first().copied().flatten()?.rank()?.checked_sub(1)?;
        let [factors, shifts] = self.folded(inputs)?;
        Some(Affine { x: 0, axis: Some(from_end), factors, shifts })
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}

/// The channels of x `[n, c, …]`.
pub(crate) fn channels(x: &ValueInfo) -> Result<Dim> {
    match x.sym_shape() {
        None => Ok(Dim::Unknown),
        Some([_, c, ..]) => Ok(c.clone()),
        Some(dims) => {
            let message = format!("the input has rank {}, expected 2 or more", dims.len());
            Err(Error::invalid(message))
        }
    }
}

/// Checks a parameter of `expected` entries: that it has x's dtype, rank 1 and this length.
pub(crate) fn entries(
    what: &str,
    x: &ValueInfo,
    parameter: &ValueInfo,
    expected: &Dim,
) -> Result<()> {
    same_dtype(what, x.ty.dtype, parameter.ty.dtype)?;
    rank(what, parameter, 1)?;
    match parameter.sym_shape() {
        Some([length]) => dims::expect(&format!("the length of {what}"), expected, length),
        _ => Ok(()),
    }
}
