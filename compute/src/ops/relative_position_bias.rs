//! The bias of T5's attention, which depends on how far a key is from its query.

use crate::args::{concrete, optional, output, rank, required, same_dtype, single};
use crate::error::{Error, Result};
use crate::index::ints;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `RelativePositionBias` of `com.microsoft`: inputs a table (f32), declared as `[buckets, heads]` but
/// with the buckets of a head one after the other, and the numbers of queries and keys (i64, one
/// element each), which must be equal.
///
/// The output is `[1, heads, queries, keys]`. Near keys have a bucket each, far ones share buckets
/// whose widths grow exponentially.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelativePositionBias {
    /// Whether keys after the query have buckets of their own.
    pub bidirectional: bool,
    /// The distance from which on all keys share a bucket.
    pub far: usize,
}

impl RelativePositionBias {
    /// The bucket of a key that is `ahead` of its query, of `buckets`.
    fn bucket(&self, ahead: i64, buckets: usize) -> usize {
        let (mut buckets, mut first) = (buckets, 0);
        if self.bidirectional {
            buckets /= 2;
            first = if ahead > 0 { buckets } else { 0 };
        }
        let behind =
            if self.bidirectional { ahead.unsigned_abs() } else { (-ahead).max(0).unsigned_abs() };
        let distance = usize::try_from(behind).unwrap_or(usize::MAX);
        let exact = buckets / 2;
        if distance < exact {
            return first + distance;
        }
        let ratio = |n: usize| (n as f32 / exact as f32).ln();
        let steps = ratio(distance) / ratio(self.far) * (buckets - exact) as f32;
        first + (exact + steps as usize).min(buckets - 1)
    }
}

/// A number of positions, where it is known.
fn positions(info: &ValueInfo) -> Result<Dim> {
    let what = "the number of positions";
    same_dtype(what, DType::I64, info.ty.dtype)?;
    single(what, info)?;
    if let Some(&[n]) = info.ints(what)?.as_deref()
        && n < 0
    {
        return Err(Error::invalid(format!("{what} is {n}, expected 0 or more")));
    }
    let known = info.contents().and_then(|contents| contents.into_iter().next());
    Ok(known.unwrap_or(Dim::Unknown))
}

impl Op for RelativePositionBias {
    fn name(&self) -> &'static str {
        "RelativePositionBias"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        3..=3
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let table = required(inputs, 0)?;
        same_dtype("the table", DType::F32, table.ty.dtype)?;
        rank("the table", table, 2)?;
        let heads = match table.sym_shape() {
            Some([buckets, heads]) => {
                // Each side needs a bucket for exact distances and one for shared distances.
                let least = if self.bidirectional { 4 } else { 2 };
                let enough = |n: usize| n >= least && self.far > n / 2;
                if let Some(n) = buckets.known().filter(|&n| !enough(n)) {
                    let message = format!("{n} buckets for distances up to {}", self.far);
                    return Err(Error::invalid(message));
                }
                heads.clone()
            }
            _ => Dim::Unknown,
        };
        let (q, k) = (positions(required(inputs, 1)?)?, positions(required(inputs, 2)?)?);
        Ok(output(DType::F32, Some(vec![Dim::Known(1), heads, q, k])))
    }

    fn moves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let types = concrete(self, inputs)?;
        let table = required(inputs, 0)?;
        let buckets = table.shape()[0];
        let table = table.as_slice::<f32>()?;
        let Some((dtype, shape)) = types.into_iter().next() else {
            return Err(Error::invalid("there is no output"));
        };
        let lengths = [1, 2].map(|i| optional(inputs, i).map(|x| ints("the lengths", x)));
        if let [Some(Ok(q)), Some(Ok(k))] = &lengths
            && q != k
        {
            let message = format!("there are {q:?} queries and {k:?} keys, expected as many");
            return Err(Error::invalid(message));
        }
        let keys = shape[3];
        let mut out = ctx.alloc(dtype, shape)?;
        let square = keys.saturating_mul(keys).max(1);
        let all = out.as_mut_slice::<f32>()?.chunks_exact_mut(square);
        for (out, table) in all.zip(table.chunks_exact(buckets)) {
            for (q, row) in (0i64..).zip(out.chunks_exact_mut(keys)) {
                for (k, out) in (0i64..).zip(row) {
                    *out = table[self.bucket(k - q, buckets)];
                }
            }
        }
        Ok(vec![out])
    }
}

#[cfg(test)]
mod tests {
    use super::RelativePositionBias;
    use crate::testing::{fails, ints, run, t};

    #[test]
    fn far_keys_share_buckets() {
        // From the definition of T5: exact up to a distance of 4 (2 on each side).
        let causal = RelativePositionBias { bidirectional: false, far: 16 };
        let distances = [0, 1, 3, 4, 5, 6, 7, 8, 12, 16, 99];
        assert_eq!(distances.map(|d| causal.bucket(-d, 8)), [0, 1, 3, 4, 4, 5, 5, 6, 7, 7, 7]);
        assert_eq!(causal.bucket(5, 8), 0);
        let both = RelativePositionBias { bidirectional: true, far: 8 };
        assert_eq!(
            [-9, -4, -1, 0, 1, 2, 4, 9].map(|d| both.bucket(d, 8)),
            [3, 3, 1, 0, 5, 6, 7, 7]
        );
    }

    #[test]
    fn tables_lie_head_by_head() {
        let op = RelativePositionBias { bidirectional: false, far: 9 };
        let table = t(&[2, 2], &[1f32, 2., 3., 4.]);
        let n = ints(&[2]);
        let want = t(&[1, 2, 2, 2], &[1f32, 1., 2., 1., 3., 3., 4., 3.]);
        assert_eq!(run(&op, &[&table, &n, &n]), want);
        let message = fails(&op, &[&table, &n, &ints(&[3])]);
        assert_eq!(
            message,
            "RelativePositionBias: there are [2] queries and [3] keys, expected as many"
        );
        let negative = ints(&[-1]);
        assert!(fails(&op, &[&table, &negative, &negative]).contains("is -1, expected 0 or more"));
        let few = t(&[1, 1], &[1f32]);
        assert!(fails(&op, &[&few, &n, &n]).contains("1 buckets for distances up to 9"));
    }
}
