//! Products of bytes with packed 8-bit weights; the results are bytes or floats.

mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{optional, output, rank, required, same_dtype};
use crate::dims;
use crate::epilogue::Activation;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use crate::qgemm::{PANEL, Packed, ToBytes};
use crate::quantized::{Quant, centred};
use crate::rewrite::{Absorbed, Following};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The inputs of a [`QMatMul`], and how its sums become the output.
#[derive(Debug, Clone, PartialEq)]
pub enum QKind {
    /// From bytes to bytes. The input is x.
    Fixed {
        /// Quantisation of x.
        x: Quant,
        /// Quantisation of the output.
        y: Quant,
        /// One for each column, in the scale of the sums.
        bias: Option<Vec<i32>>,
        /// Limits of the numbers that the output stands for.
        limits: (f32, f32),
    },
    /// From u8 to f32. The inputs are the outputs of `DynamicQuantizeLinear` (x, its scale and its
    /// zero point) and a residual of the output's shape, which may be absent.
    Dynamic {
        /// One for each column.
        bias: Option<Vec<f32>>,
        /// Applied to each element at the end.
        activation: Activation,
    },
}

/// The parts of a [`QMatMul`].
#[derive(Debug, Clone)]
pub struct QMatMulParts<'a> {
    /// The weight, i8 or u8, `[k, n]`, or `[n, k]` where it is transposed.
    pub weight: &'a TensorView<'a>,
    /// Whether the weight lies column by column.
    pub transposed: bool,
    /// Scales of the weight: one for all columns, or one for each.
    pub weight_scale: &'a [f32],
    /// The weight's zero points, as many as scales; i8's must be 0 and u8's 128.
    pub weight_zero: &'a [i32],
    /// The inputs and the output.
    pub kind: QKind,
}

/// A product `[…, k]` by `[k, n]`.
///
/// The result is that of dequantisation, `MatMul` and a bias, followed by a clip and quantisation
/// ([`QKind::Fixed`]) or a residual and an activation ([`QKind::Dynamic`]), but its sums are exact.
#[derive(Debug, Clone)]
pub struct QMatMul {
    k: usize,
    weights: Arc<Packed>,
    finish: Finish,
}

#[derive(Debug, Clone)]
enum Finish {
    Bytes { x: Quant, y: DType, seeds: Arc<Vec<i32>>, epilogue: Arc<ToBytes> },
    Floats { scale: Arc<Vec<f32>>, bias: Arc<Vec<f32>>, activation: Activation },
}

const NAME: &str = "QMatMul";

impl QMatMul {
    /// Packs the weight.
    ///
    /// # Errors
    /// Parts that do not fit each other, or for which there is no kernel.
    pub fn new(parts: QMatMulParts<'_>) -> Result<Self> {
        Self::packed(parts).map_err(|error| error.of(NAME))
    }

    fn packed(parts: QMatMulParts<'_>) -> Result<Self> {
        let (k, n) = match parts.weight.shape()[..] {
            [n, k] if parts.transposed => (k, n),
            [k, n] => (k, n),
            _ => return Err(Error::unsupported("a weight that is no matrix")),
        };
        let scales = parts.weight_scale;
        let bias = match &parts.kind {
            QKind::Fixed { bias, .. } => bias.as_ref().map(Vec::len),
            QKind::Dynamic { bias, .. } => bias.as_ref().map(Vec::len),
        };
        let fits = (scales.len() == 1 || scales.len() == n)
            && scales.len() == parts.weight_zero.len()
            && bias.is_none_or(|b| b == n);
        if !fits || k == 0 || n == 0 {
            let message = format!("{} scales for a weight of {k}x{n}", scales.len());
            return Err(Error::invalid(message));
        }
        let weight = centred(parts.weight, parts.weight_zero)?;
        let strides = if parts.transposed { [k, 0, 1] } else { [1, 0, n] };
        let weights = Packed::new(n, 1, k, &weight, strides)?;
        let whole = n.div_ceil(PANEL) * PANEL;
        let mut scale = if scales.len() == 1 { vec![scales[0]; n] } else { scales.to_vec() };
        scale.resize(whole, 0.);
        let finish = match parts.kind {
            QKind::Dynamic { bias, activation } => {
                let mut bias = bias.unwrap_or_default();
                bias.resize(whole, 0.);
                Finish::Floats { scale: Arc::new(scale), bias: Arc::new(bias), activation }
            }
            QKind::Fixed { x, y, bias, limits } => {
                x.check()?;
                y.check()?;
                scale.iter_mut().for_each(|w| *w = x.scale * *w / y.scale);
                let seeds = weights.seeds(bias.as_deref(), x.unsigned_zero());
                let epilogue = Arc::new(ToBytes::new(scale, y, limits)?);
                Finish::Bytes { x, y: y.dtype, seeds: Arc::new(seeds), epilogue }
            }
        };
        Ok(Self { k, weights: Arc::new(weights), finish })
    }

    /// Number of columns of the weight.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.weights.n
    }

    /// The activation, where the output is f32.
    #[must_use]
    pub fn activation(&self) -> Option<Activation> {
        match self.finish {
            Finish::Floats { activation, .. } => Some(activation),
            Finish::Bytes { .. } => None,
        }
    }

    /// The same product with another activation, where the output is f32.
    #[must_use]
    pub fn with_activation(mut self, with: Activation) -> Self {
        if let Finish::Floats { activation, .. } = &mut self.finish {
            *activation = with;
        }
        self
    }

    /// Whether the rows of an input are copied: kernels read u8, four bytes at a time.
    fn copies(&self) -> bool {
        let flips = matches!(&self.finish, Finish::Bytes { x, .. } if x.flip() != 0);
        flips || !self.k.is_multiple_of(4)
    }

    fn check_inputs(&self, inputs: &[Option<&ValueInfo>]) -> Result<()> {
        let x = required(inputs, 0)?;
        if let Finish::Bytes { x: quant, .. } = &self.finish {
            return same_dtype("the input", quant.dtype, x.ty.dtype);
        }
        let expected = [
            (0, "the input", DType::U8),
            (1, "the scale", DType::F32),
            (2, "the zero point", DType::U8),
            (3, "the residual", DType::F32),
        ];
        for (i, what, dtype) in expected {
            let Some(given) = optional(inputs, i) else { continue };
            same_dtype(what, dtype, given.ty.dtype)?;
        }
        for i in [1, 2] {
            rank(expected[i].1, required(inputs, i)?, 0)?;
        }
        Ok(())
    }
}

impl Op for QMatMul {
    fn name(&self) -> &'static str {
        NAME
    }

    fn arity(&self) -> RangeInclusive<usize> {
        match self.finish {
            Finish::Bytes { .. } => 1..=1,
            Finish::Floats { .. } => 3..=4,
        }
    }

    fn held_bytes(&self) -> usize {
        let rest = match &self.finish {
            Finish::Bytes { seeds, epilogue, .. } => {
                size_of_val(&***seeds) + size_of_val(&*epilogue.scale)
            }
            Finish::Floats { scale, bias, .. } => size_of_val(&***scale) + size_of_val(&***bias),
        };
        self.weights.bytes() + rest
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        self.check_inputs(inputs)?;
        let x = required(inputs, 0)?;
        let dtype = match &self.finish {
            Finish::Bytes { y, .. } => *y,
            Finish::Floats { .. } => DType::F32,
        };
        let Some(dims) = x.sym_shape() else { return Ok(output(dtype, None)) };
        let Some((k, batch)) = dims.split_last() else {
            return Err(Error::invalid("the input is a scalar"));
        };
        dims::expect("the inner dimension", &Dim::Known(self.k), k)?;
        let mut shape = batch.to_vec();
        shape.push(Dim::Known(self.weights.n));
        if let Some(residual) = optional(inputs, 3).and_then(|x| x.sym_shape()) {
            dims::expect_all("the residual", &shape, residual)?;
        }
        Ok(output(dtype, Some(shape)))
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        let rank = optional(inputs, 0).and_then(|x| x.rank()).unwrap_or(0);
        let residual = optional(inputs, 3).map(|_| 3);
        // Both axes of the weight are packed.
        (0..rank.saturating_sub(1)).fold(Axes::new(), |axes, axis| {
            let own = [0].into_iter().chain(residual);
            axes.each(own.map(|i| (i, axis)), [(0, axis)])
        })
    }

    fn multiply_adds(&self, _inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        outputs.first().map_or(0, crate::cost::elements).saturating_mul(self.k as u64)
    }

    fn absorbing(&self, inputs: &[Option<&ValueInfo>], next: &Following<'_>) -> Option<Absorbed> {
        let Finish::Floats { scale, bias, activation: Activation::None } = &self.finish else {
            return None;
        };
        let with = |bias: &Arc<Vec<f32>>, activation| {
            let finish =
                Finish::Floats { scale: Arc::clone(scale), bias: Arc::clone(bias), activation };
            Self { finish, ..self.clone() }
        };
        match *next {
            Following::Activation(activation) => Some(Absorbed::held(with(bias, activation))),
            Following::Row(row) => {
                let row = row.as_slice::<f32>().ok().filter(|row| row.len() == self.weights.n)?;
                let mut sums = bias.to_vec();
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                Some(Absorbed::held(with(&Arc::new(sums), Activation::None)))
            }
            Following::Residual => optional(inputs, 3)
                .is_none()
                .then(|| Absorbed::given(with(bias, Activation::None), 3)),
        }
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }

    fn scratch_bytes(&self, _threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        let shape = optional(inputs, 0).and_then(|x| x.ty.concrete_shape());
        let Some(shape) = shape.filter(|_| self.copies()) else { return 0 };
        let rows = shape.split_last().map_or(0, |(_, rows)| {
            rows.iter().fold(1, |product: usize, n| product.saturating_mul(*n))
        });
        self.k.next_multiple_of(4).saturating_mul(rows)
    }
}
