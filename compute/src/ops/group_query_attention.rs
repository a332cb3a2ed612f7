//! ONNX Runtime's attention with grouped keys, a cache of right-padded sequences and positions.

mod cpu;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{optional, rank, required, same_dtype, single};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// `GroupQueryAttention` of `com.microsoft`; f32, and f16 and bf16 through f32.
///
/// Inputs: query `[batch, length, heads · size]`; key and value `[batch, length, key heads · size]`,
/// both absent where the query holds all three side by side; the past key and value
/// `[batch, key heads, buffer, size]` (optional); the number of keys of each sequence, new ones
/// included, less one (i32 `[batch]`); the number of keys of the longest sequence (i32); cosines
/// and sines `[positions, rotated / 2]` (where [`GroupQueryAttention::rotary`]); positions (i64
/// `[batch, length]`, optional); the bias of the scores (`[batch or 1, heads or 1, length, keys]`,
/// optional); a logit for each head that takes part in softmax without a key (`[heads]`, optional).
///
/// Outputs: the attention `[batch, length, heads · size]`, and key and value as a buffer for
/// the next call, `[batch, key heads, the larger of keys and buffer, size]`, zeros after the keys.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupQueryAttention {
    /// Heads of the query.
    pub heads: usize,
    /// Heads of key and value; each serves equally many heads of the query.
    pub key_heads: usize,
    /// Whether a query sees no keys after its own.
    pub causal: bool,
    /// Factor of the products; `1 / sqrt(size)` when absent.
    pub scale: Option<f32>,
    /// Where it is not 0, scores become `cap · tanh(score / cap)`.
    pub softcap: f32,
    /// The largest number of keys that a query sees, its own included.
    pub window: Option<usize>,
    /// Whether query and key are rotated by their positions.
    pub rotary: bool,
    /// Whether rotated pairs are neighbours, rather than elements of the first and second half.
    pub interleaved: bool,
    /// Whether each head has a logit of 0 without a key.
    pub smooth: bool,
}

/// The dimensions that follow from the inputs' types.
#[derive(Debug, Clone)]
struct Sizes {
    batch: Dim,
    length: Dim,
    /// Elements of one head.
    size: Dim,
    /// Keys that the past has room for.
    past: Dim,
    /// Keys of the longest sequence.
    keys: Dim,
}

impl GroupQueryAttention {
    /// Number of heads in input 0, which may hold key and value, too.
    fn query_heads(&self, packed: bool) -> Result<usize> {
        let all = self.key_heads.checked_mul(2).and_then(|n| n.checked_add(self.heads));
        match all {
            _ if !packed => Ok(self.heads),
            Some(all) => Ok(all),
            None => Err(Error::invalid(format!("{} heads are too many", self.heads))),
        }
    }

    fn sizes(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<Sizes>> {
        let (heads, key_heads) = (self.heads, self.key_heads);
        if heads == 0 || key_heads == 0 || !heads.is_multiple_of(key_heads) {
            let message = format!("{key_heads} heads of the key do not divide {heads} heads");
            return Err(Error::invalid(message));
        }
        let query = required(inputs, 0)?;
        if !matches!(query.ty.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(Error::unsupported(format!("dtype {}", query.ty.dtype)));
        }
        rank("the query", query, 3)?;
        let packed = optional(inputs, 1).is_none();
        if packed != optional(inputs, 2).is_none() {
            return Err(Error::invalid("key and value must be given together"));
        }
        let Some([batch, length, hidden]) = query.sym_shape() else { return Ok(None) };
        let heads = Dim::Known(self.query_heads(packed)?);
        let size = dims::quotient(std::slice::from_ref(hidden), &[heads])?;
        let (batch, length) = (batch.clone(), length.clone());
        let keys = keys(inputs)?.map_or(Dim::Unknown, Dim::Known);
        Ok(Some(Sizes { batch, length, size, past: Dim::Known(0), keys }))
    }

    /// Checks key, value and the past against the query, and stores the past's length in `sizes`.
    fn check_keys(&self, inputs: &[Option<&ValueInfo>], sizes: &mut Sizes) -> Result<()> {
        let dtype = required(inputs, 0)?.ty.dtype;
        let hidden = dims::mul(&sizes.size, &Dim::Known(self.key_heads))?;
        for (i, what) in [(1, "the key"), (2, "the value")] {
            let Some(x) = optional(inputs, i) else { continue };
            same_dtype(what, dtype, x.ty.dtype)?;
            rank(what, x, 3)?;
            let Some([batch, length, width]) = x.sym_shape() else { continue };
            dims::expect(&format!("the batch of {what}"), &sizes.batch, batch)?;
            dims::expect(&format!("the length of {what}"), &sizes.length, length)?;
            dims::expect(&format!("the width of {what}"), &hidden, width)?;
        }
        if optional(inputs, 3).is_some() != optional(inputs, 4).is_some() {
            return Err(Error::invalid("past key and value must be given together"));
        }
        for (i, what) in [(3, "the past key"), (4, "the past value")] {
            let Some(x) = optional(inputs, i) else { continue };
            same_dtype(what, dtype, x.ty.dtype)?;
            rank(what, x, 4)?;
            let Some([batch, heads, past, size]) = x.sym_shape() else {
                sizes.past = Dim::Unknown;
                continue;
            };
            let key_heads = Dim::Known(self.key_heads);
            dims::expect(&format!("the batch of {what}"), &sizes.batch, batch)?;
            dims::expect(&format!("the heads of {what}"), &key_heads, heads)?;
            dims::expect(&format!("the size of {what}"), &sizes.size, size)?;
            if i == 4 {
                dims::expect("the length of the past value", &sizes.past, past)?;
            }
            sizes.past = past.clone();
        }
        Ok(())
    }

    /// Checks the inputs that give the queries' positions.
    fn check_positions(&self, inputs: &[Option<&ValueInfo>], sizes: &Sizes) -> Result<()> {
        let lengths = required(inputs, 5)?;
        same_dtype("the numbers of keys", DType::I32, lengths.ty.dtype)?;
        rank("the numbers of keys", lengths, 1)?;
        if let Some([n]) = lengths.sym_shape() {
            dims::expect("the numbers of keys", &sizes.batch, n)?;
        }
        if let Some(positions) = optional(inputs, 9) {
            same_dtype("the positions", DType::I64, positions.ty.dtype)?;
            rank("the positions", positions, 2)?;
            if let Some([batch, length]) = positions.sym_shape() {
                dims::expect("the batch of the positions", &sizes.batch, batch)?;
                dims::expect("the length of the positions", &sizes.length, length)?;
            }
        }
        if !self.rotary {
            return Ok(());
        }
        let dtype = required(inputs, 0)?.ty.dtype;
        let (cos, sin) = (required(inputs, 7)?, required(inputs, 8)?);
        for (what, cache) in [("the cosines", cos), ("the sines", sin)] {
            same_dtype(what, dtype, cache.ty.dtype)?;
            rank(what, cache, 2)?;
        }
        if let (Some(cos), Some(sin)) = (cos.sym_shape(), sin.sym_shape()) {
            for (c, s) in cos.iter().zip(sin) {
                dims::expect("a dimension of the sines", c, s)?;
            }
            let half = cos.last().and_then(Dim::known);
            let fits = |half: usize| half > 0 && sizes.size.known().is_none_or(|n| half <= n / 2);
            if let Some(half) = half.filter(|&half| !fits(half)) {
                let message = format!("{half} pairs of a head of {} elements turn", sizes.size);
                return Err(Error::invalid(message));
            }
        }
        Ok(())
    }

    /// Checks the scores' bias and the logits without a key.
    fn check_scores(&self, inputs: &[Option<&ValueInfo>], sizes: &Sizes) -> Result<()> {
        let dtype = required(inputs, 0)?.ty.dtype;
        let heads = Dim::Known(self.heads);
        if let Some(bias) = optional(inputs, 10) {
            same_dtype("what is added to scores", dtype, bias.ty.dtype)?;
            rank("what is added to scores", bias, 4)?;
            if let Some(given) = bias.sym_shape() {
                let scores = [&sizes.batch, &heads, &sizes.length, &sizes.keys];
                for (i, (given, wanted)) in given.iter().zip(scores).enumerate() {
                    if i > 1 || given.known() != Some(1) {
                        dims::expect("a dimension of what is added to scores", wanted, given)?;
                    }
                }
            }
        }
        if let Some(sinks) = optional(inputs, 11) {
            same_dtype("the heads' own logits", dtype, sinks.ty.dtype)?;
            rank("the heads' own logits", sinks, 1)?;
            if let Some([n]) = sinks.sym_shape() {
                dims::expect("the heads' own logits", &heads, n)?;
            }
        }
        Ok(())
    }
}

/// The number of keys of the longest sequence, where it is known.
fn keys(inputs: &[Option<&ValueInfo>]) -> Result<Option<usize>> {
    let total = required(inputs, 6)?;
    same_dtype("the number of keys", DType::I32, total.ty.dtype)?;
    single("the number of keys", total)?;
    let Some(values) = total.ints("the number of keys")? else { return Ok(None) };
    match values[..] {
        [n] if n > 0 => Ok(usize::try_from(n).ok()),
        _ => Err(Error::invalid(format!("the number of keys is {values:?}, expected 1 or more"))),
    }
}

impl Op for GroupQueryAttention {
    fn name(&self) -> &'static str {
        "GroupQueryAttention"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        7..=12
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let dtype = required(inputs, 0)?.ty.dtype;
        let info = |shape: Option<Vec<Dim>>| {
            ValueInfo::of(TensorType { dtype, shape: shape.map(SymShape) })
        };
        let Some(mut sizes) = self.sizes(inputs)? else { return Ok(vec![info(None); 3]) };
        self.check_keys(inputs, &mut sizes)?;
        self.check_positions(inputs, &sizes)?;
        self.check_scores(inputs, &sizes)?;
        let buffer = match (sizes.past.known(), sizes.keys.known()) {
            (Some(past), Some(keys)) => Dim::Known(past.max(keys)),
            _ => Dim::Unknown,
        };
        let hidden = dims::mul(&sizes.size, &Dim::Known(self.heads))?;
        let present =
            vec![sizes.batch.clone(), Dim::Known(self.key_heads), buffer, sizes.size.clone()];
        let y = vec![sizes.batch, sizes.length, hidden];
        Ok(vec![info(Some(y)), info(Some(present.clone())), info(Some(present))])
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        let query = optional(inputs, 0).and_then(|query| query.dim(1)?.known());
        let keys = keys(inputs).ok().flatten();
        let may_be_prompt = query.is_none() || keys.is_none() || query == keys;
        // In a prompt, the positions of all sequences follow from the first sequence's.
        if self.rotary && optional(inputs, 9).is_some() && may_be_prompt {
            return Axes::new();
        }
        let there = |i: &usize| optional(inputs, *i).is_some();
        let batch = [0, 1, 2, 3, 4, 5, 9, 10].into_iter().filter(there).map(|i| (i, 0));
        Axes::new().each(batch, (0..outputs.len()).map(|o| (o, 0)))
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
        let buffer = outputs.get(1).and_then(|present| present.dim(2)?.known());
        let keys = keys(inputs).ok().flatten().or(buffer).unwrap_or(0) as u64;
        let elements = outputs.first().map_or(0, crate::cost::elements);
        elements.saturating_mul(keys).saturating_mul(2)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        cpu::scratch(self, threads, inputs).unwrap_or(0)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }
}
