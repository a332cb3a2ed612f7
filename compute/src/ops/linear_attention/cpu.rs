//! Linear attention on the CPU: the recurrence, one key head of one sample at a time.

use super::LinearAttention;
use crate::args::concrete;
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::op::Context;
use crate::simd::dispatch;
use crate::widen::{convert, widen};
use lgp_memory::{DType, Tensor, TensorView};

/// The inputs in f32, and the sizes.
struct Recurrence<'a> {
    simd: Simd,
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    /// Decay and rate, and how many entries they have at each step.
    decay: Option<(&'a [f32], usize)>,
    beta: Option<(&'a [f32], usize)>,
    /// Heads of the key, and of the query for each of them.
    heads: usize,
    groups: usize,
    length: usize,
    /// Elements of a key and of a value.
    k: usize,
    v: usize,
    scale: f32,
}

pub(super) fn run(
    op: &LinearAttention,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let types = concrete(op, inputs)?;
    let [(y_dtype, y_shape), (state_dtype, state_shape)] = &types[..] else {
        return Err(Error::invalid("there are no two outputs"));
    };
    let mut y = ctx.alloc(DType::F32, y_shape.clone())?;
    let mut state = ctx.alloc(DType::F32, state_shape.clone())?;
    let wide: Vec<Option<Tensor>> = inputs
        .iter()
        .map(|x| x.as_ref().map(|x| widen(ctx, x)).transpose())
        .collect::<Result<_>>()?;
    let slice = |i: usize| {
        let tensor = wide.get(i).and_then(Option::as_ref);
        tensor.map(Tensor::as_slice::<f32>).transpose()
    };
    let gate = |i: usize| {
        let width = wide.get(i).and_then(Option::as_ref).map_or(0, |x| x.shape()[2]);
        Ok::<_, Error>(slice(i)?.map(|gate| (gate, width)))
    };
    let (batch, length) = (y_shape[0], y_shape[1]);
    let (k, v) = (state_shape[2], state_shape[3]);
    let recurrence = Recurrence {
        simd: ctx.simd(),
        query: slice(0)?.unwrap_or_default(),
        key: slice(1)?.unwrap_or_default(),
        value: slice(2)?.unwrap_or_default(),
        decay: gate(4)?,
        beta: gate(5)?,
        heads: op.key_heads,
        groups: op.query_heads / op.key_heads,
        length,
        k,
        v,
        #[allow(clippy::cast_precision_loss, reason = "a size of a head")]
        scale: op.scale.unwrap_or_else(|| (k as f32).sqrt().recip()),
    };
    let (states, ys) = (state.as_mut_slice::<f32>()?, y.as_mut_slice::<f32>()?);
    if v > 0 && batch > 0 {
        recurrence.all(ctx, batch, slice(3)?, states, ys)?;
    }
    Ok(vec![convert(ctx, &y.view(), *y_dtype)?, convert(ctx, &state.view(), *state_dtype)?])
}

impl Recurrence<'_> {
    /// State and outputs of a head lie together while they are computed, so that the heads can be
    /// divided among threads.
    fn all(
        &self,
        ctx: &Context,
        batch: usize,
        past: Option<&[f32]>,
        states: &mut [f32],
        ys: &mut [f32],
    ) -> Result<()> {
        let row = self.groups * self.v;
        let (kept, shown) = (self.k * self.v, self.length * row);
        let unit = kept + shown;
        let mut scratch = ctx.scratch(DType::F32, [batch * self.heads, unit])?;
        let scratch = scratch.as_mut_slice::<f32>()?;
        let cost = self.length.saturating_mul(kept).saturating_mul(2 + self.groups);
        ctx.split(scratch, unit, cost, |first, part| {
            for (i, part) in part.chunks_exact_mut(unit).enumerate() {
                let (state, out) = part.split_at_mut(kept);
                match past {
                    Some(past) => state.copy_from_slice(&past[(first + i) * kept..][..kept]),
                    None => state.fill(0.),
                }
                self.head(first + i, state, out);
            }
        });
        for (i, part) in scratch.chunks_exact(unit.max(1)).enumerate() {
            let (b, head) = (i / self.heads, i % self.heads);
            let (state, out) = part.split_at(kept);
            states[i * kept..][..kept].copy_from_slice(state);
            for (step, from) in out.chunks_exact(row).enumerate() {
                let to = ((b * self.length + step) * self.heads + head) * row;
                ys[to..][..row].copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// All steps of one key head; `i` counts samples and heads.
    fn head(&self, i: usize, state: &mut [f32], out: &mut [f32]) {
        let &Self { heads, groups, k, v, .. } = self;
        let (batch, head) = (i / heads, i % heads);
        let mut write = vec![0f32; v];
        for (step, out) in out.chunks_exact_mut(groups * v).enumerate() {
            let row = batch * self.length + step;
            let at = row * heads + head;
            let key = &self.key[at * k..][..k];
            if let Some((decay, width)) = self.decay {
                for (j, state) in state.chunks_exact_mut(v).enumerate() {
                    let entry = if width == heads { at } else { at * k + j };
                    let factor = decay[entry].exp();
                    state.iter_mut().for_each(|s| *s *= factor);
                }
            }
            write.copy_from_slice(&self.value[at * v..][..v]);
            if let Some((beta, width)) = self.beta {
                for (key, state) in key.iter().zip(state.chunks_exact(v)) {
                    add_scaled(self.simd, &mut write, -key, state);
                }
                let rate = beta[if width == heads { at } else { row }];
                write.iter_mut().for_each(|w| *w *= rate);
            }
            for (key, state) in key.iter().zip(state.chunks_exact_mut(v)) {
                add_scaled(self.simd, state, *key, &write);
            }
            for (g, out) in out.chunks_exact_mut(v).enumerate() {
                let query = &self.query[(at * groups + g) * k..][..k];
                out.fill(0.);
                for (q, state) in query.iter().zip(state.chunks_exact(v)) {
                    add_scaled(self.simd, out, q * self.scale, state);
                }
            }
        }
    }
}

/// `out += factor · x`.
fn add_scaled(simd: Simd, out: &mut [f32], factor: f32, x: &[f32]) {
    dispatch(
        simd,
        #[inline(always)]
        || out.iter_mut().zip(x).for_each(|(o, x)| *o += factor * x),
    );
}
