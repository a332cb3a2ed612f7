//! Small networks of blocks as torchvision's families have them: squeeze and excite, depthwise
//! with layer norm, dense concatenation, channel shuffle, grouped and gated convolutions.

use crate::nets::{Net, Random, Size, f32_type};
use lgp_inference::{Attr, GraphBuilder, Model, Result, Value};
use lgp_memory::{Dim, Tensor};

/// Every network of this file by name.
pub(crate) const BLOCKS: [(&str, Net); 6] = [
    ("mobilenetv3_blocks", |size| network("mobilenetv3_blocks", size, squeeze_excite)),
    ("convnext_blocks", |size| network("convnext_blocks", size, convnext)),
    ("densenet_blocks", |size| network("densenet_blocks", size, dense)),
    ("shufflenet_blocks", |size| network("shufflenet_blocks", size, shuffle)),
    ("regnet_blocks", |size| network("regnet_blocks", size, grouped)),
    ("yolo_blocks", |size| network("yolo_blocks", size, gated)),
];

/// A body: from the stem's output and its channels to another output and its channels.
type Body = fn(&mut Writer, Value, usize) -> Result<(Value, usize)>;

fn network(name: &str, size: Size, body: Body) -> Result<Model> {
    let channels = if size == Size::Full { 64 } else { 16 };
    let g = GraphBuilder::new(name).with_opset(20);
    let mut net = Writer { g, random: Random::new(0xb10c), count: 0 };
    let dim = |name: &str| Dim::Symbol(name.into());
    let dims = [dim("batch"), Dim::Known(3), dim("height"), dim("width")];
    let x = net.g.input("input", f32_type(dims));
    let x = net.conv(x, [3, channels], [3, 2, 1])?;
    let x = net.norm(x, channels)?;
    let x = net.op("Relu", &[x]);
    let (x, channels) = body(&mut net, x, channels)?;
    let x = net.op("GlobalAveragePool", &[x]);
    let x = net.g.node("Flatten", &[x], [("axis", 1.into())]);
    let weight = net.weight(&[channels, 10])?;
    let y = net.op("MatMul", &[x, weight]);
    net.g.output("output", y, f32_type([dim("batch"), Dim::Known(10)]));
    net.g.finish()
}

struct Writer {
    g: GraphBuilder,
    random: Random,
    count: usize,
}

impl Writer {
    fn op(&mut self, op: &str, inputs: &[Value]) -> Value {
        self.g.node(op, inputs, [])
    }

    fn constant(&mut self, tensor: Tensor) -> Value {
        self.count += 1;
        self.g.initializer(format!("constant_{}", self.count), tensor)
    }

    /// A weight whose last axes are summed over.
    fn weight(&mut self, dims: &[usize]) -> Result<Value> {
        let sums: usize = dims.iter().skip(1).product();
        let weight = self.random.tensor(dims, (3. / sums.max(1) as f32).sqrt(), 0.)?;
        Ok(self.constant(weight))
    }

    fn vector(&mut self, n: usize, spread: f32, centre: f32) -> Result<Value> {
        let vector = self.random.tensor(&[n], spread, centre)?;
        Ok(self.constant(vector))
    }

    /// A padded convolution with a bias: channels in and out; kernel, stride and groups.
    fn conv(
        &mut self,
        x: Value,
        [inputs, outputs]: [usize; 2],
        [kernel, stride, group]: [usize; 3],
    ) -> Result<Value> {
        let weight = self.weight(&[outputs, inputs / group, kernel, kernel])?;
        let bias = self.vector(outputs, 0.05, 0.)?;
        let int = |n: usize| i64::try_from(n).expect("a layer's sizes are small");
        let attributes = [
            ("group", Attr::from(int(group))),
            ("pads", [int(kernel / 2); 4].into()),
            ("strides", [int(stride); 2].into()),
        ];
        Ok(self.g.node("Conv", &[x, weight, bias], attributes))
    }

    fn norm(&mut self, x: Value, channels: usize) -> Result<Value> {
        let inputs = [
            x,
            self.vector(channels, 0.2, 1.)?,
            self.vector(channels, 0.05, 0.)?,
            self.vector(channels, 0.1, 0.)?,
            self.vector(channels, 0.2, 1.)?,
        ];
        Ok(self.op("BatchNormalization", &inputs))
    }

    fn silu(&mut self, x: Value) -> Value {
        let gate = self.op("Sigmoid", &[x]);
        self.op("Mul", &[x, gate])
    }
}

/// Inverted residuals with squeeze and excite and hard activations.
fn squeeze_excite(net: &mut Writer, x: Value, c: usize) -> Result<(Value, usize)> {
    let mut x = x;
    for _ in 0..2 {
        let y = net.conv(x, [c, 2 * c], [1, 1, 1])?;
        let y = net.norm(y, 2 * c)?;
        let y = net.op("HardSwish", &[y]);
        let y = net.conv(y, [2 * c, 2 * c], [5, 1, 2 * c])?;
        let y = net.norm(y, 2 * c)?;
        let y = net.op("HardSwish", &[y]);
        let s = net.op("GlobalAveragePool", &[y]);
        let s = net.conv(s, [2 * c, c / 2], [1, 1, 1])?;
        let s = net.op("Relu", &[s]);
        let s = net.conv(s, [c / 2, 2 * c], [1, 1, 1])?;
        let s = net.g.node("HardSigmoid", &[s], [("alpha", (1f32 / 6.).into())]);
        let y = net.op("Mul", &[s, y]);
        let y = net.conv(y, [2 * c, c], [1, 1, 1])?;
        x = net.op("Add", &[y, x]);
    }
    Ok((x, c))
}

/// Depthwise 7×7, layer norm over the channels, two products with GELU, a scaled residual.
fn convnext(net: &mut Writer, x: Value, c: usize) -> Result<(Value, usize)> {
    let mut x = x;
    for _ in 0..2 {
        let y = net.conv(x, [c, c], [7, 1, c])?;
        let y = net.g.node("Transpose", &[y], [("perm", Attr::from([0, 2, 3, 1]))]);
        let (scale, shift) = (net.vector(c, 0.2, 1.)?, net.vector(c, 0.05, 0.)?);
        let y = net.op("LayerNormalization", &[y, scale, shift]);
        let wide = net.weight(&[c, 4 * c])?;
        let y = net.op("MatMul", &[y, wide]);
        let bias = net.vector(4 * c, 0.05, 0.)?;
        let y = net.op("Add", &[y, bias]);
        let y = net.op("Gelu", &[y]);
        let narrow = net.weight(&[4 * c, c])?;
        let y = net.op("MatMul", &[y, narrow]);
        let gamma = net.vector(c, 0.1, 0.2)?;
        let y = net.op("Mul", &[y, gamma]);
        let y = net.g.node("Transpose", &[y], [("perm", Attr::from([0, 3, 1, 2]))]);
        x = net.op("Add", &[y, x]);
    }
    Ok((x, c))
}

/// Normalisation before each convolution, whose output is put beside its input; then a transition.
fn dense(net: &mut Writer, x: Value, c: usize) -> Result<(Value, usize)> {
    let (mut x, mut channels) = (x, c);
    for _ in 0..3 {
        let y = net.norm(x, channels)?;
        let y = net.op("Relu", &[y]);
        let y = net.conv(y, [channels, c], [1, 1, 1])?;
        let y = net.norm(y, c)?;
        let y = net.op("Relu", &[y]);
        let y = net.conv(y, [c, c / 2], [3, 1, 1])?;
        x = net.g.node("Concat", &[x, y], [("axis", 1.into())]);
        channels += c / 2;
    }
    x = net.conv(x, [channels, c], [1, 1, 1])?;
    let window = [("kernel_shape", Attr::from([2, 2])), ("strides", [2, 2].into())];
    Ok((net.g.node("AveragePool", &[x], window), c))
}

/// Half of the channels through convolutions, then both halves shuffled.
fn shuffle(net: &mut Writer, x: Value, c: usize) -> Result<(Value, usize)> {
    let (mut x, half) = (x, c / 2);
    for _ in 0..2 {
        let [a, b] =
            net.g.node_with_outputs("Split", &[x], [("axis", 1.into()), ("num_outputs", 2.into())]);
        let b = net.conv(b, [half, half], [1, 1, 1])?;
        let b = net.op("Relu", &[b]);
        let b = net.conv(b, [half, half], [3, 1, half])?;
        let b = net.conv(b, [half, half], [1, 1, 1])?;
        let b = net.op("Relu", &[b]);
        x = net.g.node("Concat", &[a, b], [("axis", 1.into())]);
        let size = net.op("Shape", &[x]);
        let at = |net: &mut Writer, n: i64| -> Result<Value> {
            let index = Tensor::from_slice([1], &[n])?;
            let index = net.constant(index);
            Ok(net.g.node("Gather", &[size, index], [("axis", 0.into())]))
        };
        let (batch, height, width) = (at(net, 0)?, at(net, 2)?, at(net, 3)?);
        let half = i64::try_from(half).expect("a layer's sizes are small");
        let groups = Tensor::from_slice([2], &[2, half])?;
        let groups = net.constant(groups);
        let joint = Tensor::from_slice([1], &[2 * half])?;
        let joint = net.constant(joint);
        let along = [("axis", Attr::from(0))];
        let apart = net.g.node("Concat", &[batch, groups, height, width], along.clone());
        let whole = net.g.node("Concat", &[batch, joint, height, width], along);
        x = net.op("Reshape", &[x, apart]);
        x = net.g.node("Transpose", &[x], [("perm", Attr::from([0, 2, 1, 3, 4]))]);
        x = net.op("Reshape", &[x, whole]);
    }
    Ok((x, c))
}

/// Bottlenecks of grouped convolutions with a strided shortcut.
fn grouped(net: &mut Writer, x: Value, c: usize) -> Result<(Value, usize)> {
    let mut x = x;
    for stride in [1, 2] {
        let y = net.conv(x, [c, c], [1, 1, 1])?;
        let y = net.norm(y, c)?;
        let y = net.op("Relu", &[y]);
        let y = net.conv(y, [c, c], [3, stride, c / 8])?;
        let y = net.op("Relu", &[y]);
        let y = net.conv(y, [c, c], [1, 1, 1])?;
        let shortcut = if stride == 1 { x } else { net.conv(x, [c, c], [1, stride, 1])? };
        let y = net.op("Add", &[shortcut, y]);
        x = net.op("Relu", &[y]);
    }
    Ok((x, c))
}

/// SiLU, a cross-stage split, a pyramid of pools and an upscaled branch.
fn gated(net: &mut Writer, x: Value, c: usize) -> Result<(Value, usize)> {
    let x = net.conv(x, [c, c], [3, 1, 1])?;
    let x = net.silu(x);
    let y = net.conv(x, [c, c], [1, 1, 1])?;
    let y = net.silu(y);
    let y = net.conv(y, [c, c], [3, 1, 1])?;
    let y = net.silu(y);
    let mut x = net.op("Add", &[x, y]);
    let window = [
        ("kernel_shape", Attr::from([5, 5])),
        ("pads", [2, 2, 2, 2].into()),
        ("strides", [1, 1].into()),
    ];
    let mut parts = vec![x];
    for _ in 0..2 {
        x = net.g.node("MaxPool", &[x], window.clone());
        parts.push(x);
    }
    let x = net.g.node("Concat", &parts, [("axis", 1.into())]);
    let down = net.conv(x, [3 * c, c], [3, 2, 1])?;
    let scales = Tensor::from_slice([4], &[1f32, 1., 2., 2.])?;
    let scales = net.constant(scales);
    let up =
        [("mode", Attr::from("nearest")), ("coordinate_transformation_mode", "asymmetric".into())];
    let up = net.g.node("Resize", &[down, Value::ABSENT, scales], up);
    let up = net.conv(up, [c, c], [1, 1, 1])?;
    Ok((net.op("LeakyRelu", &[up]), c))
}
