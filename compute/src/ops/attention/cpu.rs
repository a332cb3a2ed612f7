//! Attention on the CPU: two matrix products per head, for a block of queries at a time, so that
//! their scores stay in the cache.

use super::mask::{Masks, MasksOf};
use super::present::present;
use super::sizes::Sizes;
use super::{Attention, Scores};
use crate::args::{concrete, optional, required};
use crate::error::{Error, Result};
use crate::isa::Simd;
use crate::matrix::{Mat, product};
use crate::movement::strided;
use crate::number::{Number, with_type};
use crate::op::{Context, ValueInfo};
use crate::ops::unary::Exp;
use crate::reduction::{fold, sum};
use crate::simd::dispatch;
use lgp_memory::{Layout, Tensor, TensorView};

/// Queries whose scores are computed at a time.
const BLOCK: usize = 64;

/// Where the rows of each head lie in a tensor.
struct Heads<'a, T> {
    data: &'a [T],
    /// Steps from one batch, head and row to the next.
    strides: [usize; 3],
}

impl<'a, T> Heads<'a, T> {
    /// `shape` is `[batch, length, heads · size]` or `[batch, heads, length, size]`.
    fn new(data: &'a [T], shape: &[usize], heads: usize, size: usize) -> Self {
        let strides = match shape {
            // These products fit unless the tensor is empty, and then nothing is read with them.
            [_, length, hidden] => [length.saturating_mul(*hidden), size, *hidden],
            [_, _, length, _] => {
                let head = length.saturating_mul(size);
                [heads.saturating_mul(head), head, size]
            }
            _ => [0; 3],
        };
        Self { data, strides }
    }

    /// The rows of one head from `first` on.
    fn head(&self, batch: usize, head: usize, first: usize) -> Mat<'a, T> {
        let [b, h, row] = self.strides;
        let data = self.data.get(batch * b + head * h + first * row..).unwrap_or_default();
        Mat { data, row, column: 1 }
    }
}

pub(super) fn run(
    op: &Attention,
    ctx: &Context,
    inputs: &[Option<TensorView<'_>>],
) -> Result<Vec<Tensor>> {
    let types = concrete(op, inputs)?;
    let (query, key) = (required(inputs, 0)?, required(inputs, 1)?);
    let value = required(inputs, 2)?;
    let sizes = Sizes::of(op, inputs)?;
    let (past_key, past_value) = (optional(inputs, 4), optional(inputs, 5));
    let needed = past_key.is_some() || types.len() > 1;
    let whole = |new: &TensorView<'_>, past: Option<&TensorView<'_>>, size| {
        if needed { Ok(Some(present(ctx, new, past, &sizes, size)?)) } else { Ok::<_, Error>(None) }
    };
    let keys = whole(key, past_key, sizes.size)?;
    let values = whole(value, past_value, sizes.value_size)?;
    let masks = Masks::new(ctx, op.causal, inputs, &sizes)?;

    let dtype = query.dtype();
    let Sizes { batch, heads, queries, value_size, .. } = sizes;
    let by_head = [batch, heads, queries, value_size];
    let last = query.shape().rank() == 3;
    let mut y = if last { ctx.scratch(dtype, by_head) } else { ctx.alloc(dtype, by_head) }?;
    let mut scores = match (op.scores, types.get(3)) {
        (Some(_), Some((dtype, shape))) => Some(ctx.alloc(*dtype, shape.clone())?),
        _ => None,
    };
    with_type!(dtype, real T => {
        let kv = keys.as_ref().map_or_else(|| key.clone(), Tensor::view);
        let vv = values.as_ref().map_or_else(|| value.clone(), Tensor::view);
        let all = All {
            op,
            sizes,
            query: Heads::new(query.as_slice::<T>()?, query.shape(), heads, sizes.size),
            key: Heads::new(kv.as_slice::<T>()?, kv.shape(), sizes.key_heads, sizes.size),
            value: Heads::new(vv.as_slice::<T>()?, vv.shape(), sizes.key_heads, value_size),
            masks: masks.of::<T>()?,
        };
        let shown = scores.as_mut().map(Tensor::as_mut_slice::<T>).transpose()?;
        all.attend(ctx, y.as_mut_slice::<T>()?, shown)
    })?;
    let y = if last {
        let by_length = Layout::contiguous(y.shape())?.permuted(&[0, 2, 1, 3])?;
        let shape = types.first().map(|(_, shape)| shape.clone()).unwrap_or_default();
        strided(ctx, &y.view(), &by_length)?.reshape(shape)?
    } else {
        y
    };
    let mut out = vec![y];
    if types.len() > 1 {
        out.extend(keys);
        out.extend(values);
    }
    out.extend(scores);
    Ok(out)
}

/// Bytes of scratch memory: the scores of a block for each thread and, for a query of rank 3, the
/// output before its heads are joined.
pub(super) fn scratch(op: &Attention, threads: usize, inputs: &[Option<&ValueInfo>]) -> usize {
    let sizes = || {
        let forms = op.forms(inputs).ok()??;
        let keys = op.keys(inputs, &forms).ok()?.known()?;
        let [q, _, v] = &forms;
        let queries = q.length.known()?;
        let scores = BLOCK.min(queries).checked_mul(keys)?.checked_mul(threads)?;
        let rows = q.batch.known()?.checked_mul(q.heads.known()?)?.checked_mul(queries)?;
        let query = &optional(inputs, 0)?.ty;
        let apart = query.shape.as_ref()?.rank() == 4;
        let joined = if apart { 0 } else { rows.checked_mul(v.size.known()?)? };
        scores.checked_add(joined)?.checked_mul(query.dtype.size())
    };
    sizes().unwrap_or(0)
}

/// Everything that the heads read.
struct All<'a, T> {
    op: &'a Attention,
    sizes: Sizes,
    query: Heads<'a, T>,
    key: Heads<'a, T>,
    value: Heads<'a, T>,
    masks: MasksOf<'a, T>,
}

impl<T: Exp + Number> All<'_, T> {
    /// Computes `y`, `[batch, heads, queries, value size]`, and copies the scores to `shown`.
    fn attend(&self, ctx: &Context, y: &mut [T], shown: Option<&mut [T]>) -> Result<()> {
        let Sizes { queries, keys, size, value_size, .. } = self.sizes;
        if let Some(shown) = shown {
            let (unit, scores) = (queries * value_size, queries * keys);
            for i in 0..self.sizes.batch * self.sizes.heads {
                let y = y.get_mut(i * unit..(i + 1) * unit).unwrap_or_default();
                let shown = shown.get_mut(i * scores..(i + 1) * scores).unwrap_or_default();
                self.head(ctx, i, y, Some(shown))?;
            }
            return Ok(());
        }
        let unit = queries * value_size;
        let cost = queries.saturating_mul(keys).saturating_mul(size + value_size);
        if self.sizes.batch * self.sizes.heads < ctx.threads() {
            // Too few heads for all threads: the threads share each product instead.
            for (i, y) in y.chunks_exact_mut(unit.max(1)).enumerate() {
                self.head(ctx, i, y, None)?;
            }
            return Ok(());
        }
        let failed = std::sync::Mutex::new(None);
        ctx.split(y, unit, cost, |first, part| {
            for (i, y) in part.chunks_exact_mut(unit).enumerate() {
                if let Err(error) = self.head(ctx, first + i, y, None) {
                    *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                }
            }
        });
        match failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Computes head `i % heads` of batch `i / heads`.
    fn head(
        &self,
        ctx: &Context,
        i: usize,
        y: &mut [T],
        mut shown: Option<&mut [T]>,
    ) -> Result<()> {
        let Sizes { heads, key_heads, queries, keys, size, value_size, .. } = self.sizes;
        if keys == 0 {
            y.fill(T::ZERO);
            return Ok(());
        }
        let (batch, head) = (i / heads, i % heads);
        let key_head = head / (heads / key_heads);
        let mut scratch = ctx.scratch(T::DTYPE, [BLOCK.min(queries), keys])?;
        let scratch = scratch.as_mut_slice::<T>()?;
        for first in (0..queries).step_by(BLOCK) {
            let rows = BLOCK.min(queries - first);
            let scores = &mut scratch[..rows * keys];
            let query = self.query.head(batch, head, first);
            let key = self.key.head(batch, key_head, 0).t();
            product(ctx, (rows, keys, size), query, key, scores, keys, false)?;
            let shown = shown.as_deref_mut().map(|s| &mut s[first * keys..][..rows * keys]);
            self.normalise(ctx.simd(), [batch, head, first], scores, shown);
            let y = &mut y[first * value_size..];
            let value = self.value.head(batch, key_head, 0);
            let scores = Mat::rows(scores, keys);
            product(ctx, (rows, value_size, keys), scores, value, y, value_size, false)?;
        }
        Ok(())
    }

    /// Turns products of queries and keys into weights of the values.
    fn normalise(
        &self,
        simd: Simd,
        [batch, head, first]: [usize; 3],
        scores: &mut [T],
        mut shown: Option<&mut [T]>,
    ) {
        let keys = self.sizes.keys;
        let scale = match self.op.scale {
            Some(scale) => T::lit(scale.into()),
            None => T::count(self.sizes.size).sqrt().recip(),
        };
        let cap = T::lit(self.op.softcap.into());
        for (i, row) in scores.chunks_exact_mut(keys).enumerate() {
            let mut shown = shown.as_deref_mut().map(|s| &mut s[i * keys..][..keys]);
            let mut show = |stage, row: &[T]| {
                if let (Some(shown), true) = (&mut shown, self.op.scores == Some(stage)) {
                    shown.copy_from_slice(row);
                }
            };
            scaled(simd, row, scale);
            show(Scores::Raw, row);
            if self.op.softcap != 0. {
                capped(simd, row, cap);
            }
            show(Scores::Capped, row);
            self.masks.apply(batch, head, first + i, row);
            show(Scores::Masked, row);
            softmax(simd, row);
            show(Scores::Softmax, row);
        }
    }
}

fn scaled<T: Exp>(simd: Simd, row: &mut [T], scale: T) {
    dispatch(
        simd,
        #[inline(always)]
        || row.iter_mut().for_each(|x| *x = *x * scale),
    );
}

fn capped<T: Exp>(simd: Simd, row: &mut [T], cap: T) {
    dispatch(
        simd,
        #[inline(always)]
        || row.iter_mut().for_each(|x| *x = cap * (*x / cap).tanh_()),
    );
}

/// The softmax of a row, in place. A row whose keys are all masked becomes 0.
fn softmax<T: Exp + Number>(simd: Simd, row: &mut [T]) {
    dispatch(
        simd,
        #[inline(always)]
        || {
            let top = fold(
                row,
                T::neg_infinity(),
                #[inline(always)]
                |x| x,
                Number::most,
            );
            if top == T::neg_infinity() {
                row.fill(T::ZERO);
                return;
            }
            row.iter_mut().for_each(|x| *x = (*x - top).weight_::<false>());
            let total = sum(
                row,
                #[inline(always)]
                |x| x,
            );
            let factor = T::ONE / total;
            row.iter_mut().for_each(|x| *x = *x * factor);
        },
    );
}
