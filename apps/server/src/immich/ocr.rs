//! Text recognition on images with PaddleOCR's exported networks: a differentiable-binarization detector finds the
//! text, a recogniser reads its lines.

use super::beside::{unusable, wrong_model};
use super::ctc::{self, Line};
use super::models::{Models, batch, image_input, numbers};
use super::pictures::{Picture, bad};
use super::regions::{Map, Region, distance, regions};
use super::warp::{Beyond, Projection, warp};
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip;
use lgp_common::vision::{self, Filter, Order, Pixels, Scaling};
use lgp_sdk::tensor::{NamedTensor, Tensor};
use serde_json::{Value, json};

/// The detector's input sides are multiples of this; smaller images count as having no text.
const STEP: u32 = 32;
/// The most pixels of the detector's input; each takes twelve bytes in the tensor.
const PIXELS_MAX: u64 = 1 << 24;
/// Bytes for each pixel: its three values when resized, when transposed and in the tensor, and the network's
/// output.
const PIXEL_BYTES: usize = 44;
/// The height of a line for the recogniser.
const LINE_HEIGHT: u32 = 48;
/// The least and the largest width of the recogniser's input; longer lines are narrowed.
const LINE_WIDTHS: [u32; 2] = [320, 3200];
/// Lines in one run of the recogniser.
const BATCH: usize = 6;
/// From this ratio of height to width on, text counts as rotated by 90°.
const UPRIGHT_MAX: f32 = 1.5;

/// A request for text recognition, with Immich's names of the models.
pub(super) struct Ocr {
    pub(super) detection: String,
    pub(super) recognition: String,
    /// The least score of a text region.
    pub(super) region_score_min: f32,
    /// The least score of a recognised text.
    pub(super) text_score_min: f32,
    /// Pixels of the shorter side of the detector's input.
    pub(super) resolution: u32,
}

impl Ocr {
    /// Bytes that detection takes on an image of this size.
    ///
    /// # Errors
    /// 400 if the image is too long.
    pub(super) fn room(&self, size: (u32, u32)) -> Result<usize, Fault> {
        if size.0.min(size.1) < STEP {
            return Ok(0);
        }
        let (width, height) = detector_size(size, self.resolution)?;
        Ok(index(width).saturating_mul(index(height)).saturating_mul(PIXEL_BYTES))
    }
}

/// Reads the text of an image, line by line.
///
/// # Errors
/// If a model is missing, does not fit or fails; 400 if the image is too long.
pub(super) async fn read(models: &Models, asked: &Ocr, picture: &Picture) -> Result<Value, Fault> {
    let regions = find(models, asked, picture).await?;
    let lines = recognise(models, &asked.recognition, picture, &regions).await?;
    let read = regions.iter().zip(lines).filter(|(_, line)| line.score > asked.text_score_min);
    let (regions, lines): (Vec<&Region>, Vec<Line>) = read.unzip();
    // Exact, because sides are shorter than 2^24.
    let size = [picture.width() as f32, picture.height() as f32];
    let corners = regions.iter().flat_map(|region| region.corners);
    let places = corners.flat_map(|[x, y]| [x / size[0], y / size[1]]);
    Ok(json!({
        "text": lines.iter().map(|line| &line.text).collect::<Vec<_>>(),
        "textScore": lines.iter().map(|line| line.score).collect::<Vec<_>>(),
        "box": places.collect::<Vec<_>>(),
        "boxScore": regions.iter().map(|region| region.score).collect::<Vec<_>>(),
    }))
}

/// Detects the text regions.
async fn find(models: &Models, asked: &Ocr, picture: &Picture) -> Result<Vec<Region>, Fault> {
    let size = (picture.width(), picture.height());
    let detection = models.find(&asked.detection, "detection").await?;
    if size.0.min(size.1) < STEP {
        return Ok(Vec::new());
    }
    let (width, height) = detector_size(size, asked.resolution)?;
    let pixels = index(width) * index(height);
    let (name, shared) = (image_input(detection.entry())?.name.clone(), picture.clone());
    let prepare = move || {
        let resized = vision::resize(shared.pixels().clone(), width, height, Filter::Lanczos);
        // Unusual, but Immich uses this scaling, and its score limits assume it.
        let scaling = Scaling { scale: 1.0, mean: vec![0.5], std: vec![127.5] };
        let planes = vision::normalise(&resized.map_err(bad)?, &scaling, Order::Nchw);
        // The network takes BGR.
        let planes = planes.map_err(bad)?;
        let values: Vec<f32> = planes.chunks_exact(pixels).rev().flatten().copied().collect();
        let shape = vec![1, 3, index(height), index(width)];
        let tensor = Tensor::from_slice(shape, &values).map_err(Fault::internal)?;
        Ok(NamedTensor::new(&name, tensor))
    };
    let input = oip::off_loop(oip::LARGE_BYTES, prepare).await?;
    let outputs = models.run(&detection, vec![input]).await?;
    let (entry, score_min) = (detection.entry().clone(), asked.region_score_min);
    let search = move || {
        let output = outputs.first().ok_or_else(|| wrong_model(&entry, "it has no output"))?;
        let dims = output.shape().dims();
        let (&[1, 1, height, width] | &[1, height, width]) = dims else {
            let what = format!("its output has the shape {dims:?}, expected [1, 1, height, width]");
            return Err(wrong_model(&entry, what));
        };
        if width == 0 || height == 0 {
            return Err(wrong_model(&entry, "its output is empty"));
        }
        let map = Map { values: numbers(&entry, output)?, width, height };
        Ok(regions(&map, size, score_min))
    };
    oip::off_loop(oip::LARGE_BYTES, search).await
}

/// The detector's input size: the shorter side has `resolution` pixels, and both are rounded.
fn detector_size((width, height): (u32, u32), resolution: u32) -> Result<(u32, u32), Fault> {
    let short = u64::from(width.min(height));
    let side = |own: u32| {
        let exact = u64::from(own) * u64::from(resolution) / short;
        let (whole, rest) = (exact / u64::from(STEP), exact % u64::from(STEP));
        // Rounds half to even.
        let up = rest * 2 + whole % 2 > u64::from(STEP);
        (whole + u64::from(up)).max(1) * u64::from(STEP)
    };
    let (wide, high) = (side(width), side(height));
    let too_large = || {
        let what = format!("text would be looked for at {wide}x{high} pixels");
        Fault::bad_input(format!("{what}, expected at most {PIXELS_MAX} in all"))
            .hint("lower the maximum resolution in Immich's settings of OCR")
    };
    match (u32::try_from(wide), u32::try_from(high)) {
        (Ok(width), Ok(height)) if wide.saturating_mul(high) <= PIXELS_MAX => Ok((width, height)),
        _ => Err(too_large()),
    }
}

/// Recognises the text of the regions, in their order.
async fn recognise(
    models: &Models,
    name: &str,
    picture: &Picture,
    regions: &[Region],
) -> Result<Vec<Line>, Fault> {
    if regions.is_empty() {
        return Ok(Vec::new());
    }
    let recognition = models.find(name, "recognition").await?;
    let entry = recognition.entry();
    let spec = image_input(entry)?;
    let batch = batch(entry, spec, BATCH)?;
    // Sorted by length, the lines of a batch need little padding.
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by(|&a, &b| ratio(&regions[a]).total_cmp(&ratio(&regions[b])));
    let mut all = vec![Line { text: String::new(), score: 0.0 }; regions.len()];
    for places in order.chunks(batch) {
        let these: Vec<Region> = places.iter().map(|&place| regions[place]).collect();
        let (input, picture) = (spec.name.clone(), picture.clone());
        let prepare = move || lines(&input, picture.pixels(), &these);
        let input = oip::off_loop(oip::LARGE_BYTES, prepare).await?;
        let outputs = models.run_again(&recognition, vec![input]).await?;
        let entry = entry.clone();
        let count = places.len();
        let decode = move || characters(&entry, &outputs, count);
        let read = oip::off_loop(oip::LARGE_BYTES, decode).await?;
        for (&place, line) in places.iter().zip(read) {
            all[place] = line;
        }
    }
    Ok(all)
}

/// Width and height of a text, in pixels of the picture.
fn size(Region { corners: [a, b, c, d], .. }: &Region) -> (f32, f32) {
    let width = distance(*a, *b).max(distance(*d, *c)).floor();
    let height = distance(*a, *d).max(distance(*b, *c)).floor();
    (width.max(1.0), height.max(1.0))
}

fn is_on_its_side(region: &Region) -> bool {
    let (width, height) = size(region);
    height / width >= UPRIGHT_MAX
}

/// The ratio of width to height of a text once it is upright.
fn ratio(region: &Region) -> f32 {
    let (width, height) = size(region);
    if is_on_its_side(region) { height / width } else { width / height }
}

/// Text regions as an input of the recogniser: upright, of one height, zero-padded on the right.
fn lines(name: &str, pixels: &Pixels, regions: &[Region]) -> Result<NamedTensor, Fault> {
    let [least, most] = LINE_WIDTHS;
    let own = |region: &Region| {
        // The ratio is positive; larger values are clamped.
        ((ratio(region) * LINE_HEIGHT as f32).ceil() as u32).clamp(1, most)
    };
    let width = regions.iter().map(own).max().unwrap_or(least).max(least);
    let scaling = Scaling { scale: 1.0, mean: vec![127.5], std: vec![127.5] };
    let (row, plane) = (index(width), index(width) * index(LINE_HEIGHT));
    let mut values: Vec<f32> = Vec::new();
    for region in regions {
        let own = own(region);
        let line = upright(pixels, region, own)?;
        let scaled = vision::normalise(&line, &scaling, Order::Nchw).map_err(bad)?;
        let mut padded = vec![0.0; 3 * plane];
        let rows = padded.chunks_exact_mut(row).zip(scaled.chunks_exact(index(own)));
        rows.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = *from));
        // The network takes BGR.
        values.extend(padded.chunks_exact(plane).rev().flatten());
    }
    let shape = vec![regions.len(), 3, index(LINE_HEIGHT), row];
    let tensor = Tensor::from_slice(shape, &values).map_err(Fault::internal)?;
    Ok(NamedTensor::new(name, tensor))
}

fn upright(pixels: &Pixels, region: &Region, width: u32) -> Result<Pixels, Fault> {
    let [a, b, c, d] = region.corners;
    // Clockwise, from the start of the line. Rotated text is read downwards.
    let corners = if is_on_its_side(region) { [b, c, d, a] } else { [a, b, c, d] };
    let place = Projection::from_square(corners);
    let across = [width, LINE_HEIGHT].map(|side| side as f32);
    let line = warp(pixels, (width, LINE_HEIGHT), Beyond::Edge, |x, y| {
        let [x, y] = place.apply([(x + 0.5) / across[0], (y + 0.5) / across[1]]);
        (x - 0.5, y - 0.5)
    });
    line.map_err(bad)
}

/// Decodes the recogniser's output. Its classes are: blank, the lines of `labels.txt`, a space.
fn characters(entry: &ModelEntry, outputs: &[Tensor], count: usize) -> Result<Vec<Line>, Fault> {
    let output = outputs.first().ok_or_else(|| wrong_model(entry, "it has no output"))?;
    let dims = output.shape().dims();
    let known = entry.labels();
    let fits = |classes: usize| {
        !known.is_empty() && [1, 2].iter().any(|more| classes == known.len() + more)
    };
    let &[rows, steps, classes] = dims else {
        let what = format!("its output has the shape {dims:?}, expected [lines, steps, classes]");
        return Err(wrong_model(entry, what));
    };
    if rows != count || steps == 0 {
        return Err(wrong_model(
            entry,
            format!("its output has the shape {dims:?} for {count} lines"),
        ));
    }
    if !fits(classes) {
        let (lines, expected) = (known.len(), classes.saturating_sub(2));
        let what = format!("it has {lines} lines for {classes} classes, expected {expected}");
        return Err(unusable(entry, "labels.txt", what));
    }
    let character = |class: usize| match class.checked_sub(1).map(|at| known.get(at)) {
        Some(Some(character)) => character.as_str(),
        Some(None) => " ",
        None => "",
    };
    let rows = numbers(entry, output)?.chunks_exact(steps * classes);
    Ok(rows.map(|row| ctc::line(row.chunks_exact(classes), character)).collect())
}

fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_multiples_of_a_step() {
        for (size, resolution, expected) in [
            ((1920, 1440), 736, Some((992, 736))),
            ((1440, 1920), 736, Some((736, 992))),
            // Rounds half to even: 7.5 up, 8.5 down.
            ((320, 240), 240, Some((320, 256))),
            ((272, 320), 272, Some((256, 320))),
            ((40, 40), 1, Some((32, 32))),
            ((40_000, 40), 736, None),
            ((u32::MAX, 1), 4096, None),
        ] {
            assert_eq!(detector_size(size, resolution).ok(), expected, "{size:?}");
        }
    }
}
