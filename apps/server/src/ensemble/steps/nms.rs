//! Non-maximum suppression: keeps the highest-scored of overlapping boxes in a detector's output.
#![deny(clippy::as_conversions)]

use super::{
    BuiltIn, Checked, Given, Kind, Made, ModelName, Value, floats, label, model_name, tensor,
    texts, with_labels,
};
use crate::fault::Fault;
use lgp_common::vision::{NmsOptions, PixelBox, Pixels, nms};
use lgp_sdk::tensor::{DType, Dim, Tensor};
use serde::Deserialize;

/// The most boxes of one image, because the work grows with them.
const BOXES_MAX: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nms {
    format: Format,
    /// Boxes of one class with a larger intersection over union are duplicates.
    #[serde(default = "iou")]
    iou: f32,
    /// Boxes with a lower score are dropped.
    #[serde(default = "score")]
    score: f32,
    /// The most boxes of an image.
    #[serde(default = "boxes_max")]
    max: usize,
    /// Width and height of the boxes' coordinates: those of the model's input, or 1 and 1 for shares.
    size: Option<[f32; 2]>,
    /// The model whose `labels.txt` names the classes.
    #[serde(default, deserialize_with = "model_name")]
    labels: Option<ModelName>,
}

fn iou() -> f32 {
    0.45
}

fn score() -> f32 {
    0.25
}

fn boxes_max() -> usize {
    300
}

/// The layout of boxes and scores in a model's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// `[n, 4 + classes, boxes]` or `[n, boxes, 4 + classes]`; the longer dimension counts the boxes. Each box is a
    /// centre, width and height, and a score per class.
    Yolo,
    /// As `Yolo`, with an objectness score before the class scores.
    Yolov5,
    /// Boxes `[n, boxes, 4]` as two corners, and scores `[n, boxes, classes]`.
    Corners,
}

impl Checked for Nms {
    fn check(&self) -> Result<(), String> {
        for (key, given) in [("iou", self.iou), ("score", self.score)] {
            if !(0.0..=1.0).contains(&given) {
                return Err(format!("{key} is {given}, expected 0 to 1"));
            }
        }
        if !(1..=BOXES_MAX).contains(&self.max) {
            return Err(format!("max is {}, expected 1 to {BOXES_MAX}", self.max));
        }
        match self.size {
            Some(size) if !size.iter().all(|side| side.is_finite() && *side > 0.0) => {
                Err(format!("size is {size:?}, expected width and height above 0"))
            }
            _ => Ok(()),
        }
    }
}

impl BuiltIn for Nms {
    fn needs(&self) -> &'static [&'static str] {
        match self.format {
            Format::Yolo | Format::Yolov5 => &["boxes"],
            Format::Corners => &["boxes", "scores"],
        }
    }

    fn may_have(&self) -> &'static [&'static str] {
        &["pictures"]
    }

    fn labels(&self) -> Option<&ModelName> {
        self.labels.as_ref()
    }

    fn kinds(&self, given: &Given<Kind>) -> Result<Made<Kind>, String> {
        for port in self.needs() {
            let dims = given.floats(port)?;
            if let Some(rank) = dims.map(|dims| dims.len()).filter(|rank| *rank != 3) {
                return Err(format!(
                    "input '{port}' gets {} of rank {rank}, expected rank 3",
                    given.label(port)
                ));
            }
        }
        if given.find("pictures").is_some() {
            given.pictures("pictures")?;
            if self.size.is_none() {
                return Err("input 'pictures' needs size = [WIDTH, HEIGHT] of the boxes".to_owned());
            }
        }
        let list = |dtype| Kind::tensor(dtype, vec![Dim::Unknown]);
        let mut all = vec![
            ("boxes", Kind::tensor(DType::F32, vec![Dim::Unknown, Dim::Known(4)])),
            ("scores", list(DType::F32)),
            ("classes", list(DType::I64)),
            ("pictures", list(DType::I64)),
        ];
        with_labels(&mut all, "labels", self.labels.is_some(), list(DType::Str));
        Ok(all)
    }

    fn run(&self, given: Given<Value>, labels: &[String]) -> Result<Made<Value>, Fault> {
        let (count, found) = self.found(&given)?;
        let pictures = given.find("pictures").map(Value::pictures).transpose()?;
        if let Some(given) = pictures.map(<[Pixels]>::len).filter(|given| *given != count) {
            let what = format!("{given} pictures and the boxes of {count}, expected as many");
            return Err(Fault::bad_input(what));
        }
        let options = NmsOptions { iou_max: self.iou, score_min: self.score, boxes_max: self.max };
        let (mut corners, mut scores, mut classes, mut of) = (vec![], vec![], vec![], vec![]);
        for (at, boxes) in (0i64..).zip(&found) {
            let picture = usize::try_from(at).ok().zip(pictures);
            let picture = picture.and_then(|(at, all)| all.get(at)).zip(self.size);
            for kept in nms(boxes, &options).into_iter().filter_map(|kept| boxes.get(kept)) {
                corners.extend(placed(kept, picture));
                scores.push(kept.score);
                classes.push(i64::from(kept.class));
                of.push(at);
            }
        }
        let count = scores.len();
        let mut made = vec![
            ("boxes", tensor(vec![count, 4], &corners)?),
            ("scores", tensor(vec![count], &scores)?),
            ("classes", tensor(vec![count], &classes)?),
            ("pictures", tensor(vec![count], &of)?),
        ];
        if self.labels.is_some() {
            let name = |class: &i64| label(labels, usize::try_from(*class).unwrap_or(usize::MAX));
            made.push((
                "labels",
                texts(vec![count], &classes.iter().map(name).collect::<Vec<_>>())?,
            ));
        }
        Ok(made)
    }
}

impl Nms {
    /// The number of images, and the boxes of each.
    fn found(&self, given: &Given<Value>) -> Result<(usize, Vec<Vec<PixelBox>>), Fault> {
        let boxes = given.need("boxes")?.tensor()?;
        let [count, first, second] = sides(&boxes)?;
        let values = floats(&boxes)?;
        let pictures = values.chunks(first.saturating_mul(second).max(1));
        let has_object = match self.format {
            Format::Yolo => false,
            Format::Yolov5 => true,
            Format::Corners => {
                let scores = given.need("scores")?.tensor()?;
                let [of, as_many, classes] = sides(&scores)?;
                if second != 4 || (of, as_many) != (count, first) {
                    let (boxes, scores) = (boxes.shape().dims(), scores.shape().dims());
                    return Err(Fault::bad_input(format!(
                        "boxes {boxes:?} and scores {scores:?} do not belong together, expected \
                         [n, boxes, 4] and [n, boxes, classes]"
                    )));
                }
                let values = floats(&scores)?;
                let scores = values.chunks(as_many.saturating_mul(classes).max(1));
                let both = pictures.zip(scores);
                return Ok((count, both.map(|(at, of)| cornered(at, of, classes)).collect()));
            }
        };
        let length = first.min(second);
        let one = |picture: &[f32]| match first < second {
            true => centred(&by_box(picture, length), length, has_object),
            false => centred(picture, length, has_object),
        };
        Ok((count, pictures.map(one).collect()))
    }
}

/// Turns columns into rows of `length` numbers.
fn by_box(values: &[f32], length: usize) -> Vec<f32> {
    let count = values.len().checked_div(length).unwrap_or(0);
    let column = |at| values.iter().skip(at).step_by(count.max(1)).take(length).copied();
    (0..count).flat_map(column).collect()
}

fn sides(tensor: &Tensor) -> Result<[usize; 3], Fault> {
    let dims = tensor.shape().dims();
    <[usize; 3]>::try_from(dims).map_err(|_| {
        Fault::bad_input(format!(
            "boxes or scores have the shape {dims:?}, expected three dimensions"
        ))
    })
}

/// Boxes given by centre and size.
fn centred(rows: &[f32], length: usize, has_object: bool) -> Vec<PixelBox> {
    let one = |row: &[f32]| {
        let [x, y, width, height, rest @ ..] = row else { return None };
        let (object, classes) = match (has_object, rest) {
            (true, [object, classes @ ..]) => (*object, classes),
            (true, []) => return None,
            (false, classes) => (1.0, classes),
        };
        let (class, score) = best(classes)?;
        let (w, h) = (width / 2.0, height / 2.0);
        let (x1, y1, x2, y2) = (x - w, y - h, x + w, y + h);
        Some(PixelBox { x1, y1, x2, y2, score: score * object, class })
    };
    rows.chunks_exact(length.max(1)).filter_map(one).collect()
}

/// Boxes given by corners, with their class scores.
fn cornered(rows: &[f32], scores: &[f32], classes: usize) -> Vec<PixelBox> {
    let (corners, _) = rows.as_chunks::<4>();
    let all = corners.iter().zip(scores.chunks(classes.max(1)));
    all.filter_map(|(&[x1, y1, x2, y2], scores)| {
        let (class, score) = best(scores)?;
        Some(PixelBox { x1, y1, x2, y2, score, class })
    })
    .collect()
}

/// The class of the highest score; the first if several are equal. NaN scores are skipped.
fn best(scores: &[f32]) -> Option<(u32, f32)> {
    let all = (0u32..).zip(scores.iter().copied()).filter(|(_, score)| !score.is_nan());
    all.reduce(|best, other| if other.1 > best.1 { other } else { best })
}

/// The corners of a box; with an image, in its pixels and clamped to it.
fn placed(found: &PixelBox, picture: Option<(&Pixels, [f32; 2])>) -> [f32; 4] {
    let PixelBox { x1, y1, x2, y2, .. } = *found;
    let Some((picture, [width, height])) = picture else { return [x1, y1, x2, y2] };
    let (across, down) = (side(picture.width()), side(picture.height()));
    let x = |x: f32| (x / width * across).clamp(0.0, across);
    let y = |y: f32| (y / height * down).clamp(0.0, down);
    [x(x1), y(y1), x(x2), y(y2)]
}

/// A side as a float. Accepted images are short enough for an exact result.
fn side(pixels: u32) -> f32 {
    let [high, low] = [pixels >> 16, pixels & 0xffff].map(|half| u16::try_from(half).unwrap_or(0));
    f32::from(high) * 65_536.0 + f32::from(low)
}
