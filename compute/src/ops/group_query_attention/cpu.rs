//! Grouped-query attention on the CPU. This file makes the cache and the mask; other operators
//! apply positions and compute products.

use super::GroupQueryAttention;
use crate::args::{concrete, optional, required};
use crate::error::{Error, Result};
use crate::index::ints;
use crate::op::{Context, Op, ValueInfo};
use crate::ops::{Attention, RotaryEmbedding, Slice};
use lgp_memory::{DType, Tensor, TensorType, TensorView};

/// The sizes and lengths that the inputs give.
struct Call {
    batch: usize,
    length: usize,
    size: usize,
    /// Keys of the longest sequence.
    keys: usize,
    /// Keys of each sequence, the new ones included.
    ends: Vec<usize>,
    /// Keys of each sequence that the past holds.
    pasts: Vec<usize>,
}

pub(super) fn run(
    op: &GroupQueryAttention,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let types = concrete(op, inputs)?;
    let buffer = types.get(1).and_then(|(_, shape)| shape.get(2)).copied().unwrap_or(0);
    let call = call(op, inputs)?;
    let [query, key, value] = parts(op, ctx, inputs, &call)?;
    let (query, key) = if op.rotary {
        let positions = positions(inputs, &call)?;
        let turned = |x: &Tensor, heads| turned(op, ctx, x, heads, inputs, &positions);
        (turned(&query, op.heads)?, turned(&key, op.key_heads)?)
    } else {
        (query, key)
    };
    let cached = |new: &Tensor, past| cached(op, ctx, new, optional(inputs, past), buffer, &call);
    let (present_key, present_value) = (cached(&key, 3)?, cached(&value, 4)?);

    // A logit without a key is a key of zeros whose value is zero; the mask adds the logit.
    let beside = usize::from(op.smooth || optional(inputs, 11).is_some());
    let width = call.keys + beside;
    let seen =
        |x: &Tensor| if width == buffer { Ok(None) } else { seen(ctx, x, width, &call).map(Some) };
    let (seen_key, seen_value) = (seen(&present_key)?, seen(&present_value)?);
    let mask = mask(op, ctx, inputs, width, &call)?;
    let views = [
        Some(query.view()),
        Some(seen_key.as_ref().unwrap_or(&present_key).view()),
        Some(seen_value.as_ref().unwrap_or(&present_value).view()),
        Some(mask.view()),
    ];
    let mut out = attention(op).run(ctx, &views)?;
    out.extend([present_key, present_value]);
    Ok(out)
}

/// Most bytes besides the outputs: the parts of a packed query, rotated tensors, key and value of
/// another length than the buffer's, the mask, and the scratch memory of attention.
pub(super) fn scratch(
    op: &GroupQueryAttention,
    threads: usize,
    inputs: &[Option<&ValueInfo>],
) -> Option<usize> {
    let mut sizes = op.sizes(inputs).ok()??;
    op.check_keys(inputs, &mut sizes).ok()?;
    let (batch, length, size) = (sizes.batch.known()?, sizes.length.known()?, sizes.size.known()?);
    let past = sizes.past.known()?;
    let keys = sizes.keys.known().unwrap_or(past.saturating_add(length));
    let sinks = optional(inputs, 11).is_some();
    let width = keys.saturating_add(usize::from(op.smooth || sinks));
    let by_head = optional(inputs, 10).is_some() || sinks;
    let info = |dims: &[usize]| ValueInfo::of(TensorType::concrete(DType::F32, &dims.into()));
    let hidden = |heads: usize| info(&[batch, length, heads.saturating_mul(size)]);
    let query = hidden(op.heads);
    let key = info(&[batch, op.key_heads, width, size]);
    let mask = info(&[batch, if by_head { op.heads } else { 1 }, length, width]);
    let new = hidden(op.key_heads);
    let mut taken = vec![&mask];
    if optional(inputs, 1).is_none() {
        taken.extend([&query, &new, &new]);
    }
    if op.rotary {
        taken.extend([&query, &new]);
    }
    if width != past.max(keys) {
        taken.extend([&key, &key]);
    }
    let given = [Some(&query), Some(&key), Some(&key), Some(&mask)];
    let attention = attention(op).scratch_bytes(threads, &given);
    Some(taken.iter().map(|x| x.bytes_in(DType::F32)).fold(attention, usize::saturating_add))
}

/// The attention over all heads; the mask says which keys each query sees.
fn attention(op: &GroupQueryAttention) -> Attention {
    Attention {
        scale: op.scale,
        softcap: op.softcap,
        query_heads: Some(op.heads),
        ..Attention::default()
    }
}

/// The sequences' lengths, checked against each other.
fn call(op: &GroupQueryAttention, inputs: &[Option<TensorView<'_>>]) -> Result<Call> {
    let query = required(inputs, 0)?;
    let &[batch, length, hidden] = query.shape().dims() else {
        return Err(Error::invalid("the query's rank is not 3"));
    };
    let packed = optional(inputs, 1).is_none();
    let size = hidden / op.query_heads(packed)?;
    let total = ints("the number of keys", required(inputs, 6)?)?;
    let keys = total.first().and_then(|&n| usize::try_from(n).ok()).unwrap_or(0);
    let room = optional(inputs, 3).map_or(0, |past| past.shape().get(2).copied().unwrap_or(0));
    if keys > room.saturating_add(length) {
        let message = format!("there are {keys} keys, {length} of them new, but the past {room}");
        return Err(Error::invalid(message));
    }
    // As many queries as keys are a prompt: it has no past, and shorter sequences are padded at
    // their ends.
    let prompt = length == keys;
    let lasts = ints("the numbers of keys", required(inputs, 5)?)?;
    let mut call = Call { batch, length, size, keys, ends: Vec::new(), pasts: Vec::new() };
    for &last in &lasts {
        let end = usize::try_from(last).ok().map(|n| n.saturating_add(1)).filter(|&n| n <= keys);
        let Some(end) = end else {
            let message = format!("a sequence's last key is {last}, expected less than {keys}");
            return Err(Error::invalid(message));
        };
        let past = if prompt { Some(0) } else { end.checked_sub(length) };
        let Some(past) = past.filter(|&past| past <= room) else {
            let message =
                format!("a sequence has {end} keys, {length} of them new, but the past {room}");
            return Err(Error::invalid(message));
        };
        call.ends.push(end);
        call.pasts.push(past);
    }
    Ok(call)
}

/// Query, key and value.
fn parts(
    op: &GroupQueryAttention,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    call: &Call,
) -> Result<[Tensor; 3]> {
    let query = required(inputs, 0)?;
    if let (Some(key), Some(value)) = (optional(inputs, 1), optional(inputs, 2)) {
        return Ok([query.to_tensor()?, key.to_tensor()?, value.to_tensor()?]);
    }
    let mut from = 0;
    let mut next = |heads: usize| {
        let to = from + heads * call.size;
        let axis = |n: usize| i64::try_from(n).ok().map(|n| vec![n]);
        let cut = Slice { starts: axis(from), ends: axis(to), axes: Some(vec![2]), steps: None };
        from = to;
        first(cut.run(ctx, &[Some(query.clone())])?)
    };
    Ok([next(op.heads)?, next(op.key_heads)?, next(op.key_heads)?])
}

fn first(mut outputs: Vec<Tensor>) -> Result<Tensor> {
    outputs.pop().ok_or_else(|| Error::invalid("an operator gave no output"))
}

/// The position of each query: as given, or after the past. A prompt takes only its first position
/// from the given ones.
fn positions(inputs: &[Option<TensorView<'_>>], call: &Call) -> Result<Tensor> {
    let given = optional(inputs, 9).map(TensorView::as_slice::<i64>).transpose()?;
    if let Some(given) = given.filter(|_| call.length != call.keys) {
        return Ok(Tensor::from_slice([call.batch, call.length], given)?);
    }
    let start = given.and_then(|given| given.first().copied()).unwrap_or(0);
    let mut all = Vec::with_capacity(call.batch * call.length);
    for &past in &call.pasts {
        let past = start.saturating_add(i64::try_from(past).unwrap_or(i64::MAX));
        all.extend((0i64..).take(call.length).map(|i| past.saturating_add(i)));
    }
    Ok(Tensor::from_slice([call.batch, call.length], &all)?)
}

fn turned(
    op: &GroupQueryAttention,
    ctx: &Context,
    x: &Tensor,
    heads: usize,
    inputs: &[Option<TensorView<'_>>],
    positions: &Tensor,
) -> Result<Tensor> {
    let (cos, sin) = (required(inputs, 7)?, required(inputs, 8)?);
    let half = cos.shape().get(1).copied().unwrap_or(0);
    let rotary =
        RotaryEmbedding { interleaved: op.interleaved, heads: Some(heads), rotated: 2 * half };
    let views = [Some(x.view()), Some(cos.clone()), Some(sin.clone()), Some(positions.view())];
    first(rotary.run(ctx, &views)?)
}

/// The past's rows of each head and then the new ones, `[batch, key heads, buffer, size]`.
fn cached(
    op: &GroupQueryAttention,
    ctx: &Context,
    new: &Tensor,
    past: Option<&TensorView<'_>>,
    buffer: usize,
    call: &Call,
) -> Result<Tensor> {
    let (heads, size, length) = (op.key_heads, call.size, call.length);
    let mut out = ctx.alloc(new.dtype(), [call.batch, heads, buffer, size])?;
    if out.is_empty() {
        return Ok(out);
    }
    let new = new.as_slice::<f32>()?;
    let past = past.map(TensorView::as_slice::<f32>).transpose()?.unwrap_or_default();
    let room = past.len() / (call.batch * heads * size);
    let unit = buffer * size;
    ctx.split(out.as_mut_slice::<f32>()?, unit, unit, |first, part| {
        for (i, out) in part.chunks_exact_mut(unit).enumerate() {
            let (batch, head) = ((first + i) / heads, (first + i) % heads);
            let old = call.pasts[batch] * size;
            let (before, rest) = out.split_at_mut(old);
            before.copy_from_slice(&past[(first + i) * room * size..][..old]);
            let (fresh, rest) = rest.split_at_mut(length * size);
            for (t, row) in fresh.chunks_exact_mut(size).enumerate() {
                let at = ((batch * length + t) * heads + head) * size;
                row.copy_from_slice(&new[at..at + size]);
            }
            rest.fill(0.);
        }
    });
    Ok(out)
}

/// The keys' rows of each head of a buffer, filled up with zeros to `width` rows.
fn seen(ctx: &Context, x: &Tensor, width: usize, call: &Call) -> Result<Tensor> {
    let (heads, buffer) = (x.shape()[1], x.shape()[2]);
    let mut out = ctx.scratch(x.dtype(), [call.batch, heads, width, call.size])?;
    if out.is_empty() {
        return Ok(out);
    }
    let x = x.as_slice::<f32>()?;
    let (rows, to) = (call.keys * call.size, width * call.size);
    let from = x.chunks_exact(buffer * call.size);
    for (out, x) in out.as_mut_slice::<f32>()?.chunks_exact_mut(to).zip(from) {
        out[..rows].copy_from_slice(&x[..rows]);
        out[rows..].fill(0.);
    }
    Ok(out)
}

/// The mask, `[batch, heads or 1, length, width]`: the bias where a query sees a key, otherwise
/// minus infinity.
fn mask(
    op: &GroupQueryAttention,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
    width: usize,
    call: &Call,
) -> Result<Tensor> {
    let (bias, sinks) = (optional(inputs, 10), optional(inputs, 11));
    let heads = if bias.is_some() || sinks.is_some() { op.heads } else { 1 };
    let mut out = ctx.scratch(DType::F32, [call.batch, heads, call.length, width])?;
    let given = bias.map(TensorView::as_slice::<f32>).transpose()?;
    let sinks = sinks.map(TensorView::as_slice::<f32>).transpose()?;
    // The bias's batches and heads; a size of 1 is for all.
    let (batches, of) = bias.map_or((1, 1), |b| (b.shape()[0], b.shape()[1]));
    let rows = out.as_mut_slice::<f32>()?.chunks_exact_mut(width.max(1));
    for (i, row) in rows.enumerate() {
        let (t, head) = (i % call.length, i / call.length % heads);
        let batch = i / call.length / heads;
        // Queries beyond the end of a shorter prompt see all of it.
        let own = (call.pasts[batch] + t + 1).min(call.ends[batch]);
        let end = if op.causal { own } else { call.ends[batch] };
        let start = op.window.map_or(0, |window| own.saturating_sub(window)).min(end);
        row.fill(f32::NEG_INFINITY);
        match given {
            None => row[start..end].fill(0.),
            Some(given) => {
                let (b, h) = (if batches == 1 { 0 } else { batch }, if of == 1 { 0 } else { head });
                let at = ((b * of + h) * call.length + t) * call.keys;
                row[start..end].copy_from_slice(&given[at + start..at + end]);
            }
        }
        if let Some(beside) = row.get_mut(call.keys) {
            *beside = sinks.map_or(0., |sinks| sinks[head]);
        }
    }
    Ok(out)
}
