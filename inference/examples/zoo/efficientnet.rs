//! EfficientNet-B0 as torchvision exports it: SiLU, squeeze and excite, windows of 3×3 and 5×5.

use crate::layers::{Conv, Layers};
use crate::mobile::Activation::Silu;
use crate::mobile::Block;
use crate::nets::Size;
use lgp_inference::{Model, Result};

/// How much wider the middle is; window, stride of the first, channels made, repeats.
const STAGES: [(usize, usize, usize, usize, usize); 7] = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
];

/// The network for images of 224×224.
pub(crate) fn efficientnet(size: Size) -> Result<Model> {
    let c = |n| size.channels(n);
    let mut net = Layers::new("efficientnet", 0xeff0);
    // With more, a value rounded to a byte early on would change all behind it; with less, what comes
    // out would not depend on the image.
    let (side, gain) = if size == Size::Full { (224, 1.5) } else { (64, 1.6) };
    net.gain = gain;
    let x = net.images("input", side);
    let mut x = net.active("features.0", x, Conv::new(3, c(32), 3).stride(2), Silu)?;
    let mut inputs = 32;
    for (stage, (expansion, kernel, stride, outputs, repeats)) in STAGES.into_iter().enumerate() {
        for repeat in 0..repeats {
            let block = Block {
                kernel,
                channels: [c(inputs), expansion * c(inputs), c(outputs)],
                stride: if repeat == 0 { stride } else { 1 },
                squeezed: Some(c(inputs / 4)),
                activation: Silu,
            };
            [_, x] = net.inverted(&format!("features.{}.{repeat}", stage + 1), x, block)?;
            inputs = outputs;
        }
    }
    let x = net.active("features.8", x, Conv::new(c(320), c(1280), 1), Silu)?;
    let x = net.pool(x);
    let y = net.gemm("classifier.1", x, [c(1280), c(1000)])?;
    net.finish(y, c(1000))
}
