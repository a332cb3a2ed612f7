//! GPT-2's decoder node by node: each run takes the keys and values of what was read before, and
//! gives them back longer by what it has read. Places and the mask follow from their length; there is
//! no padding.

use crate::nets::{Size, f32_type};
use crate::transformer::{Config, Writer, count};
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{DType, Dim, SymShape, TensorType};

/// What its norms add to the variance.
const EPSILON: f32 = 1e-5;

/// The decoder with its head; batch, sequence and the length of what was read before are symbolic.
pub(crate) fn decoder(size: Size) -> Result<Model> {
    let config = match size {
        Size::Full => {
            Config { vocabulary: 50_257, positions: 1024, hidden: 768, heads: 12, layers: 12 }
        }
        Size::Tiny => Config { vocabulary: 99, positions: 64, hidden: 64, heads: 4, layers: 2 },
    };
    let Config { vocabulary, hidden, heads, layers, .. } = config;
    let mut net = Writer::new("decoder", config, 0x69b7);
    let [batch, sequence, before, total] =
        ["batch", "sequence", "past_sequence", "total_sequence"].map(|x| Dim::Symbol(x.into()));
    let ids = SymShape(vec![batch.clone(), sequence.clone()]);
    let tokens = net.g.input("input_ids", TensorType { dtype: DType::I64, shape: Some(ids) });
    let cache = |length: &Dim| {
        let (heads, width) = (Dim::Known(heads), Dim::Known(hidden / heads));
        f32_type([batch.clone(), heads, length.clone(), width])
    };
    let mut past = Vec::new();
    for layer in 0..layers {
        let names = ["key", "value"].map(|part| format!("past_key_values.{layer}.{part}"));
        past.push(names.map(|name| net.g.input(name, cache(&before))));
    }
    let (places, mask) = net.places(tokens, past[0][0])?;
    let words = net.weight("wte.weight", &[vocabulary, hidden])?;
    let positions = net.config.positions;
    let rows = net.weight("wpe.weight", &[positions, hidden])?;
    let [x, at] =
        [(words, tokens), (rows, places)].map(|(rows, ids)| net.g.node("Gather", &[rows, ids], []));
    let mut x = net.g.node("Add", &[x, at], []);
    let mut present = Vec::new();
    for (layer, past) in past.into_iter().enumerate() {
        let (y, now) = net.block(&format!("h.{layer}"), x, past, mask)?;
        x = y;
        present.push(now);
    }
    let x = net.layer_norm("ln_f", x, EPSILON)?;
    let head = net.g.node("Transpose", &[words], [("perm", [1, 0].into())]);
    let logits = net.g.node("MatMul", &[x, head], []);
    net.g.output("logits", logits, f32_type([batch.clone(), sequence, Dim::Known(vocabulary)]));
    for (layer, now) in present.into_iter().enumerate() {
        for (part, value) in ["key", "value"].into_iter().zip(now) {
            net.g.output(format!("present.{layer}.{part}"), value, cache(&total));
        }
    }
    net.g.finish()
}

impl Writer {
    /// The places of the new tokens in the text, and what is added to their attention scores so
    /// that none sees a later one: `[sequence]`, `[sequence, total]`.
    pub(crate) fn places(&mut self, tokens: Value, past: Value) -> Result<(Value, Value)> {
        let axis = self.ints(&[1], &[0])?;
        let [before, new] = [(past, 2), (tokens, 1)].map(|(x, axis)| self.dim(x, axis));
        let (before, new) = (before?, new?);
        let total = self.g.node("Add", &[before, new], []);
        let [before, total] = [before, total].map(|x| self.g.node("Squeeze", &[x, axis], []));
        let (zero, one) = (self.ints(&[], &[0])?, self.ints(&[], &[1])?);
        let places = self.g.node("Range", &[before, total, one], []);
        let all = self.g.node("Range", &[zero, total, one], []);
        let column = self.ints(&[1], &[1])?;
        let rows = self.g.node("Unsqueeze", &[places, column], []);
        let later = self.g.node("Greater", &[all, rows], []);
        let (lowest, none) = (self.float(f32::MIN)?, self.float(0.)?);
        Ok((places, self.g.node("Where", &[later, lowest, none], [])))
    }

    /// One layer: its output, and its keys and values joined to the earlier ones.
    fn block(
        &mut self,
        name: &str,
        x: Value,
        past: [Value; 2],
        mask: Value,
    ) -> Result<(Value, [Value; 2])> {
        let hidden = self.config.hidden;
        let y = self.layer_norm(&format!("{name}.ln_1"), x, EPSILON)?;
        let (y, present) = self.attention_with_cache(&format!("{name}.attn"), y, past, mask)?;
        let x = self.g.node("Add", &[x, y], []);
        let y = self.layer_norm(&format!("{name}.ln_2"), x, EPSILON)?;
        let y = self.dense(&format!("{name}.mlp.c_fc"), y, [hidden, 4 * hidden])?;
        let y = self.gelu_by_tanh(y)?;
        let y = self.dense(&format!("{name}.mlp.c_proj"), y, [4 * hidden, hidden])?;
        Ok((self.g.node("Add", &[x, y], []), present))
    }

    /// Attention to the earlier keys and values and to its own, which are answered too.
    fn attention_with_cache(
        &mut self,
        name: &str,
        x: Value,
        past: [Value; 2],
        mask: Value,
    ) -> Result<(Value, [Value; 2])> {
        let (hidden, heads) = (self.config.hidden, self.config.heads);
        let width = hidden / heads;
        let all = self.dense(&format!("{name}.c_attn"), x, [hidden, 3 * hidden])?;
        let sizes = self.ints(&[3], &[count(hidden); 3])?;
        let parts: [Value; 3] =
            self.g.node_with_outputs("Split", &[all, sizes], [("axis", (-1).into())]);
        let mut split = Vec::new();
        for part in parts {
            let y = self.reshape(part, x, &[-1, count(width)])?;
            split.push(self.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]));
        }
        let join = |net: &mut Self, past, new| {
            net.g.node("Concat", &[past, new], [("axis", Attr::from(2))])
        };
        let (keys, values) = (join(self, past[0], split[1]), join(self, past[1], split[2]));
        let turned = self.g.node("Transpose", &[keys], [("perm", [0, 1, 3, 2].into())]);
        let scores = self.g.node("MatMul", &[split[0], turned], []);
        let root = self.float((width as f32).sqrt())?;
        let scores = self.g.node("Div", &[scores, root], []);
        let scores = self.g.node("Add", &[scores, mask], []);
        let shares = self.g.node("Softmax", &[scores], [("axis", (-1).into())]);
        let y = self.g.node("MatMul", &[shares, values], []);
        let y = self.g.node("Transpose", &[y], [("perm", [0, 2, 1, 3].into())]);
        let y = self.reshape(y, x, &[count(hidden)])?;
        Ok((self.dense(&format!("{name}.c_proj"), y, [hidden; 2])?, [keys, values]))
    }

    /// GELU in the form with a tanh.
    fn gelu_by_tanh(&mut self, x: Value) -> Result<Value> {
        let [three, part, scale, one, half] =
            [3., 0.044_715, (2. / std::f32::consts::PI).sqrt(), 1., 0.5].map(|n| self.float(n));
        let cube = self.g.node("Pow", &[x, three?], []);
        let y = self.g.node("Mul", &[cube, part?], []);
        let y = self.g.node("Add", &[x, y], []);
        let y = self.g.node("Mul", &[y, scale?], []);
        let y = self.g.node("Tanh", &[y], []);
        let y = self.g.node("Add", &[y, one?], []);
        let half = self.g.node("Mul", &[x, half?], []);
        Ok(self.g.node("Mul", &[half, y], []))
    }
}
