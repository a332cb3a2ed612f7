//! Inverted residuals, of which the networks for phones are made: a convolution that widens, a
//! depthwise one, channels weighed by squeeze and excite, and a convolution that narrows.

use crate::layers::{Conv, Layers, float, silu};
use lgp_inference::{Attr, Result, Value};

/// What follows a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Relu,
    Relu6,
    HardSwish,
    Silu,
}

/// An inverted residual.
#[derive(Clone, Copy)]
pub(crate) struct Block {
    /// Side of the depthwise window.
    pub(crate) kernel: usize,
    /// Channels: of what it reads, in its middle, and of what it makes.
    pub(crate) channels: [usize; 3],
    pub(crate) stride: usize,
    /// Channels between squeeze and excite, where it weighs its channels.
    pub(crate) squeezed: Option<usize>,
    pub(crate) activation: Activation,
}

impl Layers {
    pub(crate) fn activate(&mut self, x: Value, activation: Activation) -> Result<Value> {
        Ok(match activation {
            Activation::Relu => self.op("Relu", &[x]),
            Activation::HardSwish => self.op("HardSwish", &[x]),
            Activation::Silu => silu(&mut self.g, x),
            Activation::Relu6 => {
                let low = float(&mut self.g, 0.)?;
                let high = float(&mut self.g, 6.)?;
                self.op("Clip", &[x, low, high])
            }
        })
    }

    /// A convolution and what follows it.
    pub(crate) fn active(
        &mut self,
        name: &str,
        x: Value,
        conv: Conv,
        activation: Activation,
    ) -> Result<Value> {
        let y = self.conv(name, x, conv)?;
        self.activate(y, activation)
    }

    /// An inverted residual: what it is in its middle before the depthwise window, and at its end.
    pub(crate) fn inverted(&mut self, name: &str, x: Value, block: Block) -> Result<[Value; 2]> {
        let Block { kernel, channels, stride, squeezed, activation } = block;
        let [inputs, middle, outputs] = channels;
        let mut wide = x;
        if middle != inputs {
            let widen = Conv::new(inputs, middle, 1);
            wide = self.active(&format!("{name}.expand"), x, widen, activation)?;
        }
        let window = Conv::depthwise(middle, kernel).stride(stride);
        let mut y = self.active(&format!("{name}.depthwise"), wide, window, activation)?;
        if let Some(squeezed) = squeezed {
            y = self.squeeze_excite(name, y, [middle, squeezed], activation)?;
        }
        y = self.conv(&format!("{name}.project"), y, Conv::new(middle, outputs, 1))?;
        if stride == 1 && inputs == outputs {
            y = self.op("Add", &[y, x]);
        }
        Ok([wide, y])
    }

    /// Weighs channels by what they are on average. MobileNetV3 and EfficientNet differ in its two
    /// activations.
    fn squeeze_excite(
        &mut self,
        name: &str,
        x: Value,
        [channels, squeezed]: [usize; 2],
        activation: Activation,
    ) -> Result<Value> {
        let smooth = activation == Activation::Silu;
        let inner = if smooth { Activation::Silu } else { Activation::Relu };
        let y = self.op("GlobalAveragePool", &[x]);
        let squeeze = Conv::new(channels, squeezed, 1);
        let y = self.active(&format!("{name}.se.fc1"), y, squeeze, inner)?;
        let y = self.conv(&format!("{name}.se.fc2"), y, Conv::new(squeezed, channels, 1))?;
        let y = if smooth {
            self.op("Sigmoid", &[y])
        } else {
            self.g.node("HardSigmoid", &[y], [("alpha", Attr::from(1f32 / 6.))])
        };
        Ok(self.op("Mul", &[y, x]))
    }
}
