//! DeepLabV3 on ResNet-50 as torchvision exports it, on images of 257×257: dilated windows in place
//! of its last strides, a pyramid of dilated convolutions, and a bilinear resize to every pixel.

use crate::layers::{Conv, Layers, batch};
use crate::nets::{Size, f32_type};
use crate::resnext::Bottleneck;
use lgp_inference::{Model, Result, Value};
use lgp_memory::Dim;

/// Blocks, channels in the middle, stride of the first; dilation of the first, and of the others.
const STAGES: [(usize, usize, usize, [usize; 2]); 4] =
    [(3, 64, 1, [1, 1]), (4, 128, 2, [1, 1]), (6, 256, 1, [1, 2]), (3, 512, 1, [2, 4])];

/// Of the pyramid: the published ones for a sixteenth of the sides, since the map, an eighth of few
/// pixels, has only 33 columns.
const DILATIONS: [usize; 3] = [6, 12, 18];

/// What a pixel may show.
const CLASSES: usize = 21;

/// The network with its head.
pub(crate) fn deeplab(size: Size) -> Result<Model> {
    let side = if size == Size::Full { 257 } else { 65 };
    let c = |n| size.channels(n);
    let mut net = Layers::new("deeplab", 0xdee9);
    let x = net.images("input", side);
    let mut x = net.stem(x, c(64))?;
    let mut inputs = 64;
    for (stage, (blocks, width, stride, dilations)) in STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let bottleneck = Bottleneck {
                channels: [inputs, width, 4 * width].map(c),
                stride: if block == 0 { stride } else { 1 },
                dilation: dilations[block.min(1)],
                groups: 1,
            };
            x = net.bottleneck(&format!("backbone.layer{}.{block}", stage + 1), x, bottleneck)?;
            inputs = 4 * width;
        }
    }
    let y = pyramid(&mut net, x, [c(2048), c(256)], side.div_ceil(8))?;
    let y = net.conv("classifier.1", y, Conv::new(c(256), c(256), 3))?;
    let y = net.op("Relu", &[y]);
    let y = net.conv("classifier.4", y, Conv::new(c(256), CLASSES, 1))?;
    let y = net.resize(y, [side; 2])?;
    let dims = [batch(), Dim::Known(CLASSES), Dim::Known(side), Dim::Known(side)];
    net.g.output("out", y, f32_type(dims));
    net.g.finish()
}

/// One position, three dilated windows and the average of all, side by side and then mixed.
fn pyramid(
    net: &mut Layers,
    x: Value,
    [inputs, outputs]: [usize; 2],
    side: usize,
) -> Result<Value> {
    let y = net.conv("classifier.0.convs.0", x, Conv::new(inputs, outputs, 1))?;
    let mut parts = vec![net.op("Relu", &[y])];
    for (at, dilation) in (1..).zip(DILATIONS) {
        let window = Conv::new(inputs, outputs, 3).dilation(dilation);
        let y = net.conv(&format!("classifier.0.convs.{at}"), x, window)?;
        parts.push(net.op("Relu", &[y]));
    }
    let y = net.op("GlobalAveragePool", &[x]);
    let y = net.conv("classifier.0.convs.4", y, Conv::new(inputs, outputs, 1))?;
    let y = net.op("Relu", &[y]);
    parts.push(net.resize(y, [side; 2])?);
    let all = net.concat(&parts, 1);
    let y = net.conv("classifier.0.project", all, Conv::new(5 * outputs, outputs, 1))?;
    Ok(net.op("Relu", &[y]))
}
