//! Picks the best boxes that do not overlap much.

#[cfg(test)]
mod tests;

use crate::args::{optional, output, rank, required, same_dtype, single};
use crate::dims;
use crate::error::Result;
use crate::index::ints;
use crate::op::{Context, Op, ValueInfo};
use lgp_memory::{DType, Dim, Tensor, TensorView};
use std::ops::RangeInclusive;

/// `NonMaxSuppression`: inputs boxes (f32 `[n, b, 4]`), scores (f32 `[n, c, b]`), and, all
/// optional, the most boxes of a class (i64, 0), the overlap that suppresses (f32, 0) and the
/// score that a box must pass (f32). Output i64 `[k, 3]`: batch, class, box.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NonMaxSuppression {
    /// Boxes are centre x, centre y, width, height, rather than two corners y, x.
    pub center_point: bool,
}

impl Op for NonMaxSuppression {
    fn name(&self) -> &'static str {
        "NonMaxSuppression"
    }

    fn arity(&self) -> RangeInclusive<usize> {
        2..=5
    }

    fn infer_types(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>> {
        let (boxes, scores) = (required(inputs, 0)?, required(inputs, 1)?);
        same_dtype("the boxes", DType::F32, boxes.ty.dtype)?;
        same_dtype("the scores", DType::F32, scores.ty.dtype)?;
        rank("the boxes", boxes, 3)?;
        rank("the scores", scores, 3)?;
        for (i, dtype) in [(2, DType::I64), (3, DType::F32), (4, DType::F32)] {
            if let Some(x) = optional(inputs, i) {
                same_dtype(&format!("input {i}"), dtype, x.ty.dtype)?;
                single(&format!("input {i}"), x)?;
            }
        }
        if let (Some([n, b, four]), Some([m, _, c])) = (boxes.sym_shape(), scores.sym_shape()) {
            dims::expect("the scores' batch", n, m)?;
            dims::expect("the scores' last axis", b, c)?;
            dims::expect("the boxes' last axis", &Dim::Known(4), four)?;
        }
        Ok(output(DType::I64, Some(vec![Dim::Unknown, Dim::Known(3)])))
    }

    fn compute(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>> {
        let known = crate::args::infos(inputs)?;
        self.infer_types(&known.iter().map(Option::as_ref).collect::<Vec<_>>())?;
        let (boxes, scores) = (required(inputs, 0)?, required(inputs, 1)?);
        let number = |i: usize| -> Result<Option<f32>> {
            let x = optional(inputs, i).map(TensorView::as_slice::<f32>).transpose()?;
            Ok(x.and_then(|x| x.first().copied()))
        };
        let most = optional(inputs, 2).map(|x| ints("the most boxes", x)).transpose()?;
        let most = most.and_then(|x| x.first().copied()).unwrap_or(0);
        let most = usize::try_from(most).unwrap_or(0);
        let (overlap, least) = (number(3)?.unwrap_or(0.), number(4)?);
        let (count, classes) = (boxes.shape()[1], scores.shape()[1]);
        let mut found: Vec<i64> = Vec::new();
        let corners: Vec<[f32; 4]> =
            boxes.as_slice::<f32>()?.as_chunks::<4>().0.iter().map(|b| self.corners(b)).collect();
        let rows = if count == 0 { &[] } else { scores.as_slice::<f32>()? };
        for (i, scores) in rows.chunks_exact(count.max(1)).enumerate() {
            let batch = i / classes;
            let boxes = &corners[batch * count..][..count];
            for chosen in choose(boxes, scores, most, overlap, least) {
                let row = [batch, i % classes, chosen];
                found.extend(row.map(|n| i64::try_from(n).unwrap_or(i64::MAX)));
            }
        }
        let mut out = ctx.alloc(DType::I64, [found.len() / 3, 3])?;
        out.as_mut_slice::<i64>()?.copy_from_slice(&found);
        Ok(vec![out])
    }
}

impl NonMaxSuppression {
    /// The lower and the upper corner.
    fn corners(&self, &[a, b, c, d]: &[f32; 4]) -> [f32; 4] {
        if self.center_point {
            [a - c / 2., b - d / 2., a + c / 2., b + d / 2.]
        } else {
            [a.min(c), b.min(d), a.max(c), b.max(d)]
        }
    }
}

/// From the highest score on, the boxes that overlap none chosen before by more than `overlap`.
fn choose(
    boxes: &[[f32; 4]],
    scores: &[f32],
    most: usize,
    overlap: f32,
    least: Option<f32>,
) -> Vec<usize> {
    let passes = |i: &usize| least.is_none_or(|least| scores[*i] > least);
    let mut order: Vec<usize> = (0..boxes.len()).filter(passes).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let mut chosen: Vec<usize> = Vec::new();
    for i in order {
        if chosen.len() >= most {
            break;
        }
        if chosen.iter().all(|&other| shared(&boxes[i], &boxes[other]) <= overlap) {
            chosen.push(i);
        }
    }
    chosen
}

/// The intersection of two boxes over their union.
fn shared(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let side = |low: usize, high: usize| (a[high].min(b[high]) - a[low].max(b[low])).max(0.);
    let both = side(0, 2) * side(1, 3);
    let area = |b: &[f32; 4]| (b[2] - b[0]) * (b[3] - b[1]);
    let either = area(a) + area(b) - both;
    if both > 0. && either > 0. { both / either } else { 0. }
}
