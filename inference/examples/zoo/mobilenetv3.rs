//! MobileNetV3-Large as torchvision exports it: hard-swish, and squeeze and excite with a hard
//! sigmoid.

use crate::layers::{Conv, Layers};
use crate::mobile::Activation::{self, HardSwish, Relu};
use crate::mobile::Block;
use crate::nets::Size;
use lgp_inference::{Model, Result};

/// Window, channels in the middle, channels made, squeeze and excite, activation, stride.
const BLOCKS: [(usize, usize, usize, bool, Activation, usize); 15] = [
    (3, 16, 16, false, Relu, 1),
    (3, 64, 24, false, Relu, 2),
    (3, 72, 24, false, Relu, 1),
    (5, 72, 40, true, Relu, 2),
    (5, 120, 40, true, Relu, 1),
    (5, 120, 40, true, Relu, 1),
    (3, 240, 80, false, HardSwish, 2),
    (3, 200, 80, false, HardSwish, 1),
    (3, 184, 80, false, HardSwish, 1),
    (3, 184, 80, false, HardSwish, 1),
    (3, 480, 112, true, HardSwish, 1),
    (3, 672, 112, true, HardSwish, 1),
    (5, 672, 160, true, HardSwish, 2),
    (5, 960, 160, true, HardSwish, 1),
    (5, 960, 160, true, HardSwish, 1),
];

/// The network for images of 224×224.
pub(crate) fn mobilenetv3(size: Size) -> Result<Model> {
    let c = |n| size.channels(n);
    let mut net = Layers::new("mobilenetv3", 0x30b3);
    net.gain = 1.35;
    let x = net.images("input", if size == Size::Full { 224 } else { 64 });
    let mut x = net.active("features.0", x, Conv::new(3, c(16), 3).stride(2), HardSwish)?;
    let mut inputs = 16;
    for (layer, (kernel, middle, outputs, squeeze, activation, stride)) in
        BLOCKS.into_iter().enumerate()
    {
        let squeezed = squeeze.then(|| c(divisible(middle / 4)));
        let channels = [inputs, middle, outputs].map(c);
        let block = Block { kernel, channels, stride, squeezed, activation };
        [_, x] = net.inverted(&format!("features.{}", layer + 1), x, block)?;
        inputs = outputs;
    }
    let x = net.active("features.16", x, Conv::new(c(160), c(960), 1), HardSwish)?;
    let x = net.pool(x);
    let x = net.gemm("classifier.0", x, [c(960), c(1280)])?;
    let x = net.activate(x, HardSwish)?;
    let y = net.gemm("classifier.3", x, [c(1280), c(1000)])?;
    net.finish(y, c(1000))
}

/// The nearest multiple of eight that is not below nine tenths of `n`.
fn divisible(n: usize) -> usize {
    let nearest = ((n + 4) / 8 * 8).max(8);
    if nearest * 10 < n * 9 { nearest + 8 } else { nearest }
}
