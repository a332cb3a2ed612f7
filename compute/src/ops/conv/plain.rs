//! Convolution of one tap and step on devices: the product of the weight with each image.

use super::device::Convolution;
use crate::device::{Addend, Argument, Factor, Product, Zero};
use lgp_memory::DType;

/// Input channels at least: with fewer, a form that does not go through local memory may be better.
const CHANNELS_MIN: usize = 8;

impl Convolution {
    /// What `with` makes of the product. `None` for other convolutions, and for images whose
    /// elements cannot be loaded as vectors: the kernel of convolutions takes those of several
    /// images at a time.
    pub(super) fn plain<T>(&self, with: impl FnOnce(&Product<'_>) -> T) -> Option<T> {
        let plane = self.plane().1;
        let is_product = self.axes.iter().all(|axis| axis.is_pointwise()) && self.groups == 1;
        let fits = self.channels >= CHANNELS_MIN && plane.is_multiple_of(4);
        if self.transposed || !is_product || !fits {
            return None;
        }
        let mut weight = Factor::plain(Argument::Input(1), self.dtype, true);
        let mut image = Factor::plain(Argument::Input(0), self.dtype, false);
        let mut y = self.dtype;
        if let Some(integers) = self.integers {
            let zero = |i, each| Zero { argument: Argument::Input(i), each };
            weight.dtype = integers.weight;
            weight.zero = integers.weight_zero.map(|each| zero(3, each));
            image.zero = integers.zero.then(|| zero(2, false));
            y = DType::I32;
        }
        let bias =
            Addend { argument: Argument::Input(2), dtype: self.dtype, scale: 1., steps: [1, 0] };
        let images = [self.images];
        Some(with(&Product {
            sizes: [self.maps, plane, self.channels],
            operands: [weight, image],
            batches: [&images, &[1], &images],
            alpha: 1.,
            addend: self.bias.then_some(bias),
            y: (Argument::Output(0), y),
        }))
    }
}
