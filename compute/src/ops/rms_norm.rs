//! Root mean square normalisation over the last axes.

use crate::Axes;
use crate::device::Launches;
use crate::error::Result;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::layer_norm::LastAxes;
use lgp_memory::{Tensor, TensorView};
use std::ops::RangeInclusive;

/// `RMSNormalization`: inputs x and scale, which broadcasts to the normalised axes:
/// `x / sqrt(mean(x²) + epsilon) · scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm {
    /// First axis that is normalised, negative from the back.
    pub axis: i64,
    /// Added to the mean square before the square root.
    pub epsilon: f32,
}

impl Default for RmsNorm {
    fn default() -> Self {
        Self { axis: -1, epsilon: 1e-5 }
    }
}

impl RmsNorm {
    fn norm(&self) -> LastAxes {
        LastAxes { axis: self.axis, epsilon: self.epsilon, centred: false }
    }
}

impl Op for RmsNorm {
    fn name(&self) -> &'static str {
        "RMSNormalization"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=2
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        self.norm().infer_types(inputs)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> Axes {
        crate::norm::axes(self.axis, inputs)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        self.norm().launches(inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        self.norm().schedules(inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        self.norm().run(self, ctx, inputs)
    }
}
