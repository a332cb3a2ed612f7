//! ShuffleNetV2 (1×) as torchvision exports it: half of the channels pass by, and both halves are
//! shuffled by reshapes around a transpose.

use crate::layers::{Conv, Layers, ints};
use crate::nets::Size;
use crate::transformer::count;
use lgp_inference::{Attr, Model, Result, Value};

/// The network for images of 224×224.
pub(crate) fn shufflenet(size: Size) -> Result<Model> {
    let full = size == Size::Full;
    let (image, widths) = if full { (224, [24, 116, 232, 464]) } else { (64, [8, 16, 32, 64]) };
    let [first, widths @ ..] = widths;
    let mut net = Layers::new("shufflenet", 0x5f1e);
    net.gain = 1.35;
    let x = net.images("input", image);
    let x = net.conv("conv1", x, Conv::new(3, first, 3).stride(2))?;
    let x = net.op("Relu", &[x]);
    let mut x = net.max_pool(x);
    let (mut inputs, mut side) = (first, image / 4);
    for (stage, (outputs, repeats)) in widths.into_iter().zip([4, 8, 4]).enumerate() {
        side /= 2;
        for repeat in 0..repeats {
            let name = format!("stage{}.{repeat}", stage + 2);
            let y = unit(&mut net, &name, x, [inputs, outputs])?;
            x = shuffle(&mut net, y, outputs, side)?;
            inputs = outputs;
        }
    }
    let (last, classes) = (size.channels(1024), size.channels(1000));
    let x = net.conv("conv5", x, Conv::new(inputs, last, 1))?;
    let x = net.op("Relu", &[x]);
    let axes = ints(&mut net.g, &[2, 3])?;
    let x = net.g.node("ReduceMean", &[x, axes], [("keepdims", 0.into())]);
    let y = net.gemm("fc", x, [last, classes])?;
    net.finish(y, classes)
}

/// Two branches beside each other. The first unit of a stage changes the channels, and both of its
/// branches halve the sides; of the others one half of the channels is passed on.
fn unit(net: &mut Layers, name: &str, x: Value, [inputs, outputs]: [usize; 2]) -> Result<Value> {
    let half = outputs / 2;
    let first = inputs != outputs;
    let (beside, through) = if first {
        let window = Conv::depthwise(inputs, 3).stride(2);
        let y = net.conv(&format!("{name}.branch1.0"), x, window)?;
        let y = net.conv(&format!("{name}.branch1.2"), y, Conv::new(inputs, half, 1))?;
        (net.op("Relu", &[y]), x)
    } else {
        let sizes = ints(&mut net.g, &[count(half); 2])?;
        let [a, b] = net.g.node_with_outputs("Split", &[x, sizes], [("axis", Attr::from(1))]);
        (a, b)
    };
    let read = if first { inputs } else { half };
    let y = net.conv(&format!("{name}.branch2.0"), through, Conv::new(read, half, 1))?;
    let y = net.op("Relu", &[y]);
    let window = Conv::depthwise(half, 3).stride(if first { 2 } else { 1 });
    let y = net.conv(&format!("{name}.branch2.3"), y, window)?;
    let y = net.conv(&format!("{name}.branch2.5"), y, Conv::new(half, half, 1))?;
    let y = net.op("Relu", &[y]);
    Ok(net.concat(&[beside, y], 1))
}

/// Channels of the two halves in turn.
fn shuffle(net: &mut Layers, x: Value, channels: usize, side: usize) -> Result<Value> {
    let (channels, side) = (count(channels), count(side));
    let y = net.reshape(x, &[-1, 2, channels / 2, side, side])?;
    let y = net.transpose(y, [0, 2, 1, 3, 4]);
    net.reshape(y, &[-1, channels, side, side])
}
