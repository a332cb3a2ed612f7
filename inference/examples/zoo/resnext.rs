//! ResNeXt-50 (32×4d) as torchvision exports it: bottlenecks whose 3×3 convolutions are in groups
//! of four channels. Its parts make other residual networks too.

use crate::layers::{Conv, Layers};
use crate::nets::Size;
use lgp_inference::{Model, Result, Value};

/// A bottleneck; the window in its middle has the stride, the dilation and the groups.
#[derive(Clone, Copy)]
pub(crate) struct Bottleneck {
    /// Channels: of what it reads, in its middle, and of what it makes.
    pub(crate) channels: [usize; 3],
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) groups: usize,
}

/// The network for images of 224×224.
pub(crate) fn resnext(size: Size) -> Result<Model> {
    let (side, groups) = if size == Size::Full { (224, 32) } else { (64, 4) };
    let c = |n| size.channels(n);
    let mut net = Layers::new("resnext", 0x324d);
    let x = net.images("input", side);
    let mut x = net.stem(x, c(64))?;
    let mut inputs = 64;
    for (stage, (blocks, width)) in
        [(3, 128), (4, 256), (6, 512), (3, 1024)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let channels = [inputs, width, 2 * width].map(c);
            let bottleneck = Bottleneck { channels, stride, dilation: 1, groups };
            x = net.bottleneck(&format!("layer{}.{block}", stage + 1), x, bottleneck)?;
            inputs = 2 * width;
        }
    }
    let x = net.pool(x);
    let y = net.gemm("fc", x, [c(2048), c(1000)])?;
    net.finish(y, c(1000))
}

impl Layers {
    /// What a residual network begins with: a quarter of the sides.
    pub(crate) fn stem(&mut self, x: Value, channels: usize) -> Result<Value> {
        let y = self.conv("conv1", x, Conv::new(3, channels, 7).stride(2))?;
        let y = self.op("Relu", &[y]);
        Ok(self.max_pool(y))
    }

    pub(crate) fn bottleneck(&mut self, name: &str, x: Value, block: Bottleneck) -> Result<Value> {
        let Bottleneck { channels, stride, dilation, groups } = block;
        let [inputs, middle, outputs] = channels;
        let y = self.conv(&format!("{name}.conv1"), x, Conv::new(inputs, middle, 1))?;
        let y = self.op("Relu", &[y]);
        let window = Conv::new(middle, middle, 3).stride(stride).dilation(dilation).groups(groups);
        let y = self.conv(&format!("{name}.conv2"), y, window)?;
        let y = self.op("Relu", &[y]);
        let y = self.conv(&format!("{name}.conv3"), y, Conv::new(middle, outputs, 1))?;
        let shortcut = if inputs == outputs {
            x
        } else {
            let across = Conv::new(inputs, outputs, 1).stride(stride);
            self.conv(&format!("{name}.downsample.0"), x, across)?
        };
        let y = self.op("Add", &[y, shortcut]);
        Ok(self.op("Relu", &[y]))
    }
}
