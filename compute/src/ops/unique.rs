//! The distinct elements, or slices, of a tensor.

use super::top_k::compare;
use crate::args::{axis, optional, required};
use crate::error::{Error, Result};
use crate::index::pick;
use crate::movement::strided;
use crate::number::with_type;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Layout, SymShape, Tensor, TensorType, TensorView};
use std::cmp::Ordering;
use std::ops::RangeInclusive;

/// `Unique`: one input; outputs the distinct elements, the position of each one's first occurrence,
/// the number among them of each input element, and how often each occurs (the last three i64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unique {
    /// The axis whose slices are compared, negative from the back; without it single elements.
    pub axis: Option<i64>,
    /// In ascending order, rather than in that of their first occurrences.
    pub sorted: bool,
}

impl Op for Unique {
    fn name(&self) -> &'static str {
        "Unique"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        1..=1
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let x = required(inputs, 0)?;
        let unknown = || Some(SymShape(vec![Dim::Unknown]));
        let shape = match (x.sym_shape(), self.axis) {
            (Some(dims), Some(along)) => {
                let along = axis(along, dims.len())?;
                let mut dims = dims.to_vec();
                dims[along] = Dim::Unknown;
                Some(SymShape(dims))
            }
            (None, Some(_)) => None,
            (_, None) => unknown(),
        };
        let of = |dtype, shape| ValueInfo::of(TensorType { dtype, shape });
        let i64s = || of(DType::I64, unknown());
        Ok(vec![of(x.ty.dtype, shape), i64s(), i64s(), i64s()])
    }

    fn multiply_adds(&self, inputs: &[Option<&ValueInfo>], _outputs: &[ValueInfo]) -> u64 {
        // All elements are sorted.
        optional(inputs, 0).map_or(0, |x| crate::cost::elements(x))
    }

    fn widens_halves(&self) -> bool {
        true
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let x = required(inputs, 0)?;
        // The compared slices become rows; without an axis a row is one element.
        let rank = x.shape().rank();
        let along = self.axis.map(|a| axis(a, rank)).transpose()?;
        let mut perm: Vec<usize> = (0..rank).collect();
        let (rows, count) = match along {
            None => (x.to_tensor()?, x.len()),
            Some(along) => {
                perm.remove(along);
                perm.insert(0, along);
                let layout = Layout::contiguous(x.shape())?.permuted(&perm)?;
                (strided(ctx, x, &layout)?, x.shape()[along])
            }
        };
        let width = rows.len().checked_div(count).unwrap_or(0);
        let groups = self.groups(&rows, count, width)?;
        let kept: Vec<usize> = groups.first.clone();
        let shape = match along {
            None => vec![kept.len()],
            Some(_) => {
                let mut dims: Vec<usize> = perm.iter().map(|&axis| x.shape()[axis]).collect();
                dims[0] = kept.len();
                dims
            }
        };
        let mut values = ctx.alloc(x.dtype(), shape)?;
        pick(width * x.dtype().size(), rows.as_bytes(), &kept, values.as_bytes_mut()?);
        if let Some(along) = along {
            let mut back: Vec<usize> = (1..rank).collect();
            back.insert(along, 0);
            let layout = Layout::contiguous(values.shape())?.permuted(&back)?;
            values = strided(ctx, &values.view(), &layout)?;
        }
        Ok(vec![values, i64s(&groups.first)?, i64s(&groups.which)?, i64s(&groups.counts)?])
    }
}

/// Groups of equal rows.
struct Groups {
    /// The first row of each group.
    first: Vec<usize>,
    /// The group of each row.
    which: Vec<usize>,
    /// Number of rows of each group.
    counts: Vec<usize>,
}

impl Unique {
    fn groups(&self, rows: &Tensor, count: usize, width: usize) -> Result<Groups> {
        let mut order: Vec<usize> = (0..count).collect();
        let mut starts = Vec::new();
        let mut sort = |by: &dyn Fn(usize, usize) -> Ordering| {
            order.sort_by(|&a, &b| by(a, b));
            for i in 0..count {
                if i == 0 || by(order[i - 1], order[i]) != Ordering::Equal {
                    starts.push(i);
                }
            }
        };
        if matches!(rows.dtype(), DType::Bool | DType::U8) {
            let x = rows.as_bytes();
            sort(&|a, b| x[a * width..][..width].cmp(&x[b * width..][..width]));
        } else if rows.dtype() == DType::Str {
            // The numbers of strings order as the strings do.
            let x = rows.as_slice::<u32>()?;
            sort(&|a, b| x[a * width..][..width].cmp(&x[b * width..][..width]));
        } else {
            with_type!(rows.dtype(), number T => {
                let x = rows.as_slice::<T>()?;
                sort(&|a, b| {
                    let (a, b) = (&x[a * width..][..width], &x[b * width..][..width]);
                    let pairs = a.iter().zip(b).map(|(a, b)| compare(*a, *b));
                    pairs.fold(Ordering::Equal, Ordering::then)
                });
                Ok::<(), Error>(())
            })?;
        }
        starts.push(count);
        // Sorting kept equal rows in order, so that the first of each group is its first row.
        let mut groups: Vec<&[usize]> = starts.windows(2).map(|w| &order[w[0]..w[1]]).collect();
        if !self.sorted {
            groups.sort_by_key(|group| group.first().copied());
        }
        let mut which = vec![0; count];
        for (i, group) in groups.iter().enumerate() {
            group.iter().for_each(|&row| which[row] = i);
        }
        Ok(Groups {
            first: groups.iter().filter_map(|group| group.first().copied()).collect(),
            which,
            counts: groups.iter().map(|group| group.len()).collect(),
        })
    }
}

fn i64s(values: &[usize]) -> Result<Tensor> {
    let values: Vec<i64> = values.iter().map(|&n| i64::try_from(n).unwrap_or(i64::MAX)).collect();
    Ok(Tensor::from_slice([values.len()], &values)?)
}
