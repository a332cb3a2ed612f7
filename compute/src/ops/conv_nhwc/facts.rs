//! What channels-last convolutions say of their axes and their work.

use super::ConvGeometry;
use crate::Axes;
use crate::args::optional;
use crate::cost::elements;
use crate::op::ValueInfo;
use crate::window::image_axes;

impl ConvGeometry {
    /// The axes of the image in input 0, and of an input of the output's shape. Of the channels
    /// nothing is said: weights are packed.
    pub(crate) fn image_axes(
        &self,
        inputs: &[Option<&ValueInfo>],
        residual: Option<usize>,
    ) -> Axes {
        match (optional(inputs, 0), self.specs()) {
            (Some(x), Ok(specs)) => image_axes(x, &specs, 1, residual),
            _ => Axes::new(),
        }
    }

    /// The multiply-adds: each element of the output has its group's channels of each tap.
    pub(crate) fn multiply_adds(&self, outputs: &[ValueInfo]) -> u64 {
        let channels = self.channels.checked_div(self.group).unwrap_or(0);
        let sizes = [channels, self.kernel[0], self.kernel[1]];
        let each = sizes.iter().fold(1u64, |n, &size| n.saturating_mul(size as u64));
        outputs.first().map_or(0, elements).saturating_mul(each)
    }
}
