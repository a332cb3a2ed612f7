//! BERT-base's encoder node by node, in the form in which transformers exports it through PyTorch's
//! exporter: fused layer norms, attention and GELU spelled out, shapes computed in the graph.

use crate::layers::{attend, gelu};
use crate::nets::{Size, f32_type};
use crate::transformer::{Config, Writer, count};
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};

/// What its norms add to the variance.
const EPSILON: f32 = 1e-12;

/// The encoder with its pooler: batch and sequence are symbolic.
pub(crate) fn bert(size: Size) -> Result<Model> {
    let config = match size {
        Size::Full => {
            Config { vocabulary: 30_522, positions: 512, hidden: 768, heads: 12, layers: 12 }
        }
        Size::Tiny => Config { vocabulary: 99, positions: 32, hidden: 64, heads: 4, layers: 2 },
    };
    let hidden = config.hidden;
    let mut net = Writer::new("bert", config, 0xbe27);
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

impl Writer {
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
        self.layer_norm("embeddings.LayerNorm", x, EPSILON)
    }

    fn layer(&mut self, name: &str, x: Value, mask: Value) -> Result<Value> {
        let hidden = self.config.hidden;
        let attended = self.attention(&format!("{name}.attention.self"), x, mask)?;
        let y = self.dense(&format!("{name}.attention.output.dense"), attended, [hidden; 2])?;
        let y = self.g.node("Add", &[y, x], []);
        let x = self.layer_norm(&format!("{name}.attention.output.LayerNorm"), y, EPSILON)?;
        let y = self.dense(&format!("{name}.intermediate.dense"), x, [hidden, 4 * hidden])?;
        let y = gelu(&mut self.g, y)?;
        let y = self.dense(&format!("{name}.output.dense"), y, [4 * hidden, hidden])?;
        let y = self.g.node("Add", &[y, x], []);
        self.layer_norm(&format!("{name}.output.LayerNorm"), y, EPSILON)
    }

    /// Attention of every token to all that count.
    fn attention(&mut self, name: &str, x: Value, mask: Value) -> Result<Value> {
        let Config { hidden, heads, .. } = self.config;
        let width = count(hidden / heads);
        let mut parts = Vec::new();
        for part in ["query", "key", "value"] {
            let y = self.dense(&format!("{name}.{part}"), x, [hidden; 2])?;
            let y = self.reshape(y, x, &[-1, width])?;
            parts.push(self.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]));
        }
        let y = attend(&mut self.g, [parts[0], parts[1], parts[2]], Some(mask))?;
        let y = self.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]);
        self.reshape(y, x, &[count(hidden)])
    }
}
