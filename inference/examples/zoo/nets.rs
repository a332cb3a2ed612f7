//! ResNet-50 and MobileNetV2 node by node, in the form in which torchvision's models are exported:
//! batch normalisation folded into the convolutions, or as nodes of their own.

use lgp_inference::{Attr, GraphBuilder, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

/// How much of a network is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// As published: 224×224 pixels, 1000 classes.
    Full,
    /// The same nodes with an eighth of the channels, on 64×64 pixels: for tests.
    Tiny,
}

impl Size {
    /// How many channels stand for `n`; images stay in colour.
    pub(crate) fn channels(self, n: usize) -> usize {
        match self {
            Self::Tiny if n > 3 => (n / 8).max(2),
            _ => n,
        }
    }
}

/// Builds a network.
pub(crate) type Net = fn(Size) -> Result<Model>;

/// Every network by name.
pub(crate) const ALL: [(&str, Net); 4] = [
    ("resnet50", |size| resnet50(size, Norm::Folded)),
    ("resnet50_bn", |size| resnet50(size, Norm::Nodes)),
    ("mobilenetv2", |size| mobilenet_v2(size, Norm::Folded)),
    ("mobilenetv2_bn", |size| mobilenet_v2(size, Norm::Nodes)),
];

/// Where batch normalisation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Norm {
    Folded,
    Nodes,
}

/// ResNet-50 (v1.5: the 3×3 convolution has the stride).
fn resnet50(size: Size, norm: Norm) -> Result<Model> {
    let mut net = Writer::new("resnet50", size, norm);
    let x = net.image();
    let mut x =
        net.conv("conv1", x, Conv { inputs: 3, outputs: 64, kernel: 7, stride: 2, group: 1 })?;
    x = net.g.node("Relu", &[x], []);
    let pool = [
        ("kernel_shape", Attr::from([3, 3])),
        ("pads", [1, 1, 1, 1].into()),
        ("strides", [2, 2].into()),
    ];
    x = net.g.node("MaxPool", &[x], pool);
    let mut inputs = 64;
    for (stage, (blocks, width)) in [(3, 64), (4, 128), (6, 256), (3, 512)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = net.bottleneck(&name, x, inputs, width, stride)?;
            inputs = 4 * width;
        }
    }
    net.head(x, inputs, "fc")
}

/// MobileNetV2 with width multiplier 1.
fn mobilenet_v2(size: Size, norm: Norm) -> Result<Model> {
    /// Expansion, output channels, repeats, stride of the first.
    const STAGES: [(usize, usize, usize, i64); 7] = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    let mut net = Writer::new("mobilenetv2", size, norm);
    let x = net.image();
    let stem = Conv { inputs: 3, outputs: 32, kernel: 3, stride: 2, group: 1 };
    let mut x = net.conv("features.0", x, stem)?;
    x = net.relu6(x)?;
    let (mut inputs, mut layer) = (32, 1);
    for (expansion, outputs, repeats, stride) in STAGES {
        for repeat in 0..repeats {
            let stride = if repeat == 0 { stride } else { 1 };
            let name = format!("features.{layer}");
            x = net.inverted_residual(&name, x, [inputs, outputs], expansion, stride)?;
            (inputs, layer) = (outputs, layer + 1);
        }
    }
    let last = Conv { inputs, outputs: 1280, kernel: 1, stride: 1, group: 1 };
    x = net.conv("features.18", x, last)?;
    x = net.relu6(x)?;
    net.head(x, 1280, "classifier.1")
}

/// Channels before the width is scaled; `group` is 1, or `outputs` for a depthwise convolution.
struct Conv {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: i64,
    group: usize,
}

struct Writer {
    g: GraphBuilder,
    norm: Norm,
    size: Size,
    random: Random,
}

impl Writer {
    fn new(name: &str, size: Size, norm: Norm) -> Self {
        let g = GraphBuilder::new(name);
        Self { g, norm, size, random: Random::new(0x5eed) }
    }

    fn channels(&self, n: usize) -> usize {
        self.size.channels(n)
    }

    fn image(&mut self) -> Value {
        let side = if self.size == Size::Full { 224 } else { 64 };
        let dims = [Dim::Symbol("batch".into()), 3.into_dim(), side.into_dim(), side.into_dim()];
        self.g.input("input", f32_type(dims))
    }

    /// A convolution with its normalisation; padded so that only the stride makes it smaller.
    fn conv(&mut self, name: &str, x: Value, conv: Conv) -> Result<Value> {
        let (inputs, outputs) = (self.channels(conv.inputs), self.channels(conv.outputs));
        let group = if conv.group == 1 { 1 } else { outputs };
        let k = conv.kernel;
        let fan_in = inputs / group * k * k;
        let weight = self.random.tensor(&[outputs, inputs / group, k, k], he(fan_in), 0.)?;
        let mut parts = vec![x, self.g.initializer(format!("{name}.weight"), weight)];
        if self.norm == Norm::Folded {
            let bias = self.random.tensor(&[outputs], 0.05, 0.)?;
            parts.push(self.g.initializer(format!("{name}.bias"), bias));
        }
        let (k, pad) = (size(k), size(k / 2));
        let attributes = [
            ("dilations", Attr::from([1, 1])),
            ("group", size(group).into()),
            ("kernel_shape", [k, k].into()),
            ("pads", [pad, pad, pad, pad].into()),
            ("strides", [conv.stride, conv.stride].into()),
        ];
        let y = self.g.node("Conv", &parts, attributes);
        if self.norm == Norm::Folded {
            return Ok(y);
        }
        let mut inputs = vec![y];
        for (part, spread, centre) in [
            ("weight", 0.2, 1.),
            ("bias", 0.05, 0.),
            ("running_mean", 0.1, 0.),
            ("running_var", 0.2, 1.),
        ] {
            let values = self.random.tensor(&[outputs], spread, centre)?;
            inputs.push(self.g.initializer(format!("{name}.bn.{part}"), values));
        }
        let attributes = [("epsilon", Attr::from(1e-5f32)), ("momentum", 0.9f32.into())];
        Ok(self.g.node("BatchNormalization", &inputs, attributes))
    }

    fn relu6(&mut self, x: Value) -> Result<Value> {
        let low = self.g.node("Constant", &[], [("value", Tensor::scalar(0f32)?.into())]);
        let high = self.g.node("Constant", &[], [("value", Tensor::scalar(6f32)?.into())]);
        Ok(self.g.node("Clip", &[x, low, high], []))
    }

    fn bottleneck(
        &mut self,
        name: &str,
        x: Value,
        inputs: usize,
        width: usize,
        stride: i64,
    ) -> Result<Value> {
        let outputs = 4 * width;
        let one = |inputs, outputs, stride| Conv { inputs, outputs, kernel: 1, stride, group: 1 };
        let three = Conv { inputs: width, outputs: width, kernel: 3, stride, group: 1 };
        let y = self.conv(&format!("{name}.conv1"), x, one(inputs, width, 1))?;
        let y = self.g.node("Relu", &[y], []);
        let y = self.conv(&format!("{name}.conv2"), y, three)?;
        let y = self.g.node("Relu", &[y], []);
        let y = self.conv(&format!("{name}.conv3"), y, one(width, outputs, 1))?;
        let shortcut = if inputs == outputs {
            x
        } else {
            self.conv(&format!("{name}.downsample.0"), x, one(inputs, outputs, stride))?
        };
        let y = self.g.node("Add", &[y, shortcut], []);
        Ok(self.g.node("Relu", &[y], []))
    }

    fn inverted_residual(
        &mut self,
        name: &str,
        x: Value,
        [inputs, outputs]: [usize; 2],
        expansion: usize,
        stride: i64,
    ) -> Result<Value> {
        let hidden = inputs * expansion;
        let mut y = x;
        if expansion > 1 {
            let expand = Conv { inputs, outputs: hidden, kernel: 1, stride: 1, group: 1 };
            y = self.conv(&format!("{name}.conv.0"), y, expand)?;
            y = self.relu6(y)?;
        }
        let depthwise = Conv { inputs: hidden, outputs: hidden, kernel: 3, stride, group: hidden };
        y = self.conv(&format!("{name}.conv.1"), y, depthwise)?;
        y = self.relu6(y)?;
        let project = Conv { inputs: hidden, outputs, kernel: 1, stride: 1, group: 1 };
        y = self.conv(&format!("{name}.conv.2"), y, project)?;
        if stride == 1 && inputs == outputs {
            y = self.g.node("Add", &[x, y], []);
        }
        Ok(y)
    }

    fn head(mut self, x: Value, inputs: usize, name: &str) -> Result<Model> {
        let (inputs, classes) = (self.channels(inputs), self.channels(1000));
        let y = self.g.node("GlobalAveragePool", &[x], []);
        let y = self.g.node("Flatten", &[y], [("axis", 1.into())]);
        let weight = self.random.tensor(&[classes, inputs], he(inputs), 0.)?;
        let weight = self.g.initializer(format!("{name}.weight"), weight);
        let bias = self.random.tensor(&[classes], 0.05, 0.)?;
        let bias = self.g.initializer(format!("{name}.bias"), bias);
        let attributes = [("alpha", Attr::from(1f32)), ("beta", 1f32.into()), ("transB", 1.into())];
        let y = self.g.node("Gemm", &[y, weight, bias], attributes);
        let dims = [Dim::Symbol("batch".into()), classes.into_dim()];
        self.g.output("output", y, f32_type(dims));
        self.g.finish()
    }
}

/// A tensor type of f32.
pub(crate) fn f32_type(dims: impl Into<Vec<Dim>>) -> TensorType {
    TensorType { dtype: DType::F32, shape: Some(SymShape(dims.into())) }
}

trait IntoDim {
    fn into_dim(self) -> Dim;
}

impl IntoDim for usize {
    fn into_dim(self) -> Dim {
        Dim::Known(self)
    }
}

fn size(n: usize) -> i64 {
    i64::try_from(n).expect("a layer's sizes are small")
}

/// Half the range of uniform weights that keep the variance of activations behind a ReLU, for
/// `fan_in` inputs each, a little less so that residual sums do not grow without end.
fn he(fan_in: usize) -> f32 {
    0.8 * (6. / fan_in as f32).sqrt()
}

/// SplitMix64: the same weights on every machine.
pub(crate) struct Random(u64);

impl Random {
    /// The numbers that follow from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Values spread uniformly by `spread` to either side of `centre`.
    pub(crate) fn tensor(&mut self, dims: &[usize], spread: f32, centre: f32) -> Result<Tensor> {
        let count = dims.iter().product();
        let values: Vec<f32> = (0..count).map(|_| centre + spread * self.next()).collect();
        Ok(Tensor::from_slice(dims, &values)?)
    }

    /// The next number of [-1, 1).
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // 24 bits fill a float's significand exactly.
        (z >> 40) as f32 / (1u32 << 23) as f32 - 1.
    }
}
