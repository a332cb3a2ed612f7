//! The axes and the work of attention.

use super::Attention;
use crate::Axes;
use crate::args::optional;
use crate::dims::surely_equal;
use crate::op::ValueInfo;
use lgp_memory::Dim;

/// The axes with this number of outputs; `None` where a rank is unknown or not supported.
pub(super) fn axes(op: &Attention, inputs: &[Option<&ValueInfo>], outputs: usize) -> Option<Axes> {
    let given = |i: usize| optional(inputs, i).copied();
    let rank = |i: usize| given(i).and_then(ValueInfo::rank);
    let dim = |i: usize, axis: usize| given(i).and_then(|info| info.dim(axis));
    let ranks @ [q, k, v] = [rank(0)?, rank(1)?, rank(2)?];
    if !ranks.iter().all(|rank| matches!(rank, 3 | 4)) {
        return None;
    }
    // The mask's axis for an axis of the scores.
    let of_mask = given(3).map_or(Some(0), ValueInfo::rank)?;
    let mask = |axis: usize| Some((3, (axis + of_mask).checked_sub(4)?));
    let past: Vec<usize> = [4, 5].into_iter().filter(|&i| given(i).is_some()).collect();
    let past = |axis: usize| past.iter().map(move |&i| (i, axis));
    let counts = given(6).map(|_| (6, 0));
    let every = |axis: usize| (0..outputs).map(move |output| (output, axis));

    let batch = [(0, 0), (1, 0), (2, 0)].into_iter().chain(mask(0)).chain(past(0)).chain(counts);
    let mut axes = Axes::new().each(batch, every(0));
    // A single head of keys broadcasts to all heads of queries, but its output keeps one head.
    let one_each = surely_equal(dim(0, 1), dim(1, 1));
    if ranks == [4; 3] && (one_each || outputs == 1 && dim(1, 1) == Some(&Dim::Known(1))) {
        let heads = [(0, 1), (1, 1), (2, 1)].into_iter().chain(mask(1)).chain(past(1));
        axes = axes.each(heads, every(1));
    }
    // The outputs of key and value lack the axis of queries, and each lacks the other's size.
    if outputs == 1 && !op.causal {
        axes = axes.each([(0, q - 2)].into_iter().chain(mask(2)), [(0, q - 2)]);
    }
    if outputs == 1 && q == 4 && v == 4 {
        let value = given(5).map(|_| (5, 3));
        axes = axes.each([(2, 3)].into_iter().chain(value), [(0, 3)]);
    }
    if q == 4 && k == 4 {
        let key = given(4).map(|_| (4, 3));
        let kept = (outputs > 1).then_some((1, 3));
        axes = axes.all([(0, 3), (1, 3)].into_iter().chain(key), kept);
    }
    // A mask may end before the keys do.
    let covers = |(_, axis): (usize, usize)| surely_equal(dim(3, axis), dim(1, k - 2));
    let ordered = op.causal || given(4).is_some() || counts.is_some();
    if !ordered && (given(3).is_none() || mask(3).is_some_and(covers)) {
        let keys = [(1, k - 2), (2, v - 2)].into_iter().chain(mask(3));
        let kept = [(1, 2), (2, 2), (3, 3)].into_iter().filter(|(output, _)| *output < outputs);
        axes = axes.all(keys, kept);
    }
    Some(axes)
}

/// The multiply-adds of both products; `None` where a size is unknown.
pub(super) fn multiply_adds(op: &Attention, inputs: &[Option<&ValueInfo>]) -> Option<u64> {
    let forms = op.forms(inputs).ok()??;
    let keys = op.keys(inputs, &forms).ok()?;
    let [q, _, v] = &forms;
    let both = q.size.known()?.saturating_add(v.size.known()?);
    [&q.batch, &q.heads, &q.length, &keys]
        .iter()
        .try_fold(both as u64, |n, dim| Some(n.saturating_mul(dim.known()? as u64)))
}
