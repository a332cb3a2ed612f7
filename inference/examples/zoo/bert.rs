//! BERT-base's encoder node by node, in the form in which transformers exports it through PyTorch's
//! exporter: fused layer norms, attention and GELU spelled out, shapes computed in the graph.

use crate::nets::{Random, Size, f32_type};
use lgp_inference::{Attr, GraphBuilder, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

/// Sizes of a network.
pub(crate) struct Config {
    pub(crate) vocabulary: usize,
    pub(crate) positions: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) layers: usize,
}

/// The encoder with its pooler: batch and sequence are symbolic.
pub(crate) fn bert(size: Size) -> Result<Model> {
    let config = match size {
        Size::Full => {
            Config { vocabulary: 30_522, positions: 512, hidden: 768, heads: 12, layers: 12 }
        }
        Size::Tiny => Config { vocabulary: 99, positions: 32, hidden: 64, heads: 4, layers: 2 },
    };
    let hidden = config.hidden;
    let mut net =
        Writer { g: GraphBuilder::new("bert"), config, random: Random::new(0xbe27), constants: 0 };
    let [batch, sequence] = ["batch", "sequence"].map(|name| Dim::Symbol(name.into()));
    let ids = || TensorType {
        dtype: DType::I64,
        shape: Some(SymShape(vec![batch.clone(), sequence.clone()])),
    };
    let inputs =
        ["input_ids", "attention_mask", "token_type_ids"].map(|name| net.g.input(name, ids()));
    let [tokens, mask, types] = inputs;
    let mask = net.mask(tokens, mask)?;
    let mut x = net.embeddings(tokens, types)?;
    for layer in 0..net.config.layers {
        x = net.layer(&format!("encoder.layer.{layer}"), x, mask)?;
    }
    let first = net.ints(&[], &[0])?;
    let first = net.g.node("Gather", &[x, first], [("axis", 1.into())]);
    let weight = net.weight("pooler.dense.weight", &[hidden, hidden])?;
    let bias = net.bias("pooler.dense.bias", hidden)?;
    let attributes = [("alpha", Attr::from(1f32)), ("beta", 1f32.into()), ("transB", 1.into())];
    let pooled = net.g.node("Gemm", &[first, weight, bias], attributes);
    let pooled = net.g.node("Tanh", &[pooled], []);
    let features = Dim::Known(hidden);
    net.g.output(
        "last_hidden_state",
        x,
        f32_type([batch.clone(), sequence.clone(), features.clone()]),
    );
    net.g.output("pooler_output", pooled, f32_type([batch, features]));
    net.g.finish()
}

/// A network of attention in the making.
pub(crate) struct Writer {
    pub(crate) g: GraphBuilder,
    pub(crate) config: Config,
    pub(crate) random: Random,
    pub(crate) constants: usize,
}

impl Writer {
    pub(crate) fn weight(&mut self, name: &str, dims: &[usize]) -> Result<Value> {
        let weight = self.random.tensor(dims, 0.06, 0.)?;
        Ok(self.g.initializer(name, weight))
    }

    fn bias(&mut self, name: &str, size: usize) -> Result<Value> {
        let bias = self.random.tensor(&[size], 0.05, 0.)?;
        Ok(self.g.initializer(name, bias))
    }

    /// A stored list of integers, or a single one for no dimensions.
    pub(crate) fn ints(&mut self, dims: &[usize], values: &[i64]) -> Result<Value> {
        Ok(self.g.node("Constant", &[], [("value", Tensor::from_slice(dims, values)?.into())]))
    }

    pub(crate) fn float(&mut self, value: f32) -> Result<Value> {
        Ok(self.g.node("Constant", &[], [("value", Tensor::scalar(value)?.into())]))
    }

    /// Dimension `axis` of a value as a list of one.
    pub(crate) fn dim(&mut self, x: Value, axis: i64) -> Result<Value> {
        let shape = self.g.node("Shape", &[x], []);
        let axis = self.ints(&[], &[axis])?;
        let dim = self.g.node("Gather", &[shape, axis], [("axis", 0.into())]);
        let zero = self.ints(&[1], &[0])?;
        Ok(self.g.node("Unsqueeze", &[dim, zero], []))
    }

    /// Reshapes to batch and sequence of `like`, and what follows.
    pub(crate) fn reshape(&mut self, x: Value, like: Value, rest: &[i64]) -> Result<Value> {
        let mut dims = vec![self.dim(like, 0)?, self.dim(like, 1)?];
        for &size in rest {
            dims.push(self.ints(&[1], &[size])?);
        }
        let shape = self.g.node("Concat", &dims, [("axis", 0.into())]);
        Ok(self.g.node("Reshape", &[x, shape], [("allowzero", 0.into())]))
    }

    /// From 1 for tokens that count and 0 for padding to what is added to attention scores.
    fn mask(&mut self, tokens: Value, mask: Value) -> Result<Value> {
        let axis = self.ints(&[1], &[1])?;
        let mask = self.g.node("Unsqueeze", &[mask, axis], []);
        let axis = self.ints(&[1], &[2])?;
        let mask = self.g.node("Unsqueeze", &[mask, axis], []);
        let (batch, sequence) = (self.dim(tokens, 0)?, self.dim(tokens, 1)?);
        let one = self.ints(&[1], &[1])?;
        let dims = [batch, one, sequence, sequence];
        let shape = self.g.node("Concat", &dims, [("axis", 0.into())]);
        let mask = self.g.node("Expand", &[mask, shape], []);
        // ONNX's numbers of element types: 1 is f32, 9 is bool.
        let mask = self.g.node("Cast", &[mask], [("to", 1.into())]);
        let one = self.float(1.)?;
        let inverted = self.g.node("Sub", &[one, mask], []);
        let hidden = self.g.node("Cast", &[inverted], [("to", 9.into())]);
        let lowest = self.float(f32::MIN)?;
        Ok(self.g.node("Where", &[hidden, lowest, inverted], []))
    }

    fn embeddings(&mut self, tokens: Value, types: Value) -> Result<Value> {
        let Config { vocabulary, positions, hidden, .. } = self.config;
        let words = self.weight("embeddings.word_embeddings.weight", &[vocabulary, hidden])?;
        let kinds = self.weight("embeddings.token_type_embeddings.weight", &[2, hidden])?;
        let places = self.weight("embeddings.position_embeddings.weight", &[positions, hidden])?;
        let all: Vec<i64> = (0i64..).take(positions).collect();
        let all = self
            .g
            .initializer("embeddings.position_ids", Tensor::from_slice([1, positions], &all)?);
        let end = self.dim(tokens, 1)?;
        let (start, axis, step) =
            (self.ints(&[1], &[0])?, self.ints(&[1], &[1])?, self.ints(&[1], &[1])?);
        let ids = self.g.node("Slice", &[all, start, end, axis, step], []);
        let words = self.g.node("Gather", &[words, tokens], []);
        let kinds = self.g.node("Gather", &[kinds, types], []);
        let x = self.g.node("Add", &[words, kinds], []);
        let places = self.g.node("Gather", &[places, ids], []);
        let x = self.g.node("Add", &[x, places], []);
        self.layer_norm("embeddings.LayerNorm", x)
    }

    pub(crate) fn layer_norm(&mut self, name: &str, x: Value) -> Result<Value> {
        let scale = self.random.tensor(&[self.config.hidden], 0.2, 1.)?;
        let scale = self.g.initializer(format!("{name}.weight"), scale);
        let bias = self.bias(&format!("{name}.bias"), self.config.hidden)?;
        let attributes = [("axis", Attr::from(-1)), ("epsilon", 1e-12f32.into())];
        Ok(self.g.node("LayerNormalization", &[x, scale, bias], attributes))
    }

    pub(crate) fn dense(
        &mut self,
        name: &str,
        x: Value,
        [inputs, outputs]: [usize; 2],
    ) -> Result<Value> {
        let bias = self.bias(&format!("{name}.bias"), outputs)?;
        self.constants += 1;
        // The exporter stores the transposed weight under a name of its own.
        let weight =
            self.weight(&format!("onnx::MatMul_{}", self.constants), &[inputs, outputs])?;
        let y = self.g.node("MatMul", &[x, weight], []);
        Ok(self.g.node("Add", &[bias, y], []))
    }

    fn layer(&mut self, name: &str, x: Value, mask: Value) -> Result<Value> {
        let hidden = self.config.hidden;
        let attended = self.attention(&format!("{name}.attention.self"), x, mask)?;
        let y = self.dense(&format!("{name}.attention.output.dense"), attended, [hidden; 2])?;
        let y = self.g.node("Add", &[y, x], []);
        let x = self.layer_norm(&format!("{name}.attention.output.LayerNorm"), y)?;
        let y = self.dense(&format!("{name}.intermediate.dense"), x, [hidden, 4 * hidden])?;
        let y = self.gelu(y)?;
        let y = self.dense(&format!("{name}.output.dense"), y, [4 * hidden, hidden])?;
        let y = self.g.node("Add", &[y, x], []);
        self.layer_norm(&format!("{name}.output.LayerNorm"), y)
    }

    /// Attention as `scaled_dot_product_attention` is exported: both factors take half the scale.
    fn attention(&mut self, name: &str, x: Value, mask: Value) -> Result<Value> {
        let Config { hidden, heads, .. } = self.config;
        let width = count(hidden / heads);
        let mut parts = Vec::new();
        for part in ["query", "key", "value"] {
            let y = self.dense(&format!("{name}.{part}"), x, [hidden; 2])?;
            let y = self.reshape(y, x, &[-1, width])?;
            parts.push(self.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]));
        }
        let scale = self.scale(parts[0])?;
        let query = self.g.node("Mul", &[parts[0], scale], []);
        let key = self.g.node("Transpose", &[parts[1]], [("perm", [0, 1, 3, 2].into())]);
        let key = self.g.node("Mul", &[key, scale], []);
        let scores = self.g.node("MatMul", &[query, key], []);
        let scores = self.g.node("Add", &[scores, mask], []);
        let shares = self.g.node("Softmax", &[scores], [("axis", (-1).into())]);
        let y = self.g.node("MatMul", &[shares, parts[2]], []);
        let y = self.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]);
        self.reshape(y, x, &[count(hidden)])
    }

    /// The square root of one over the root of the head's width.
    fn scale(&mut self, query: Value) -> Result<Value> {
        let shape = self.g.node("Shape", &[query], []);
        let (start, end) = (self.ints(&[1], &[-1])?, self.ints(&[1], &[i64::MAX])?);
        let width = self.g.node("Slice", &[shape, start, end], []);
        let width = self.g.node("Cast", &[width], [("to", 1.into())]);
        let root = self.g.node("Sqrt", &[width], []);
        let one = self.float(1.)?;
        let scale = self.g.node("Div", &[one, root], []);
        Ok(self.g.node("Sqrt", &[scale], []))
    }

    fn gelu(&mut self, x: Value) -> Result<Value> {
        let root = self.float(std::f32::consts::SQRT_2)?;
        let y = self.g.node("Div", &[x, root], []);
        let y = self.g.node("Erf", &[y], []);
        let one = self.float(1.)?;
        let y = self.g.node("Add", &[y, one], []);
        let y = self.g.node("Mul", &[x, y], []);
        let half = self.float(0.5)?;
        Ok(self.g.node("Mul", &[y, half], []))
    }
}

pub(crate) fn count(n: usize) -> i64 {
    i64::try_from(n).expect("a layer's sizes are small")
}
