//! Layers with seeded weights, in the form in which PyTorch's exporter writes them, for networks of
//! all families; batch normalisation is folded into the convolutions.

use crate::nets::{Random, f32_type};
use crate::transformer::count;
use lgp_inference::{Attr, GraphBuilder, Model, Result, Value};
use lgp_memory::{Dim, Tensor};

/// A convolution: its channels, and how its square window moves.
#[derive(Clone, Copy)]
pub(crate) struct Conv {
    inputs: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    groups: usize,
    pad: usize,
}

impl Conv {
    /// Padded so that the image keeps its size.
    pub(crate) fn new(inputs: usize, outputs: usize, kernel: usize) -> Self {
        Self { inputs, outputs, kernel, stride: 1, dilation: 1, groups: 1, pad: kernel / 2 }
    }

    /// Windows side by side.
    pub(crate) fn patches(inputs: usize, outputs: usize, side: usize) -> Self {
        Self { stride: side, pad: 0, ..Self::new(inputs, outputs, side) }
    }

    /// One filter a channel.
    pub(crate) fn depthwise(channels: usize, kernel: usize) -> Self {
        Self::new(channels, channels, kernel).groups(channels)
    }

    /// With a stride.
    pub(crate) fn stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// With holes in its window.
    pub(crate) fn dilation(self, dilation: usize) -> Self {
        Self { dilation, pad: dilation * (self.kernel / 2), ..self }
    }

    /// With its channels in groups.
    pub(crate) fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }
}

/// Writes a network's nodes.
pub(crate) struct Layers {
    pub(crate) g: GraphBuilder,
    /// What a convolution makes of the spread of what it reads; activations take some of it away.
    pub(crate) gain: f32,
    random: Random,
}

impl Layers {
    /// An empty network whose weights come of a seed.
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        Self { g: GraphBuilder::new(name), gain: 1.13, random: Random::new(seed) }
    }

    /// A batch of square images in colour.
    pub(crate) fn images(&mut self, name: &str, side: usize) -> Value {
        let dims = [batch(), Dim::Known(3), Dim::Known(side), Dim::Known(side)];
        self.g.input(name, f32_type(dims))
    }

    /// The model whose one output is `count` numbers a sample.
    pub(crate) fn finish(mut self, y: Value, count: usize) -> Result<Model> {
        self.g.output("output", y, f32_type([batch(), Dim::Known(count)]));
        self.g.finish()
    }

    /// An operator without attributes.
    pub(crate) fn op(&mut self, op: &str, inputs: &[Value]) -> Value {
        self.g.node(op, inputs, [])
    }

    /// A stored tensor of numbers spread uniformly by `spread` to either side of `centre`.
    pub(crate) fn uniform(
        &mut self,
        name: &str,
        dims: &[usize],
        spread: f32,
        centre: f32,
    ) -> Result<Value> {
        let tensor = self.random.tensor(dims, spread, centre)?;
        Ok(self.g.initializer(name, tensor))
    }

    fn bias(&mut self, name: &str, size: usize) -> Result<Value> {
        self.uniform(&format!("{name}.bias"), &[size], 0.05, 0.)
    }

    pub(crate) fn conv(&mut self, name: &str, x: Value, conv: Conv) -> Result<Value> {
        let Conv { inputs, outputs, kernel, stride, dilation, groups, pad } = conv;
        let dims = [outputs, inputs / groups, kernel, kernel];
        let spread = self.gain * unit(dims[1] * kernel * kernel);
        let weight = self.uniform(&format!("{name}.weight"), &dims, spread, 0.)?;
        let bias = self.bias(name, outputs)?;
        let [kernel, stride, dilation, pad] = [kernel, stride, dilation, pad].map(count);
        let attributes = [
            ("dilations", Attr::from([dilation; 2])),
            ("group", count(groups).into()),
            ("kernel_shape", [kernel; 2].into()),
            ("pads", [pad; 4].into()),
            ("strides", [stride; 2].into()),
        ];
        Ok(self.g.node("Conv", &[x, weight, bias], attributes))
    }

    /// A product with a stored matrix of so many rows and columns.
    pub(crate) fn product(
        &mut self,
        name: &str,
        x: Value,
        [inputs, outputs]: [usize; 2],
    ) -> Result<Value> {
        let weight =
            self.uniform(&format!("{name}.weight"), &[inputs, outputs], unit(inputs), 0.)?;
        Ok(self.op("MatMul", &[x, weight]))
    }

    /// A fully connected layer on the last axis.
    pub(crate) fn linear(&mut self, name: &str, x: Value, sizes: [usize; 2]) -> Result<Value> {
        let y = self.product(name, x, sizes)?;
        let bias = self.bias(name, sizes[1])?;
        Ok(self.op("Add", &[bias, y]))
    }

    /// A fully connected layer on rows.
    pub(crate) fn gemm(
        &mut self,
        name: &str,
        x: Value,
        [inputs, outputs]: [usize; 2],
    ) -> Result<Value> {
        let weight =
            self.uniform(&format!("{name}.weight"), &[outputs, inputs], unit(inputs), 0.)?;
        let bias = self.bias(name, outputs)?;
        let attributes = [("alpha", Attr::from(1f32)), ("beta", 1f32.into()), ("transB", 1.into())];
        Ok(self.g.node("Gemm", &[x, weight, bias], attributes))
    }

    /// Normalises the last axis.
    pub(crate) fn layer_norm(
        &mut self,
        name: &str,
        x: Value,
        features: usize,
        epsilon: f32,
    ) -> Result<Value> {
        let scale = self.uniform(&format!("{name}.weight"), &[features], 0.2, 1.)?;
        let bias = self.bias(name, features)?;
        let attributes = [("axis", Attr::from(-1)), ("epsilon", epsilon.into())];
        Ok(self.g.node("LayerNormalization", &[x, scale, bias], attributes))
    }

    /// The middle of each image, as rows.
    pub(crate) fn pool(&mut self, x: Value) -> Value {
        let y = self.op("GlobalAveragePool", &[x]);
        self.g.node("Flatten", &[y], [("axis", 1.into())])
    }

    /// The largest of 3×3, in steps of two.
    pub(crate) fn max_pool(&mut self, x: Value) -> Value {
        let attributes = [
            ("kernel_shape", Attr::from([3, 3])),
            ("pads", [1, 1, 1, 1].into()),
            ("strides", [2, 2].into()),
        ];
        self.g.node("MaxPool", &[x], attributes)
    }

    pub(crate) fn transpose<const N: usize>(&mut self, x: Value, perm: [i64; N]) -> Value {
        self.g.node("Transpose", &[x], [("perm", perm.into())])
    }

    pub(crate) fn concat(&mut self, inputs: &[Value], axis: i64) -> Value {
        self.g.node("Concat", inputs, [("axis", axis.into())])
    }

    /// -1 is what remains, 0 is as before.
    pub(crate) fn reshape(&mut self, x: Value, dims: &[i64]) -> Result<Value> {
        let dims = ints(&mut self.g, dims)?;
        Ok(self.g.node("Reshape", &[x, dims], [("allowzero", 0.into())]))
    }

    /// From `start` up to `end` along an axis, in steps.
    pub(crate) fn slice(
        &mut self,
        x: Value,
        axis: i64,
        [start, end, step]: [i64; 3],
    ) -> Result<Value> {
        let mut inputs = vec![x];
        for value in [start, end, axis, step] {
            inputs.push(ints(&mut self.g, &[value])?);
        }
        Ok(self.op("Slice", &inputs))
    }

    /// Bilinearly to another height and width, as `interpolate` is exported.
    pub(crate) fn resize(&mut self, x: Value, sides: [usize; 2]) -> Result<Value> {
        let shape = self.op("Shape", &[x]);
        let kept = self.slice(shape, 0, [0, 2, 1])?;
        let sides = ints(&mut self.g, &sides.map(count))?;
        let sizes = self.concat(&[kept, sides], 0);
        let attributes = [
            ("coordinate_transformation_mode", Attr::from("pytorch_half_pixel")),
            ("cubic_coeff_a", (-0.75f32).into()),
            ("mode", "linear".into()),
            ("nearest_mode", "floor".into()),
        ];
        Ok(self.g.node("Resize", &[x, Value::ABSENT, Value::ABSENT, sizes], attributes))
    }
}

/// The dimension that every sample has one of.
pub(crate) fn batch() -> Dim {
    Dim::Symbol("batch".into())
}

/// Half the range of uniform weights that keep the variance, for so many inputs each.
fn unit(inputs: usize) -> f32 {
    (3. / inputs as f32).sqrt()
}

/// A list of integers.
pub(crate) fn ints(g: &mut GraphBuilder, values: &[i64]) -> Result<Value> {
    let list = Tensor::from_slice([values.len()], values)?;
    Ok(g.node("Constant", &[], [("value", list.into())]))
}

/// A single number.
pub(crate) fn float(g: &mut GraphBuilder, value: f32) -> Result<Value> {
    Ok(g.node("Constant", &[], [("value", Tensor::scalar(value)?.into())]))
}

/// A number times its sigmoid.
pub(crate) fn silu(g: &mut GraphBuilder, x: Value) -> Value {
    let gate = g.node("Sigmoid", &[x], []);
    g.node("Mul", &[x, gate], [])
}

/// GELU in the form with an error function.
pub(crate) fn gelu(g: &mut GraphBuilder, x: Value) -> Result<Value> {
    let root = float(g, std::f32::consts::SQRT_2)?;
    let y = g.node("Div", &[x, root], []);
    let y = g.node("Erf", &[y], []);
    let one = float(g, 1.)?;
    let y = g.node("Add", &[y, one], []);
    let y = g.node("Mul", &[x, y], []);
    let half = float(g, 0.5)?;
    Ok(g.node("Mul", &[y, half], []))
}

/// Attention as `scaled_dot_product_attention` is exported: both factors take half the scale, and
/// `mask` is added to the scores. Queries, keys and values are `[batch, heads, sequence, width]`.
pub(crate) fn attend(
    g: &mut GraphBuilder,
    [query, key, value]: [Value; 3],
    mask: Option<Value>,
) -> Result<Value> {
    let scale = half_scale(g, query)?;
    let query = g.node("Mul", &[query, scale], []);
    let key = g.node("Transpose", &[key], [("perm", [0, 1, 3, 2].into())]);
    let key = g.node("Mul", &[key, scale], []);
    let mut scores = g.node("MatMul", &[query, key], []);
    if let Some(mask) = mask {
        scores = g.node("Add", &[scores, mask], []);
    }
    let shares = g.node("Softmax", &[scores], [("axis", (-1).into())]);
    Ok(g.node("MatMul", &[shares, value], []))
}

/// The square root of one over the root of the head's width.
fn half_scale(g: &mut GraphBuilder, query: Value) -> Result<Value> {
    let shape = g.node("Shape", &[query], []);
    let (start, end) = (ints(g, &[-1])?, ints(g, &[i64::MAX])?);
    let width = g.node("Slice", &[shape, start, end], []);
    // ONNX's number of f32.
    let width = g.node("Cast", &[width], [("to", 1.into())]);
    let root = g.node("Sqrt", &[width], []);
    let one = float(g, 1.)?;
    let scale = g.node("Div", &[one, root], []);
    Ok(g.node("Sqrt", &[scale], []))
}
