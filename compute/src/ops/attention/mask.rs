//! The masks that hide keys from queries.

use super::sizes::Sizes;
use crate::args::{optional, required};
use crate::error::Result;
use crate::number::Number;
use crate::op::{Context, Op};
use crate::ops::Cast;
use crate::ops::unary::Exp;
use lgp_memory::{DType, Element, Layout, Shape, Tensor, TensorView};

/// The mask, with strides that broadcast it, the numbers of keys, and the causal rule.
pub(super) struct Masks<'a> {
    causal: bool,
    past: usize,
    /// The mask: bool, or of the query's type.
    mask: Option<Tensor>,
    /// Steps from one batch, head and query of the mask to the next.
    strides: [usize; 3],
    /// Elements of the mask's last axis.
    width: usize,
    counts: Option<&'a [i64]>,
}

impl<'a> Masks<'a> {
    pub(super) fn new(
        ctx: &Context,
        causal: bool,
        inputs: &[Option<TensorView<'a>>],
        sizes: &Sizes,
    ) -> Result<Self> {
        let counts = optional(inputs, 6).map(TensorView::as_slice::<i64>).transpose()?;
        let mut masks =
            Self { causal, past: sizes.past, mask: None, strides: [0; 3], width: 0, counts };
        let Some(mask) = optional(inputs, 3) else { return Ok(masks) };
        let (last, lead) = match mask.shape().dims() {
            [lead @ .., last] => (*last, Shape::from(lead)),
            [] => (0, Shape::default()),
        };
        let rows = [sizes.batch, sizes.heads, sizes.queries].into();
        let layout = Layout::contiguous(&lead)?.broadcast(&rows)?;
        for (out, stride) in masks.strides.iter_mut().zip(layout.strides()) {
            *out = stride.unsigned_abs() * last;
        }
        masks.width = last;
        let to = required(inputs, 0)?.dtype();
        masks.mask = Some(match mask.dtype() {
            DType::Bool => mask.to_tensor()?,
            dtype if dtype == to => mask.to_tensor()?,
            _ => {
                let cast = Cast { to };
                cast.run(ctx, &[Some(mask.clone())])?.pop().map_or_else(|| mask.to_tensor(), Ok)?
            }
        });
        Ok(masks)
    }

    /// The masks for scores of type `T`.
    pub(super) fn of<T: Element>(&self) -> Result<MasksOf<'_, T>> {
        let mask = match &self.mask {
            None => None,
            Some(mask) if mask.dtype() == DType::Bool => Some(Mask::Chosen(mask.as_slice()?)),
            Some(mask) => Some(Mask::Added(mask.as_slice()?)),
        };
        Ok(MasksOf { masks: self, mask })
    }
}

/// [`Masks`] with the elements as slices, made once: a slice of bools is checked as a whole.
pub(super) struct MasksOf<'a, T> {
    masks: &'a Masks<'a>,
    mask: Option<Mask<'a, T>>,
}

enum Mask<'a, T> {
    /// Whether a query sees a key.
    Chosen(&'a [bool]),
    /// Numbers that are added to the scores.
    Added(&'a [T]),
}

impl<T: Exp + Number> MasksOf<'_, T> {
    /// Applies the masks to the scores of one query.
    pub(super) fn apply(&self, batch: usize, head: usize, query: usize, row: &mut [T]) {
        let hidden = T::neg_infinity();
        let Masks { causal, past, strides, width, counts, .. } = self.masks;
        if let Some(mask) = &self.mask {
            let at = batch * strides[0] + head * strides[1] + query * strides[2];
            let (seen, rest) = row.split_at_mut((*width).min(row.len()));
            rest.fill(hidden);
            match mask {
                Mask::Chosen(mask) => {
                    for (x, m) in seen.iter_mut().zip(&mask[at..]) {
                        *x = if *m { *x } else { hidden };
                    }
                }
                Mask::Added(mask) => {
                    for (x, m) in seen.iter_mut().zip(&mask[at..]) {
                        *x = *x + *m;
                    }
                }
            }
        }
        if *causal {
            let first = (past + query + 1).min(row.len());
            row[first..].fill(hidden);
        }
        if let Some(count) = counts.and_then(|c| c.get(batch)) {
            let first = usize::try_from(*count).unwrap_or(0).min(row.len());
            row[first..].fill(hidden);
        }
    }
}
