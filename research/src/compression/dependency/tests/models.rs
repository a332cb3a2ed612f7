//! Small models of every kind of dependency between channels.

use lgp_inference::{Attr, GraphBuilder, Model, Value};
use lgp_memory::{DType, Shape, SymShape, Tensor, TensorType};

pub(super) fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let len = shape.iter().product::<usize>();
    let value = |i: usize| ((i * 37 + seed * 11) % 23) as f32 / 14. - 0.7;
    Tensor::from_slice(shape.to_vec(), &(0..len).map(value).collect::<Vec<_>>()).unwrap()
}

/// A graph under construction whose stored tensors get names and numbers of their own.
pub(super) struct Build {
    pub(super) g: GraphBuilder,
    pub(super) stored: usize,
}

impl Build {
    pub(super) fn new(x: &[usize]) -> (Self, Value) {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType::concrete(DType::F32, &Shape::from(x.to_vec())));
        (Self { g, stored: 0 }, x)
    }

    pub(super) fn stored(&mut self, shape: &[usize]) -> Value {
        self.stored += 1;
        self.g.initializer(format!("w{}", self.stored), numbers(shape, self.stored))
    }

    pub(super) fn ints(&mut self, values: &[i64]) -> Value {
        self.stored += 1;
        let tensor = Tensor::from_slice([values.len()], values).unwrap();
        self.g.initializer(format!("ints{}", self.stored), tensor)
    }

    pub(super) fn node(
        &mut self,
        op: &str,
        inputs: &[Value],
        attributes: Vec<(&str, Attr)>,
    ) -> Value {
        self.g.node(op, inputs, attributes)
    }

    pub(super) fn conv(&mut self, x: Value, shape: &[usize], group: i64) -> Value {
        let (w, b) = (self.stored(shape), self.stored(&shape[..1]));
        let pad = (shape[2] as i64 - 1) / 2;
        let pads = Attr::Ints(vec![pad; 4]);
        self.node("Conv", &[x, w, b], vec![("group", group.into()), ("pads", pads)])
    }

    /// A norm with a scale, a shift, a mean and a variance of `[channels]`.
    pub(super) fn norm(&mut self, x: Value, channels: usize) -> Value {
        let [scale, shift, mean] = [0; 3].map(|_| self.stored(&[channels]));
        self.stored += 1;
        let variance: Vec<f32> = (0..channels).map(|c| 0.5 + (c % 3) as f32).collect();
        let variance = Tensor::from_slice([channels], &variance).unwrap();
        let variance = self.g.initializer(format!("w{}", self.stored), variance);
        self.node("BatchNormalization", &[x, scale, shift, mean, variance], vec![])
    }

    pub(super) fn dense(&mut self, x: Value, shape: &[usize]) -> Value {
        let (w, b) = (self.stored(shape), self.stored(&shape[1..]));
        self.node("Gemm", &[x, w, b], vec![])
    }

    pub(super) fn finish(mut self, y: Value) -> Model {
        self.g.output("y", y, TensorType { dtype: DType::F32, shape: None::<SymShape> });
        self.g.finish().unwrap()
    }
}

pub(super) fn chain() -> Model {
    let (mut b, x) = Build::new(&[1, 3, 5, 5]);
    let y = b.conv(x, &[8, 3, 3, 3], 1);
    let y = b.norm(y, 8);
    let y = b.node("Relu", &[y], vec![]);
    let y = b.conv(y, &[4, 8, 3, 3], 1);
    b.finish(y)
}

pub(super) fn residual() -> Model {
    let (mut b, x) = Build::new(&[1, 3, 5, 5]);
    let stem = b.conv(x, &[6, 3, 3, 3], 1);
    let y = b.conv(stem, &[4, 6, 1, 1], 1);
    let y = b.node("Relu", &[y], vec![]);
    let y = b.conv(y, &[6, 4, 3, 3], 1);
    let y = b.node("Add", &[y, stem], vec![]);
    let y = b.conv(y, &[2, 6, 1, 1], 1);
    b.finish(y)
}

pub(super) fn depthwise() -> Model {
    let (mut b, x) = Build::new(&[1, 3, 5, 5]);
    let y = b.conv(x, &[8, 3, 1, 1], 1);
    let y = b.conv(y, &[8, 1, 3, 3], 8);
    let y = b.node("HardSwish", &[y], vec![]);
    let y = b.conv(y, &[2, 8, 1, 1], 1);
    b.finish(y)
}

pub(super) fn flattened() -> Model {
    let (mut b, x) = Build::new(&[2, 3, 4, 4]);
    let y = b.conv(x, &[5, 3, 3, 3], 1);
    let y = b.node("Relu", &[y], vec![]);
    let y = b.node("Flatten", &[y], vec![]);
    let y = b.dense(y, &[80, 7]);
    let y = b.node("Tanh", &[y], vec![]);
    let y = b.dense(y, &[7, 3]);
    b.finish(y)
}

pub(super) fn concat() -> Model {
    let (mut b, x) = Build::new(&[1, 3, 4, 4]);
    let (left, right) = (b.conv(x, &[4, 3, 3, 3], 1), b.conv(x, &[6, 3, 1, 1], 1));
    let y = b.node("Concat", &[left, right, x], vec![("axis", 1.into())]);
    let y = b.conv(y, &[2, 13, 1, 1], 1);
    b.finish(y)
}

/// The halves of a gated unit, divided by stored lengths.
pub(super) fn gated() -> Model {
    let (mut b, x) = Build::new(&[2, 5]);
    let y = b.dense(x, &[5, 12]);
    let lengths = b.ints(&[6, 6]);
    let [left, right] = b.g.node_with_outputs("Split", &[y, lengths], [("axis", 1.into())]);
    let left = b.node("Sigmoid", &[left], vec![]);
    let y = b.node("Mul", &[left, right], vec![]);
    let y = b.dense(y, &[6, 3]);
    b.finish(y)
}

/// Attention of 4 heads of width 3 over 5 places of 6 features, and shapes as numbers.
pub(super) fn attention() -> Model {
    let (mut b, x) = Build::new(&[1, 5, 6]);
    let divided = b.ints(&[1, 5, 4, 3]);
    let joined = b.ints(&[0, 0, 12]);
    let heads = |b: &mut Build, perm: [i64; 4]| {
        let (w, bias) = (b.stored(&[6, 12]), b.stored(&[12]));
        let y = b.node("MatMul", &[x, w], vec![]);
        let y = b.node("Add", &[y, bias], vec![]);
        let y = b.node("Reshape", &[y, divided], vec![]);
        b.node("Transpose", &[y], vec![("perm", perm.into())])
    };
    let (q, k) = (heads(&mut b, [0, 2, 1, 3]), heads(&mut b, [0, 2, 3, 1]));
    let v = heads(&mut b, [0, 2, 1, 3]);
    let scores = b.node("MatMul", &[q, k], vec![]);
    let scores = b.node("Softmax", &[scores], vec![("axis", (-1).into())]);
    let y = b.node("MatMul", &[scores, v], vec![]);
    let y = b.node("Transpose", &[y], vec![("perm", [0, 2, 1, 3].into())]);
    let y = b.node("Reshape", &[y, joined], vec![]);
    let w = b.stored(&[12, 6]);
    let y = b.node("MatMul", &[y, w], vec![]);
    let y = b.node("Add", &[y, x], vec![]);
    b.finish(y)
}

/// The same with shapes that the model computes.
pub(super) fn computed_shape() -> Model {
    let (mut b, x) = Build::new(&[2, 5, 6]);
    let shape = b.node("Shape", &[x], vec![("end", 2.into())]);
    let (tail, merged) = (b.ints(&[4, 3]), b.ints(&[-1]));
    let divided = b.node("Concat", &[shape, tail], vec![("axis", 0.into())]);
    let joined = b.node("Concat", &[shape, merged], vec![("axis", 0.into())]);
    let (w, v) = (b.stored(&[6, 12]), b.stored(&[12, 2]));
    let y = b.node("MatMul", &[x, w], vec![]);
    let y = b.node("Reshape", &[y, divided], vec![]);
    let y = b.node("Softmax", &[y], vec![("axis", 1.into())]);
    let y = b.node("Reshape", &[y, joined], vec![]);
    let y = b.node("MatMul", &[y, v], vec![]);
    b.finish(y)
}
