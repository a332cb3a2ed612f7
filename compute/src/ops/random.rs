//! Random numbers from a seed: each run draws the same.

use crate::args::{concrete_one, output, rank, required};
use crate::error::{Error, Result};
use crate::generator::Generator;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// The distribution of the numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RandomKind {
    /// `RandomNormal`: a normal distribution.
    Normal {
        /// Its mean.
        mean: f32,
        /// Its standard deviation.
        scale: f32,
    },
    /// `RandomUniform`: evenly between two bounds, the upper excluded.
    Uniform {
        /// The lower bound.
        low: f32,
        /// The upper bound.
        high: f32,
    },
    /// `Bernoulli`: 1 with the input's element as probability, else 0.
    Bernoulli,
}

/// Random numbers in the shape of the input, or in a given one without an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Random {
    /// The distribution.
    pub kind: RandomKind,
    /// Seed of the numbers.
    pub seed: u64,
    /// The output's dtype; the input's when absent, and f32 without an input.
    pub dtype: Option<DType>,
    /// The output's shape, where there is no input.
    pub shape: Option<Vec<usize>>,
}

impl Op for Random {
    fn name(&self) -> &'static str {
        match (self.kind, self.shape.is_some()) {
            (RandomKind::Normal { .. }, true) => "RandomNormal",
            (RandomKind::Normal { .. }, false) => "RandomNormalLike",
            (RandomKind::Uniform { .. }, true) => "RandomUniform",
            (RandomKind::Uniform { .. }, false) => "RandomUniformLike",
            (RandomKind::Bernoulli, _) => "Bernoulli",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        if self.shape.is_some() { 0..=0 } else { 1..=1 }
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        if let Some(shape) = &self.shape {
            let dims = shape.iter().map(|&n| Dim::Known(n)).collect();
            return Ok(output(self.dtype.unwrap_or(DType::F32), Some(dims)));
        }
        let x = required(inputs, 0)?;
        let dtype = self.dtype.unwrap_or(x.ty.dtype);
        if self.kind == RandomKind::Bernoulli {
            crate::args::float(x.ty.dtype)?;
        } else {
            crate::args::float(dtype)?;
        }
        Ok(output(dtype, x.sym_shape().map(<[_]>::to_vec)))
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let mut draws = ctx.alloc(DType::F64, shape)?;
        let mut random = Generator::new(self.seed);
        let numbers = draws.as_mut_slice::<f64>()?;
        match self.kind {
            RandomKind::Normal { mean, scale } => {
                let (mean, scale) = (f64::from(mean), f64::from(scale));
                numbers.iter_mut().for_each(|x| *x = mean + scale * random.normal());
            }
            RandomKind::Uniform { low, high } => {
                let (low, high) = (f64::from(low), f64::from(high));
                numbers.iter_mut().for_each(|x| *x = low + (high - low) * random.uniform());
            }
            RandomKind::Bernoulli => {
                let cast = crate::ops::Cast { to: DType::F64 }.run(ctx, &inputs[..1])?;
                for p in &cast {
                    for (x, p) in numbers.iter_mut().zip(p.as_slice::<f64>()?) {
                        *x = f64::from(u8::from(random.uniform() < *p));
                    }
                }
            }
        }
        crate::ops::Cast { to: dtype }.run(ctx, &[Some(draws.view())])
    }
}

/// `Multinomial`: input `[n, classes]`, logarithms of weights; output `[n, samples]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multinomial {
    /// Number of draws of each row.
    pub samples: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The output's dtype: i32 or i64.
    pub dtype: DType,
}

impl Op for Multinomial {
    fn name(&self) -> &'static str {
        "Multinomial"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        crate::args::float(x.ty.dtype)?;
        rank("the input", x, 2)?;
        crate::index::index_dtype("the output", self.dtype)?;
        let n = match x.sym_shape() {
            Some([_, Dim::Known(0)]) => {
                return Err(Error::invalid("there is no class to draw"));
            }
            Some([n, _]) => n.clone(),
            _ => Dim::Unknown,
        };
        Ok(output(self.dtype, Some(vec![n, Dim::Known(self.samples)])))
    }

    fn is_deterministic(&self) -> bool {
        false
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let classes = required(inputs, 0)?.shape()[1];
        let cast = crate::ops::Cast { to: DType::F64 }.run(ctx, &inputs[..1])?;
        let mut out = ctx.alloc(DType::I64, shape)?;
        let mut random = Generator::new(self.seed);
        for x in &cast {
            let rows = x.as_slice::<f64>()?.chunks_exact(classes);
            let draws = out.as_mut_slice::<i64>()?.chunks_exact_mut(self.samples.max(1));
            for (row, draws) in rows.zip(draws) {
                let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let mut sum = 0.;
                let add = |x: &f64| {
                    sum += (x - top).exp();
                    sum
                };
                let sums: Vec<f64> = row.iter().map(add).collect();
                for draw in draws {
                    let at = random.uniform() * sum;
                    let class = sums.iter().position(|&s| at < s).unwrap_or(classes - 1);
                    *draw = i64::try_from(class).unwrap_or(i64::MAX);
                }
            }
        }
        crate::ops::Cast { to: dtype }.run(ctx, &[Some(out.view())])
    }
}
