//! Scaled dot-product attention with heads, masks and a cache.

mod cpu;
mod device;
mod facts;
mod mask;
mod present;
mod sizes;
#[cfg(test)]
mod tests;

use crate::Axes;
use crate::args::{float, optional, rank, required, same_dtype};
use crate::device::Launches;
use crate::dims;
use crate::error::{Error, Result};
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType, TensorView};
use std::ops::RangeInclusive;

/// The stage of the scores that the optional fourth output shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scores {
    /// The scaled products.
    Raw,
    /// After the soft cap.
    Capped,
    /// With the mask added.
    Masked,
    /// After the softmax.
    Softmax,
}

/// `Attention`: inputs query, key, value, and optionally a mask, the past key and value, and the
/// number of keys that are not padding (i64 `[batch]`).
///
/// Query, key and value are `[batch, heads, length, size]`, or `[batch, length, heads · size]` with
/// the numbers of heads as attributes. The mask, bool or a number that is added, broadcasts to
/// `[batch, heads, queries, keys]`; where its last axis is shorter, the rest is masked.
///
/// Outputs: the attention in the query's form; with [`Attention::present`] also key and value with
/// the past in front, `[batch, heads, keys, size]`; with [`Attention::scores`] the scores as well.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attention {
    /// Query `i` sees keys up to `past + i` only.
    pub causal: bool,
    /// Factor of the products; `1 / sqrt(size)` when absent.
    pub scale: Option<f32>,
    /// Where it is not 0, scores become `cap · tanh(score / cap)`.
    pub softcap: f32,
    /// Heads of a query of rank 3.
    pub query_heads: Option<usize>,
    /// Heads of key and value of rank 3; each serves equally many heads of the query.
    pub key_heads: Option<usize>,
    /// Whether the second and third output exist.
    pub present: bool,
    /// The scores in the fourth output, if it exists; the second and third then exist, too.
    pub scores: Option<Scores>,
}

/// The dimensions of one of query, key and value.
#[derive(Debug, Clone)]
struct Form {
    batch: Dim,
    heads: Dim,
    length: Dim,
    size: Dim,
}

impl Attention {
    fn form(&self, info: &ValueInfo, what: &str, heads: Option<usize>) -> Result<Option<Form>> {
        match info.sym_shape() {
            None => Ok(None),
            Some([batch, heads, length, size]) => {
                let (batch, heads) = (batch.clone(), heads.clone());
                Ok(Some(Form { batch, heads, length: length.clone(), size: size.clone() }))
            }
            Some([batch, length, hidden]) => {
                let Some(heads) = heads.filter(|&n| n > 0) else {
                    let message = format!("{what} has rank 3, but its number of heads is missing");
                    return Err(Error::invalid(message));
                };
                let heads = Dim::Known(heads);
                let size =
                    dims::quotient(std::slice::from_ref(hidden), std::slice::from_ref(&heads))?;
                Ok(Some(Form { batch: batch.clone(), heads, length: length.clone(), size }))
            }
            Some(dims) => {
                let message = format!("{what} has rank {}, expected 3 or 4", dims.len());
                Err(Error::invalid(message))
            }
        }
    }

    /// Query, key and value, checked against each other.
    fn forms(&self, inputs: &[Option<&ValueInfo>]) -> Result<Option<[Form; 3]>> {
        let [q, k, v] = [required(inputs, 0)?, required(inputs, 1)?, required(inputs, 2)?];
        float(q.ty.dtype)?;
        same_dtype("the key", q.ty.dtype, k.ty.dtype)?;
        same_dtype("the value", q.ty.dtype, v.ty.dtype)?;
        let forms = (
            self.form(q, "the query", self.query_heads)?,
            self.form(k, "the key", self.key_heads)?,
            self.form(v, "the value", self.key_heads)?,
        );
        let (Some(qf), Some(kf), Some(vf)) = forms else { return Ok(None) };
        dims::expect("the key's batch", &qf.batch, &kf.batch)?;
        dims::expect("the value's batch", &qf.batch, &vf.batch)?;
        dims::expect("the key's size", &qf.size, &kf.size)?;
        dims::expect("the value's heads", &kf.heads, &vf.heads)?;
        dims::expect("the value's length", &kf.length, &vf.length)?;
        if let (Some(q), Some(k)) = (qf.heads.known(), kf.heads.known())
            && (k == 0 || q % k != 0)
        {
            let message = format!("{k} heads of the key do not divide {q} heads of the query");
            return Err(Error::invalid(message));
        }
        Ok(Some([qf, kf, vf]))
    }

    /// The number of keys, past and new ones together.
    fn keys(&self, inputs: &[Option<&ValueInfo>], forms: &[Form; 3]) -> Result<Dim> {
        let [_, k, v] = forms;
        let mut keys = k.length.clone();
        if optional(inputs, 4).is_some() != optional(inputs, 5).is_some() {
            return Err(Error::invalid("past key and value must be given together"));
        }
        for (i, what, form) in [(4, "the past key", k), (5, "the past value", v)] {
            let Some(past) = optional(inputs, i) else { continue };
            same_dtype(what, required(inputs, 0)?.ty.dtype, past.ty.dtype)?;
            rank(what, past, 4)?;
            let Some([batch, heads, length, size]) = past.sym_shape() else {
                keys = Dim::Unknown;
                continue;
            };
            dims::expect(&format!("the batch of {what}"), &form.batch, batch)?;
            dims::expect(&format!("the heads of {what}"), &form.heads, heads)?;
            dims::expect(&format!("the size of {what}"), &form.size, size)?;
            let all = dims::add(length, &form.length)?;
            if i == 4 {
                keys = all;
            } else {
                dims::expect("the length of the past value", &keys, &all)?;
            }
        }
        Ok(keys)
    }

    /// Checks the mask and the numbers of keys that are not padding.
    fn check_masks(
        &self,
        inputs: &[Option<&ValueInfo>],
        scores: &[Dim],
        batch: &Dim,
    ) -> Result<()> {
        if let Some(mask) = optional(inputs, 3)
            && let Some(dims) = mask.sym_shape()
        {
            let [lead @ .., last] = dims else {
                return Err(Error::invalid("the mask has rank 0, expected 1 to 4"));
            };
            let whole = dims::broadcast(lead, &scores[..3])?;
            let grows = whole.len() > 3
                || whole.iter().zip(scores).any(|(w, s)| dims::expect("", s, w).is_err())
                || matches!((last, &scores[3]), (Dim::Known(m), Dim::Known(k)) if m > k);
            if grows {
                let (mask, scores) = (SymShape(dims.to_vec()), SymShape(scores.to_vec()));
                let message = format!("a mask of shape {mask} does not broadcast to {scores}");
                return Err(Error::invalid(message));
            }
        }
        if let Some(counts) = optional(inputs, 6) {
            same_dtype("nonpad_kv_seqlen", DType::I64, counts.ty.dtype)?;
            rank("nonpad_kv_seqlen", counts, 1)?;
            if let Some([n]) = counts.sym_shape() {
                dims::expect("the length of nonpad_kv_seqlen", batch, n)?;
            }
        }
        Ok(())
    }
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "Attention"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=7
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let dtype = required(inputs, 0)?.ty.dtype;
        let count = if self.scores.is_some() { 4 } else { 1 + 2 * usize::from(self.present) };
        let info = |shape: Option<Vec<Dim>>| {
            ValueInfo::of(TensorType { dtype, shape: shape.map(SymShape) })
        };
        let Some(forms) = self.forms(inputs)? else { return Ok(vec![info(None); count]) };
        let keys = self.keys(inputs, &forms)?;
        let [q, k, v] = forms;
        let scores = vec![q.batch.clone(), q.heads.clone(), q.length.clone(), keys.clone()];
        self.check_masks(inputs, &scores, &q.batch)?;
        let of_rank_3 = required(inputs, 0)?.sym_shape().is_some_and(|s| s.len() == 3);
        let y = if of_rank_3 {
            vec![q.batch.clone(), q.length, dims::mul(&q.heads, &v.size)?]
        } else {
            vec![q.batch.clone(), q.heads, q.length, v.size.clone()]
        };
        let present = |size: Dim| vec![q.batch.clone(), k.heads.clone(), keys.clone(), size];
        let mut out = vec![
            info(Some(y)),
            info(Some(present(k.size))),
            info(Some(present(v.size))),
            info(Some(scores)),
        ];
        out.truncate(count);
        Ok(out)
    }

    fn axes(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
        facts::axes(self, inputs, outputs.len()).unwrap_or_default()
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        facts::multiply_adds(self, inputs).unwrap_or(0)
    }

    fn launches(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Option<Launches> {
        device::launches(self, inputs, outputs)
    }

    fn schedules(&self, inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Vec<Launches> {
        device::schedules(self, inputs, outputs)
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        cpu::run(self, ctx, inputs)
    }

    fn scratch_bytes(&self, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
        cpu::scratch(self, threads, inputs)
    }
}
