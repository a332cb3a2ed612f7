//! ConvNeXt-Tiny as torchvision exports it: depthwise 7×7 windows, then a norm and two products on
//! channels that are last for their sake.

use crate::layers::{Conv, Layers, gelu};
use crate::nets::Size;
use lgp_inference::{Model, Result, Value};

/// What its norms add to the variance.
const EPSILON: f32 = 1e-6;

/// From channels first to channels last, and back.
const LAST: [i64; 4] = [0, 2, 3, 1];
const FIRST: [i64; 4] = [0, 3, 1, 2];

/// The network for images of 224×224.
pub(crate) fn convnext(size: Size) -> Result<Model> {
    let full = size == Size::Full;
    let (side, depths) = if full { (224, [3, 3, 9, 3]) } else { (64, [1, 1, 2, 1]) };
    let c = |n| size.channels(n);
    let widths = [96, 192, 384, 768].map(c);
    let mut net = Layers::new("convnext", 0xc0e7);
    let x = net.images("input", side);
    let x = net.conv("features.0.0", x, Conv::patches(3, widths[0], 4))?;
    let mut x = norm(&mut net, "features.0.1", x, widths[0])?;
    let mut inputs = widths[0];
    for (stage, (width, depth)) in widths.into_iter().zip(depths).enumerate() {
        if stage > 0 {
            let name = format!("features.{}", 2 * stage);
            let y = norm(&mut net, &format!("{name}.0"), x, inputs)?;
            x = net.conv(&format!("{name}.1"), y, Conv::patches(inputs, width, 2))?;
        }
        for at in 0..depth {
            x = block(&mut net, &format!("features.{}.{at}", 2 * stage + 1), x, width)?;
        }
        inputs = width;
    }
    let x = net.op("GlobalAveragePool", &[x]);
    let x = norm(&mut net, "classifier.0", x, inputs)?;
    let x = net.g.node("Flatten", &[x], [("axis", 1.into())]);
    let y = net.gemm("classifier.2", x, [inputs, c(1000)])?;
    net.finish(y, c(1000))
}

/// Normalises the channels of each pixel.
fn norm(net: &mut Layers, name: &str, x: Value, channels: usize) -> Result<Value> {
    let y = net.transpose(x, LAST);
    let y = net.layer_norm(name, y, channels, EPSILON)?;
    Ok(net.transpose(y, FIRST))
}

fn block(net: &mut Layers, name: &str, x: Value, channels: usize) -> Result<Value> {
    let y = net.conv(&format!("{name}.block.0"), x, Conv::depthwise(channels, 7))?;
    let y = net.transpose(y, LAST);
    let y = net.layer_norm(&format!("{name}.block.2"), y, channels, EPSILON)?;
    let y = net.linear(&format!("{name}.block.3"), y, [channels, 4 * channels])?;
    let y = gelu(&mut net.g, y)?;
    let y = net.linear(&format!("{name}.block.5"), y, [4 * channels, channels])?;
    let y = net.transpose(y, FIRST);
    let scale = net.uniform(&format!("{name}.layer_scale"), &[channels, 1, 1], 0.1, 0.3)?;
    let y = net.op("Mul", &[scale, y]);
    Ok(net.op("Add", &[y, x]))
}
