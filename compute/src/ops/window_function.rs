//! The windows of signal processing.

use crate::args::{concrete_one, output, required, single};
use crate::error::{Error, Result};
use crate::index::index_dtype;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use num_traits::cast;
use std::ops::RangeInclusive;

/// The kind of window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are named after their inventors")]
pub enum WindowKind {
    Hann,
    Hamming,
    Blackman,
}

/// `HannWindow` and so on: the input is the length (i32 or i64, one element).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowFunction {
    /// The window.
    pub kind: WindowKind,
    /// One period of a repeating window, rather than a symmetric one.
    pub periodic: bool,
    /// The output's dtype.
    pub dtype: DType,
}

impl Op for WindowFunction {
    fn name(&self) -> &'static str {
        match self.kind {
            WindowKind::Hann => "HannWindow",
            WindowKind::Hamming => "HammingWindow",
            WindowKind::Blackman => "BlackmanWindow",
        }
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let size = required(inputs, 0)?;
        index_dtype("the length", size.ty.dtype)?;
        single("the length", size)?;
        let known = size.ints("the length")?.and_then(|n| n.first().copied());
        let length = |n: i64| {
            usize::try_from(n)
                .map_err(|_| Error::invalid(format!("the length is {n}, expected 0 or more")))
        };
        let n = known.map(length).transpose()?.map_or(Dim::Unknown, Dim::Known);
        Ok(output(self.dtype, Some(vec![n])))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let (dtype, shape) = concrete_one(self, inputs)?;
        let n = shape.first().copied().unwrap_or(0);
        let wide = |n: usize| cast::<_, f64>(n).unwrap_or(f64::INFINITY);
        let period = if self.periodic { wide(n) } else { wide(n) - 1. };
        let mut out = ctx.alloc(DType::F64, shape)?;
        for (i, out) in out.as_mut_slice::<f64>()?.iter_mut().enumerate() {
            // A symmetric window of one element has no period.
            let angle = if period > 0. { std::f64::consts::TAU * wide(i) / period } else { 0. };
            *out = match self.kind {
                WindowKind::Hann => 0.5 - 0.5 * angle.cos(),
                WindowKind::Hamming => 25. / 46. - 21. / 46. * angle.cos(),
                WindowKind::Blackman => 0.42 - 0.5 * angle.cos() + 0.08 * (2. * angle).cos(),
            };
        }
        crate::ops::Cast { to: dtype }.run(ctx, &[Some(out.view())])
    }
}
