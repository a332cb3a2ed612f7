//! Types, axes and work of a product by numpy's rules.

use crate::Axes;
use crate::args::{float, output, same_dtype};
use crate::dims;
use crate::error::{Error, Result};
use crate::op::ValueInfo;
use lgp_memory::Dim;

/// The output of the product of two floating-point factors.
pub(crate) fn infer(a: &ValueInfo, b: &ValueInfo) -> Result<Vec<ValueInfo>> {
    float(a.ty.dtype)?;
    same_dtype("input 1", a.ty.dtype, b.ty.dtype)?;
    let shape = match (a.sym_shape(), b.sym_shape()) {
        (Some(a), Some(b)) => Some(shape(a, b)?),
        _ => None,
    };
    Ok(output(a.ty.dtype, shape))
}

/// The product's shape.
pub(crate) fn shape(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>> {
    let one = Dim::Known(1);
    let (batch_a, m, k) = match a {
        [] => return Err(Error::invalid("input 0 is a scalar, expected rank 1 or more")),
        [k] => (&[][..], &one, k),
        [batch @ .., m, k] => (batch, m, k),
    };
    let (batch_b, inner, n) = match b {
        [] => return Err(Error::invalid("input 1 is a scalar, expected rank 1 or more")),
        [k] => (&[][..], k, &one),
        [batch @ .., k, n] => (batch, k, n),
    };
    dims::expect("the inner dimension of input 1", k, inner)?;
    let mut out = dims::broadcast(batch_a, batch_b)?;
    if a.len() > 1 {
        out.push(m.clone());
    }
    if b.len() > 1 {
        out.push(n.clone());
    }
    Ok(out)
}

/// The axes of a product by numpy's rules.
pub(crate) fn axes(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> Axes {
    let rank = |i: usize| inputs.get(i).copied().flatten().and_then(ValueInfo::rank);
    let (Some(a), Some(b), Some(out)) =
        (rank(0), rank(1), outputs.first().and_then(ValueInfo::rank))
    else {
        return Axes::new();
    };
    let mut axes = Axes::new().all([(0, a - 1), (1, b.max(2) - 2)], []);
    let rows = usize::from(a > 1);
    let columns = usize::from(b > 1);
    if rows == 1 {
        axes = axes.each([(0, a - 2)], [(0, out - 1 - columns)]);
    }
    if columns == 1 {
        axes = axes.each([(1, b - 1)], [(0, out - 1)]);
    }
    // The batch axes broadcast, aligned at the last one.
    let batch = out - rows - columns;
    (0..batch).fold(axes, |axes, axis| {
        let own = |i: usize, rank: usize| Some((i, (axis + rank.max(2)).checked_sub(batch + 2)?));
        axes.each(own(0, a).into_iter().chain(own(1, b)), [(0, axis)])
    })
}

/// The multiply-adds of a product by numpy's rules.
pub(crate) fn multiply_adds(inputs: &[Option<&ValueInfo>], outputs: &[ValueInfo]) -> u64 {
    let a = inputs.first().copied().flatten();
    let inner = a.and_then(|a| a.dim(a.rank()?.checked_sub(1)?)?.known()).unwrap_or(0);
    outputs.first().map_or(0, crate::cost::elements).saturating_mul(inner as u64)
}
