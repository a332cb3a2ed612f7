//! Converts the outputs of a detector's network into the twenty boxes that Frigate expects, for each kind of
//! network that Frigate names.

use crate::fault::Fault;
use lgp_common::vision::{NmsOptions, PixelBox, nms, softmax};
use lgp_sdk::tensor::{DType, Tensor};
use std::borrow::Cow;

/// The number of boxes in an answer.
const ROWS: usize = 20;
/// The least score of a box, and the largest intersection over union of two distinct boxes.
const THRESHOLD: f32 = 0.4;
/// The cell sizes of a pyramid's three outputs, in pixels.
const STRIDES: [u16; 3] = [8, 16, 32];
/// Anchors (width, height in pixels) of YOLO networks that leave decoding to the client.
const ANCHORS: [[(f32, f32); 3]; 3] = [
    [(12.0, 16.0), (19.0, 36.0), (40.0, 28.0)],
    [(36.0, 75.0), (76.0, 55.0), (72.0, 146.0)],
    [(142.0, 110.0), (192.0, 243.0), (459.0, 401.0)],
];

/// Class, score, then top, left, bottom and right as shares of the image; unused rows are zero.
pub(super) type Rows = [[f32; 6]; ROWS];

/// The kind of the network, by Frigate's `model_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// YOLO v3 to v9 and similar ones, with decoded or raw boxes.
    YoloGeneric,
    YoloNas,
    YoloX,
    DFine,
    RfDetr,
    Ssd,
}

impl Kind {
    /// Accepts the option's name, as Frigate sends it, and its value, as other programs do.
    pub(super) fn parse(name: &str) -> Result<Self, Fault> {
        match name {
            "yologeneric" | "yolo-generic" => Ok(Self::YoloGeneric),
            "yolonas" => Ok(Self::YoloNas),
            "yolox" => Ok(Self::YoloX),
            "dfine" => Ok(Self::DFine),
            "rfdetr" => Ok(Self::RfDetr),
            "ssd" => Ok(Self::Ssd),
            other => Err(Fault::bad_input(format!(
                "model_type is {other:?}, expected yolo-generic, yolonas, yolox, dfine, rfdetr or ssd"
            ))),
        }
    }
}

/// A box in the units of its network: pixels, or shares of the image.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Found {
    class: f32,
    score: f32,
    /// Left, top, right, bottom.
    corners: [f32; 4],
}

impl Found {
    fn centred(class: f32, score: f32, [x, y, width, height]: [f32; 4]) -> Self {
        let (w, h) = (width / 2.0, height / 2.0);
        Self { class, score, corners: [x - w, y - h, x + w, y + h] }
    }
}

/// The boxes that a network of this kind found on an image of this size in pixels.
///
/// # Errors
/// If the outputs do not fit this kind of network.
pub(super) fn rows(
    kind: Kind,
    outputs: &[&Tensor],
    (width, height): (u16, u16),
) -> Result<Rows, Fault> {
    let pixels = (f32::from(width), f32::from(height));
    let (found, unit) = match (kind, outputs) {
        (Kind::YoloGeneric, [one]) => (distinct(decoded(one)?), pixels),
        (Kind::YoloGeneric, [small, middle, large]) => {
            (distinct(anchored([small, middle, large], pixels)?), pixels)
        }
        (Kind::YoloX, [one]) => (distinct(gridded(one, (width, height))?), pixels),
        (Kind::YoloNas, [one]) => (flat(kind, one, [6, 5, 1, 2, 3, 4])?, pixels),
        (Kind::Ssd, [one]) => (flat(kind, one, [1, 2, 3, 4, 5, 6])?, (1.0, 1.0)),
        // The network is given its sizes as height and width, and scales x by the first.
        (Kind::DFine, [classes, boxes, scores]) => {
            (distinct(listed(classes, boxes, scores)?), (pixels.1, pixels.0))
        }
        (Kind::RfDetr, [boxes, logits]) => (distinct(queries(boxes, logits)?), (1.0, 1.0)),
        (kind, outputs) => return Err(unlike(kind, outputs)),
    };
    let mut rows = Rows::default();
    for (row, found) in rows.iter_mut().zip(found) {
        let [left, top, right, bottom] = found.corners;
        let (x, y) = unit;
        *row = [found.class, found.score, top / y, left / x, bottom / y, right / x];
    }
    Ok(rows)
}

fn unlike(kind: Kind, outputs: &[&Tensor]) -> Fault {
    let shapes: Vec<_> = outputs.iter().map(|output| output.shape().dims()).collect();
    Fault::bad_input(format!(
        "the model's outputs have the shapes {shapes:?}, which model_type {kind:?} does not have"
    ))
}

/// The best boxes first, at most `ROWS`, without those that overlap a better one of any class.
fn distinct(found: Vec<Found>) -> Vec<Found> {
    let boxed = |found: &Found| {
        let ([x1, y1, x2, y2], score) = (found.corners, found.score);
        PixelBox { x1, y1, x2, y2, score, class: 0 }
    };
    let boxes: Vec<PixelBox> = found.iter().map(boxed).collect();
    let options = NmsOptions { iou_max: THRESHOLD, score_min: THRESHOLD, boxes_max: ROWS };
    nms(&boxes, &options).into_iter().filter_map(|at| found.get(at).copied()).collect()
}

fn floats(tensor: &Tensor) -> Result<Cow<'_, [f32]>, Fault> {
    // Classes come as integers. No detector has more classes than `i16` counts.
    let class = |value: i64| f32::from(i16::try_from(value).unwrap_or(-1));
    match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().map(Cow::Borrowed).map_err(Fault::internal),
        DType::I64 => {
            let values = tensor.as_slice::<i64>().map_err(Fault::internal)?;
            Ok(Cow::Owned(values.iter().map(|value| class(*value)).collect()))
        }
        DType::I32 => {
            let values = tensor.as_slice::<i32>().map_err(Fault::internal)?;
            Ok(Cow::Owned(values.iter().map(|value| class(i64::from(*value))).collect()))
        }
        other => Err(Fault::unsupported(format!(
            "an output of the model has the element type {other:?}, expected F32, I32 or I64"
        ))),
    }
}

/// Turns columns into rows of `length` elements.
fn transposed(values: &[f32], length: usize) -> Vec<f32> {
    let count = values.len().checked_div(length).unwrap_or(0);
    let column = |i| values.iter().skip(i).step_by(count.max(1)).take(length).copied();
    (0..count).flat_map(column).collect()
}

/// Index and score of the best class; the first if several are equal.
fn best(scores: &[f32]) -> Option<(f32, f32)> {
    let mut best: Option<(f32, f32)> = None;
    for (class, score) in (0..=u16::MAX).zip(scores) {
        if best.is_none_or(|(_, most)| *score > most) {
            best = Some((f32::from(class), *score));
        }
    }
    best
}

/// YOLO with boxes in pixels: `[1, 4 + classes, boxes]`, or transposed.
fn decoded(output: &Tensor) -> Result<Vec<Found>, Fault> {
    let dims: Vec<usize> = output.shape().dims().iter().copied().filter(|dim| *dim != 1).collect();
    let [first, second] = dims[..] else { return Err(unlike(Kind::YoloGeneric, &[output])) };
    let values = floats(output)?;
    let length = first.min(second);
    let values = if first < second { transposed(&values, length).into() } else { values };
    let found = values.chunks_exact(length.max(1)).filter_map(|row| {
        let [x, y, width, height, classes @ ..] = row else { return None };
        let (class, score) = best(classes)?;
        Some(Found::centred(class, score, [*x, *y, *width, *height]))
    });
    Ok(found.collect())
}

/// YOLO with three outputs `[1, 3 × (5 + classes), rows, columns]` and boxes relative to anchors.
fn anchored(outputs: [&Tensor; 3], (width, height): (f32, f32)) -> Result<Vec<Found>, Fault> {
    let mut all = Vec::new();
    for ((output, stride), anchors) in outputs.into_iter().zip(STRIDES).zip(ANCHORS) {
        let [1, channels, _, columns] = *output.shape().dims() else {
            return Err(unlike(Kind::YoloGeneric, &outputs));
        };
        if !channels.is_multiple_of(anchors.len()) || output.is_empty() {
            return Err(unlike(Kind::YoloGeneric, &outputs));
        }
        let (stride, values) = (f32::from(stride), floats(output)?);
        let of_anchor = values.len() / anchors.len();
        for (values, (anchor_width, anchor_height)) in values.chunks_exact(of_anchor).zip(anchors) {
            let length = channels / anchors.len();
            for (row, (x, y)) in transposed(values, length).chunks_exact(length).zip(cells(columns))
            {
                let [dx, dy, dw, dh, object, classes @ ..] = row else { continue };
                let Some((class, score)) = best(classes) else { continue };
                let (x, y) = ((dx * 2.0 - 0.5 + x) * stride, (dy * 2.0 - 0.5 + y) * stride);
                let size = [(dw * 2.0).powi(2) * anchor_width, (dh * 2.0).powi(2) * anchor_height];
                let mut found = Found::centred(class, score * object, [x, y, size[0], size[1]]);
                let [left, top, right, bottom] = found.corners;
                found.corners = [left.max(0.0), top.max(0.0), right.min(width), bottom.min(height)];
                all.push(found);
            }
        }
    }
    Ok(all)
}

/// Column and row of each cell, row by row.
fn cells(columns: usize) -> impl Iterator<Item = (f32, f32)> {
    let columns = u16::try_from(columns).unwrap_or(u16::MAX);
    (0..=u16::MAX).flat_map(move |y| (0..columns).map(move |x| (f32::from(x), f32::from(y))))
}

/// YOLOX: `[1, boxes, 5 + classes]`, relative to the cells of three grids.
fn gridded(output: &Tensor, (width, height): (u16, u16)) -> Result<Vec<Found>, Fault> {
    let grid = |stride: u16| {
        let (columns, rows) = (width / stride, height / stride);
        let count = usize::from(columns) * usize::from(rows);
        cells(usize::from(columns)).take(count).map(move |(x, y)| (x, y, f32::from(stride)))
    };
    let places: Vec<(f32, f32, f32)> = STRIDES.into_iter().flat_map(grid).collect();
    let [1, count, length] = *output.shape().dims() else {
        return Err(unlike(Kind::YoloX, &[output]));
    };
    if count != places.len() {
        return Err(unlike(Kind::YoloX, &[output]));
    }
    let values = floats(output)?;
    let found =
        values.chunks_exact(length.max(1)).zip(places).filter_map(|(row, (x, y, stride))| {
            let [dx, dy, dw, dh, object, classes @ ..] = row else { return None };
            let (class, score) = best(classes)?;
            let at = [(dx + x) * stride, (dy + y) * stride, dw.exp() * stride, dh.exp() * stride];
            Some(Found::centred(class, score * object, at))
        });
    Ok(found.collect())
}

/// Final rows of seven values. `order` gives the positions of class, score and corners. A negative first column or
/// class ends the list.
fn flat(kind: Kind, output: &Tensor, order: [usize; 6]) -> Result<Vec<Found>, Fault> {
    match (kind, output.shape().dims()) {
        (Kind::YoloNas, [_, 7]) | (Kind::Ssd, [1, 1, _, 7]) => {}
        _ => return Err(unlike(kind, &[output])),
    }
    let values = floats(output)?;
    let found = values.chunks_exact(7).map_while(|row| {
        let at = |i: usize| row.get(i).copied().unwrap_or(0.0);
        let [class, score, corners @ ..] = order.map(at);
        (at(0) >= 0.0 && class >= 0.0).then_some(Found { class, score, corners })
    });
    Ok(found.take(ROWS).collect())
}

/// D-FINE: outputs with classes, corners and scores.
fn listed(classes: &Tensor, boxes: &Tensor, scores: &Tensor) -> Result<Vec<Found>, Fault> {
    if boxes.len() != classes.len().saturating_mul(4) || scores.len() != classes.len() {
        return Err(unlike(Kind::DFine, &[classes, boxes, scores]));
    }
    let (classes, boxes, scores) = (floats(classes)?, floats(boxes)?, floats(scores)?);
    let (corners, _) = boxes.as_chunks::<4>();
    let all = classes.iter().zip(scores.iter()).zip(corners);
    Ok(all.map(|((&class, &score), &corners)| Found { class, score, corners }).collect())
}

/// RF-DETR: centres and sizes, and a logit per class; the first logit is unused.
fn queries(boxes: &Tensor, logits: &Tensor) -> Result<Vec<Found>, Fault> {
    let ([1, count, 4], [1, as_many, length]) = (boxes.shape().dims(), logits.shape().dims())
    else {
        return Err(unlike(Kind::RfDetr, &[boxes, logits]));
    };
    if count != as_many {
        return Err(unlike(Kind::RfDetr, &[boxes, logits]));
    }
    let (boxes, logits) = (floats(boxes)?, floats(logits)?);
    let (places, _) = boxes.as_chunks::<4>();
    let found = places.iter().zip(logits.chunks_exact((*length).max(1))).filter_map(|(at, row)| {
        let shares = softmax(row);
        let (class, score) = best(shares.get(1..)?)?;
        Some(Found::centred(class, score, *at))
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests;
