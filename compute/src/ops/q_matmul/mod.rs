//! Products of bytes, or of floats that are quantised on the way, with packed 8-bit weights.

mod cpu;
#[cfg(test)]
mod tests;

use crate::args::{arity, output, required, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::qgemm::{LARGE, PANEL, Packed, ToBytes, ToFloats};
use crate::quantized::{Quant, centre, widened};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::sync::Arc;

/// What a [`QMatMul`] reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QInput {
    /// Bytes.
    Bytes(Quant),
    /// f32, quantised to u8 with a scale that follows from all of its values, as
    /// `DynamicQuantizeLinear` does.
    Floats,
}

/// What a [`QMatMul`] makes of its sums.
#[derive(Debug, Clone, PartialEq)]
pub enum QOutput {
    /// Quantised again; the bias has the scale of the sums.
    Bytes {
        /// How.
        quant: Quant,
        /// One for each column.
        bias: Option<Vec<i32>>,
    },
    /// f32.
    Floats {
        /// One for each column.
        bias: Option<Vec<f32>>,
    },
}

/// What a [`QMatMul`] is made of.
#[derive(Debug, Clone)]
pub struct QMatMulParts<'a> {
    /// What comes in.
    pub x: QInput,
    /// The weight, i8 or u8, `[k, n]`, or `[n, k]` where it is transposed.
    pub weight: &'a TensorView<'a>,
    /// Whether the weight lies column by column.
    pub transposed: bool,
    /// Scales of the weight: one, or one for each column.
    pub weight_scale: &'a [f32],
    /// The weight's zero points, as many as scales; i8's must be 0 and u8's 128.
    pub weight_zero: &'a [i32],
    /// What goes out.
    pub y: QOutput,
    /// Limits of the numbers that the output stands for.
    pub limits: (f32, f32),
}

/// A product `[…, k]` by `[k, n]`.
///
/// The result is what back to floats, `MatMul`, a bias, a clip and quantisation would give, but
/// that the sums are exact.
#[derive(Debug, Clone)]
pub struct QMatMul {
    k: usize,
    x: QInput,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    weights: Packed,
    /// Scales of the columns, filled up to whole panels.
    scale: Vec<f32>,
    finish: Finish,
}

#[derive(Debug)]
enum Finish {
    Bytes { seeds: Vec<i32>, epilogue: ToBytes, dtype: DType },
    Floats { bias: Vec<f32>, limits: (f32, f32) },
}

const NAME: &str = "QMatMul";

impl QMatMul {
    /// Packs the weight.
    ///
    /// # Errors
    /// Parts that do not fit, or for which there is no kernel.
    pub fn new(parts: QMatMulParts<'_>) -> Result<Self> {
        let (k, n) = match parts.weight.shape()[..] {
            [n, k] if parts.transposed => (k, n),
            [k, n] => (k, n),
            _ => return Err(Error::unsupported(NAME, "a weight that is no matrix")),
        };
        let scales = parts.weight_scale;
        let bias_fits = match &parts.y {
            QOutput::Bytes { bias, .. } => bias.as_ref().is_none_or(|b| b.len() == n),
            QOutput::Floats { bias } => bias.as_ref().is_none_or(|b| b.len() == n),
        };
        let fits = (scales.len() == 1 || scales.len() == n)
            && scales.len() == parts.weight_zero.len()
            && bias_fits;
        if !fits || k == 0 || n == 0 {
            let message = format!("{} scales for a weight of {k}x{n}", scales.len());
            return Err(Error::invalid(NAME, message));
        }
        let middle = centre(NAME, parts.weight.dtype(), parts.weight_zero)?;
        let weight: Vec<i8> = widened(NAME, parts.weight)?
            .into_iter()
            .map(|w| i8::try_from(w - middle).unwrap_or(0))
            .collect();
        let weights = Packed::new(n, 1, k, |column, _, i| {
            if parts.transposed { weight[column * k + i] } else { weight[i * n + column] }
        })?;
        let whole = n.div_ceil(PANEL) * PANEL;
        let mut scale = if scales.len() == 1 { vec![scales[0]; n] } else { scales.to_vec() };
        scale.resize(whole, 0.);
        let finish = match parts.y {
            QOutput::Floats { bias } => {
                let mut bias = bias.unwrap_or_default();
                bias.resize(whole, 0.);
                Finish::Floats { bias, limits: parts.limits }
            }
            QOutput::Bytes { quant, bias } => {
                let QInput::Bytes(x) = parts.x else {
                    return Err(Error::unsupported(NAME, "floats to bytes"));
                };
                quant.check(NAME)?;
                let epilogue = ToBytes {
                    scale: scale.iter().map(|w| x.scale * w / quant.scale).collect(),
                    zero: quant.unsigned_zero(),
                    low: quant.unsigned(parts.limits.0),
                    high: quant.unsigned(parts.limits.1),
                    flip: quant.flip(),
                };
                let seeds = weights.seeds(bias.as_deref(), x.unsigned_zero());
                Finish::Bytes { seeds, epilogue, dtype: quant.dtype }
            }
        };
        if let QInput::Bytes(x) = parts.x {
            x.check(NAME)?;
        }
        Ok(Self { k, x: parts.x, inner: Arc::new(Inner { weights, scale, finish }) })
    }

    /// The epilogue for an input's scale, and where the sums start for its zero point.
    fn floats(&self, scale: f32, zero: i32) -> Option<(Vec<i32>, ToFloats)> {
        let Finish::Floats { bias, limits } = &self.inner.finish else { return None };
        let epilogue = ToFloats {
            scale: self.inner.scale.iter().map(|w| scale * w).collect(),
            bias: bias.clone(),
            low: limits.0,
            high: limits.1,
        };
        Some((self.inner.weights.seeds(None, zero), epilogue))
    }
}

const _: () = assert!(LARGE < 4_194_304., "what is rounded has at most 22 bits");

impl Op for QMatMul {
    fn name(&self) -> &'static str {
        NAME
    }

    fn held_bytes(&self) -> usize {
        self.inner.weights.bytes() + size_of_val(&*self.inner.scale)
    }

    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        arity(NAME, inputs, 1, 1)?;
        let x = required(NAME, inputs, 0)?;
        let expected = match self.x {
            QInput::Bytes(quant) => quant.dtype,
            QInput::Floats => DType::F32,
        };
        same_dtype(NAME, "the input", expected, x.ty.dtype)?;
        let shape = match x.sym_shape() {
            None => None,
            Some([batch @ .., k]) => {
                dims::expect(NAME, "the inner dimension", &Dim::Known(self.k), k)?;
                let mut out = batch.to_vec();
                out.push(Dim::Known(self.inner.weights.n));
                Some(out)
            }
            Some([]) => return Err(Error::invalid(NAME, "the input is a scalar")),
        };
        let dtype = match &self.inner.finish {
            Finish::Bytes { dtype, .. } => *dtype,
            Finish::Floats { .. } => DType::F32,
        };
        Ok(output(dtype, shape))
    }

    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
