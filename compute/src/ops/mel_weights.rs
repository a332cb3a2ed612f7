//! From frequencies to the mel scale.

use crate::args::{output, required, single};
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use num_traits::cast;
use std::ops::RangeInclusive;

/// `MelWeightMatrix`: scalar inputs number of bands, transform's length, sample rate (integers),
/// lowest and highest frequency (floats); output `[length / 2 + 1, bands]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MelWeights {
    /// The output's dtype.
    pub dtype: DType,
}

impl Op for MelWeights {
    fn name(&self) -> &'static str {
        "MelWeightMatrix"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        5..=5
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        for i in 0..5 {
            let x = required(inputs, i)?;
            single(&format!("input {i}"), x)?;
            if x.ty.dtype.is_float() != (i > 2) {
                let expected = if i > 2 { "a float" } else { "an integer" };
                let message = format!("input {i} has dtype {}, expected {expected}", x.ty.dtype);
                return Err(Error::invalid(message));
            }
        }
        Ok(output(self.dtype, Some(vec![Dim::Unknown; 2])))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let known = crate::args::infos(inputs)?;
        self.infer_types(&known.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let mut numbers = [0f64; 5];
        for (number, x) in numbers.iter_mut().zip(inputs) {
            let wide = crate::ops::Cast { to: DType::F64 }.run(ctx, std::slice::from_ref(x))?;
            let first = wide.first().and_then(|x| x.as_slice::<f64>().ok()?.first().copied());
            *number = first.unwrap_or(f64::NAN);
        }
        let [bands, length, rate, low, high] = numbers;
        let count = |x: f64| cast::<_, usize>(x).filter(|_| x >= 0.);
        let (Some(columns), Some(rows), true) = (count(bands), count(length / 2. + 1.), rate > 0.)
        else {
            let message = format!("{bands} bands, length {length} and rate {rate} make no matrix");
            return Err(Error::invalid(message));
        };
        let mut out = ctx.alloc(DType::F64, [rows, columns])?;
        let weights = out.as_mut_slice::<f64>()?;
        weights.fill(0.);
        let edge = edges([bands, length, rate, low, high]);
        for band in 0..if weights.is_empty() { 0 } else { columns } {
            let (start, middle, end) = (edge(band), edge(band + 1), edge(band + 2));
            let mut set = |row: f64, weight: f64| {
                if let Some(row) = count(row).filter(|&row| row < rows) {
                    weights[row * columns + band] = weight;
                }
            };
            if start == middle {
                set(middle, 1.);
            }
            // The loop is over the matrix's rows: a band can go far beyond them.
            for row in 0..rows {
                let at = cast::<_, f64>(row).unwrap_or(f64::NAN);
                if start < middle && (start..=middle).contains(&at) {
                    set(at, (at - start) / (middle - start));
                }
                if middle < end && (middle..end).contains(&at) {
                    set(at, (end - at) / (end - middle));
                }
            }
        }
        crate::ops::Cast { to: self.dtype }.run(ctx, &[Some(out.view())])
    }
}

/// The row at which a band begins; a band ends where the next but one begins.
fn edges([bands, length, rate, low, high]: [f64; 5]) -> impl Fn(usize) -> f64 {
    let mel = |hertz: f64| 2595. * (1. + hertz / 700.).log10();
    let (low, high) = (mel(low), mel(high));
    let step = (high - low) / (bands + 2.);
    move |i: usize| {
        let mel = cast::<_, f64>(i).unwrap_or(0.) * step + low;
        let hertz = 700. * (10f64.powf(mel / 2595.) - 1.);
        ((length + 1.) * hertz / rate).floor()
    }
}
