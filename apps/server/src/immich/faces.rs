//! Faces: a network of the kind SCRFD or RetinaFace detects them, and one of the kind ArcFace embeds each.

use super::align;
use super::beside::wrong_model;
use super::models::{Models, batch, embeddings, image_input, numbers};
use super::pictures::{Picture, bad};
use super::warp::{Beyond, warp};
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip;
use lgp_common::vision::{
    self, Channels, NmsOptions, Order, PixelBox, Pixels, Scaling, VisionError,
};
use lgp_sdk::tensor::{NamedTensor, Tensor};
use serde_json::{Value, json};

/// The side of the detector's input if its shape leaves it open.
const SIDE: usize = 640;
const SIDE_MAX: usize = 2048;
/// Distances in pixels between the detector's anchor points, one for each of its three levels.
const STRIDES: [usize; 3] = [8, 16, 32];
/// Anchors at each point.
const AT_ONE_PLACE: usize = 2;
/// Boxes with a larger intersection over union are the same face.
const IOU_MAX: f32 = 0.4;
/// The most faces in an image. Each face costs a run of the recognition network.
const FACES_MAX: usize = 512;
/// Faces in one run of the recognition network.
const BATCH: usize = 16;

/// A request for faces, with Immich's names of the models.
pub(super) struct Faces {
    pub(super) detection: String,
    pub(super) recognition: String,
    /// The least score of a face.
    pub(super) score_min: f32,
}

/// A face in pixels of the image.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Face {
    place: PixelBox,
    /// Eyes, nose, corners of the mouth.
    points: [[f32; 2]; 5],
}

/// The faces in an image, the highest score first.
///
/// # Errors
/// If a model is missing, does not fit or fails.
pub(super) async fn find(
    models: &Models,
    asked: &Faces,
    picture: &Picture,
) -> Result<Value, Fault> {
    let detection = models.find(&asked.detection, "detection").await?;
    let (entry, shared) = (detection.entry().clone(), picture.clone());
    let prepare = move || detector_input(&entry, shared.pixels());
    let (input, side, scale) = oip::off_loop(oip::LARGE_BYTES, prepare).await?;
    let outputs = models.run(&detection, vec![input]).await?;
    let (entry, score_min) = (detection.entry().clone(), asked.score_min);
    let choose = move || faces(&entry, &outputs, side, score_min);
    let faces = oip::off_loop(oip::LARGE_BYTES, choose).await?;
    let faces: Vec<Face> = faces.into_iter().map(|face| face.scaled(scale)).collect();
    let embeddings = recognise(models, &asked.recognition, picture, &faces).await?;
    let described = faces.iter().zip(embeddings).map(|(Face { place, .. }, embedding)| {
        let [x1, y1, x2, y2] = [place.x1, place.y1, place.x2, place.y2].map(f32::round_ties_even);
        json!({
            "boundingBox": { "x1": x1, "y1": y1, "x2": x2, "y2": y2 },
            "embedding": embedding,
            "score": place.score,
        })
    });
    Ok(described.collect())
}

/// The detector's input: a black square with the image in the upper left corner, as large as it fits. Also returns
/// the square's side and the scale from image pixels to input pixels.
fn detector_input(entry: &ModelEntry, pixels: &Pixels) -> Result<(NamedTensor, usize, f32), Fault> {
    let spec = image_input(entry)?;
    let shape = spec.ty.shape.as_ref().map(|shape| shape.0.as_slice());
    let side = match shape {
        Some([_, _, height, _]) => height.known().unwrap_or(SIDE),
        _ => SIDE,
    };
    let coarsest = STRIDES[2];
    if !(coarsest..=SIDE_MAX).contains(&side) || !side.is_multiple_of(coarsest) {
        let what = format!("its input has the side {side}, expected a multiple of {coarsest}");
        return Err(wrong_model(entry, what + &format!(" up to {SIDE_MAX}")));
    }
    let (square, scale) = letterboxed(pixels, side).map_err(bad)?;
    let scaling = Scaling { scale: 1.0, mean: vec![127.5], std: vec![128.0] };
    let values = vision::normalise(&square, &scaling, Order::Nchw).map_err(bad)?;
    let tensor = Tensor::from_slice(vec![1, 3, side, side], &values).map_err(Fault::internal)?;
    Ok((NamedTensor::new(&spec.name, tensor), side, scale))
}

fn letterboxed(pixels: &Pixels, side: usize) -> Result<(Pixels, f32), VisionError> {
    let (width, height) = (u64::from(pixels.width()), u64::from(pixels.height()));
    let whole = u64::try_from(side).unwrap_or(u64::MAX);
    let (inner_width, inner_height) = match height > width {
        true => ((whole * width / height).max(1), whole),
        false => (whole, (whole * height / width).max(1)),
    };
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let size = (narrow(inner_width), narrow(inner_height));
    let (across, down) = (ratio(width, inner_width), ratio(height, inner_height));
    let inner = warp(pixels, size, Beyond::Edge, |x, y| {
        ((x + 0.5) * across - 0.5, (y + 0.5) * down - 0.5)
    })?;
    let mut data = vec![0; side * side * 3];
    let row = usize::try_from(inner_width).unwrap_or(side) * 3;
    for (to, from) in data.chunks_exact_mut(side * 3).zip(inner.data().chunks_exact(row)) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
    let square = Pixels::new(narrow(whole), narrow(whole), Channels::Rgb, data)?;
    Ok((square, ratio(inner_height, height)))
}

fn ratio(a: u64, b: u64) -> f32 {
    // The rounding is far below a pixel.
    (a as f64 / b as f64) as f32
}

impl Face {
    /// Converts input pixels to image pixels; `scale` is input pixels per image pixel.
    fn scaled(self, scale: f32) -> Self {
        let PixelBox { x1, y1, x2, y2, .. } = self.place;
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(|value| value / scale);
        let points = self.points.map(|point| point.map(|value| value / scale));
        Self { place: PixelBox { x1, y1, x2, y2, ..self.place }, points }
    }
}

/// The detector's outputs at one level.
struct Level<'a> {
    scores: &'a [f32],
    /// Distances of the box's sides from the anchor point, in strides: left, upper, right, lower.
    sides: &'a [f32],
    /// Offsets of the face's points from the anchor point, in strides.
    points: &'a [f32],
}

/// Faces of at least `score_min`, the highest score first, in pixels of the input.
fn faces(
    entry: &ModelEntry,
    outputs: &[Tensor],
    side: usize,
    score_min: f32,
) -> Result<Vec<Face>, Fault> {
    let mut found = Vec::new();
    for stride in STRIDES {
        let across = side / stride;
        let rows = across * across * AT_ONE_PLACE;
        let Level { scores, sides, points } = level(entry, outputs, rows)?;
        let places = scores.iter().zip(sides.as_chunks::<4>().0).zip(points.as_chunks::<10>().0);
        for (row, ((&score, sides), points)) in places.enumerate() {
            if score < score_min {
                continue;
            }
            let place = row / AT_ONE_PLACE;
            // Exact, because an input has at most 2048 pixels in a row.
            let [x, y] = [place % across, place / across].map(|cell| (cell * stride) as f32);
            let stride = stride as f32;
            let [left, upper, right, lower] = sides.map(|distance| distance * stride);
            let (x1, y1, x2, y2) = (x - left, y - upper, x + right, y + lower);
            let place = PixelBox { x1, y1, x2, y2, score, class: 0 };
            let mut at = [[0.0; 2]; 5];
            for (point, offset) in at.iter_mut().zip(points.as_chunks::<2>().0) {
                *point = [x + offset[0] * stride, y + offset[1] * stride];
            }
            found.push(Face { place, points: at });
        }
    }
    let boxes: Vec<PixelBox> = found.iter().map(|face| face.place).collect();
    let options = NmsOptions { iou_max: IOU_MAX, score_min, boxes_max: FACES_MAX };
    let kept = vision::nms(&boxes, &options);
    let kept = kept.into_iter().filter_map(|at| found.get(at).copied());
    // A face whose points coincide cannot be turned upright.
    Ok(kept.filter(|face| align::to_template(&face.points).is_some()).collect())
}

/// The three outputs with `rows` rows. Networks order them differently, so their widths tell them apart.
fn level<'a>(entry: &ModelEntry, outputs: &'a [Tensor], rows: usize) -> Result<Level<'a>, Fault> {
    let wide = |width: usize| {
        let fits = |output: &&Tensor| {
            let dims = output.shape().dims();
            dims.last() == Some(&width) && output.shape().elements().ok() == Some(rows * width)
        };
        let output = outputs.iter().find(fits).ok_or_else(|| {
            let shapes: Vec<_> = outputs.iter().map(|output| output.shape().dims()).collect();
            let what =
                format!("its outputs have the shapes {shapes:?}, expected [{rows}, {width}]");
            wrong_model(entry, what + " among them")
        })?;
        numbers(entry, output)
    };
    Ok(Level { scores: wide(1)?, sides: wide(4)?, points: wide(10)? })
}

/// The embeddings of faces, in their order.
async fn recognise(
    models: &Models,
    name: &str,
    picture: &Picture,
    faces: &[Face],
) -> Result<Vec<String>, Fault> {
    if faces.is_empty() {
        return Ok(Vec::new());
    }
    let recognition = models.find(name, "recognition").await?;
    let spec = image_input(recognition.entry())?;
    let batch = batch(recognition.entry(), spec, BATCH)?;
    let mut all = Vec::new();
    for faces in faces.chunks(batch) {
        let (input, picture, faces) = (spec.name.clone(), picture.clone(), faces.to_vec());
        let count = faces.len();
        let prepare = move || crops(&input, picture.pixels(), &faces);
        let input = oip::off_loop(oip::LARGE_BYTES, prepare).await?;
        let outputs = models.run_again(&recognition, vec![input]).await?;
        all.extend(embeddings(recognition.entry(), &outputs, count)?);
    }
    Ok(all)
}

/// The faces, turned upright and scaled to one size, as a network's input.
fn crops(input: &str, pixels: &Pixels, faces: &[Face]) -> Result<NamedTensor, Fault> {
    let scaling = Scaling { scale: 1.0, mean: vec![127.5], std: vec![127.5] };
    let mut values = Vec::new();
    for face in faces {
        let back = align::to_template(&face.points).and_then(|to| to.inverse());
        let back = back.ok_or_else(|| Fault::internal("a face without an upright"))?;
        let size = (align::SIDE, align::SIDE);
        let crop = warp(pixels, size, Beyond::Black, |x, y| back.apply([x, y]).into());
        values.extend(vision::normalise(&crop.map_err(bad)?, &scaling, Order::Nchw).map_err(bad)?);
    }
    let side = usize::try_from(align::SIDE).map_err(Fault::internal)?;
    let shape = vec![faces.len(), 3, side, side];
    let tensor = Tensor::from_slice(shape, &values).map_err(Fault::internal)?;
    Ok(NamedTensor::new(input, tensor))
}
