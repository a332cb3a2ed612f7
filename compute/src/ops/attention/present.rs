//! Key and value with their past in front, on the CPU.

use super::sizes::Sizes;
use crate::error::Result;
use crate::movement::strided;
use crate::op::Context;
use lgp_memory::{Layout, Tensor, TensorView};

/// The past and the new rows of every head, `[batch, heads, keys, size]`.
pub(super) fn present(
    ctx: &Context,
    new: &TensorView<'_>,
    past: Option<&TensorView<'_>>,
    sizes: &Sizes,
    size: usize,
) -> Result<Tensor> {
    let &Sizes { batch, key_heads, keys, past: old, .. } = sizes;
    let by_head = if new.shape().rank() == 3 {
        let split = new.to_tensor()?.reshape([batch, keys - old, key_heads, size])?;
        let by_head = Layout::contiguous(split.shape())?.permuted(&[0, 2, 1, 3])?;
        strided(ctx, &split.view(), &by_head)?
    } else {
        new.to_tensor()?
    };
    let Some(past) = past else { return Ok(by_head) };
    let mut out = ctx.alloc(new.dtype(), [batch, key_heads, keys, size])?;
    let row = size * new.dtype().size();
    if row == 0 || keys == 0 {
        return Ok(out);
    }
    let (past, new) = (past.as_bytes(), by_head.as_bytes());
    for (i, out) in out.as_bytes_mut()?.chunks_exact_mut(keys * row).enumerate() {
        let (before, after) = out.split_at_mut(old * row);
        before.copy_from_slice(&past[i * old * row..][..old * row]);
        after.copy_from_slice(&new[i * (keys - old) * row..][..(keys - old) * row]);
    }
    Ok(out)
}
