//! Embeddings of images and texts, by the two halves of a CLIP model.

use super::beside::{settings, unusable};
use super::languages;
use super::models::{Models, embeddings, image_input};
use super::pictures::{Picture, bad};
use crate::catalog::ModelEntry;
use crate::fault::Fault;
use crate::oip;
use lgp_common::vision::{self, Filter, Order, Pixels, Scaling, VisionError};
use lgp_sdk::tensor::{NamedTensor, Tensor};
use serde::Deserialize;
use serde_json::Value;

/// OpenCLIP's file beside a model with the preprocessing of images.
const PREPROCESSING: &str = "preprocess_cfg.json";
/// The default side of the input.
const SIDE: u32 = 224;
/// The largest side; no image model takes a larger input.
const SIDE_MAX: u32 = 512;
/// If the longer side exceeds this multiple of the shorter one, the ends are cut off first.
const LONGEST: u32 = 4;

/// A request for the embedding of a text, with Immich's name of the model.
pub(super) struct Textual {
    pub(super) model: String,
    /// The language of the text, by Immich's name.
    pub(super) language: Option<String>,
}

/// The embedding of an image.
///
/// # Errors
/// If the model is missing, does not fit or fails.
pub(super) async fn visual(
    models: &Models,
    model: &str,
    picture: &Picture,
) -> Result<Value, Fault> {
    let named = models.find(model, "visual").await?;
    let (entry, picture) = (named.entry().clone(), picture.clone());
    let prepare = move || input(&entry, picture.pixels());
    let input = oip::off_loop(oip::LARGE_BYTES, prepare).await?;
    let outputs = models.run(&named, vec![input]).await?;
    one(named.entry(), &outputs)
}

/// The embedding of a text.
///
/// # Errors
/// As [`visual`].
pub(super) async fn textual(models: &Models, asked: &Textual, text: &str) -> Result<Value, Fault> {
    let named = models.find(&asked.model, "textual").await?;
    let entry = named.entry();
    let tokens = models.tokens(entry).await?;
    let prefix = languages::prefix(entry.name(), asked.language.as_deref());
    let inputs = tokens.inputs(entry, (prefix, text))?;
    let outputs = models.run(&named, inputs).await?;
    one(entry, &outputs)
}

fn one(entry: &ModelEntry, outputs: &[Tensor]) -> Result<Value, Fault> {
    let embedding = embeddings(entry, outputs, 1)?.pop();
    embedding.map(Value::from).ok_or_else(|| Fault::internal("an embedding is missing"))
}

/// OpenCLIP's settings; defaults are those of OpenAI's models.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct Preprocessing {
    size: Option<Size>,
    mean: [f32; 3],
    std: [f32; 3],
    interpolation: Interpolation,
    resize_mode: ResizeMode,
}

impl Default for Preprocessing {
    fn default() -> Self {
        Self {
            size: None,
            mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
            std: [0.268_629_54, 0.261_302_6, 0.275_777_1],
            interpolation: Interpolation::default(),
            resize_mode: ResizeMode::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Size {
    Side(u32),
    Sides([u32; 2]),
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Interpolation {
    Bilinear,
    #[default]
    Bicubic,
    Lanczos,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ResizeMode {
    /// The shorter side gets the size, and the centre is cut out.
    #[default]
    Shortest,
    /// Both sides get the size, without keeping proportions.
    Squash,
}

/// The image as the model's input.
fn input(entry: &ModelEntry, pixels: &Pixels) -> Result<NamedTensor, Fault> {
    let settings: Preprocessing = settings(entry, PREPROCESSING)?.unwrap_or_default();
    let spec = image_input(entry)?;
    let shape = spec.ty.shape.as_ref().map(|shape| shape.0.as_slice());
    let own = match shape {
        Some([_, _, height, _]) => height.known().and_then(|side| u32::try_from(side).ok()),
        _ => None,
    };
    let side = match settings.size {
        Some(Size::Side(side) | Size::Sides([side, _])) => side,
        None => own.unwrap_or(SIDE),
    };
    if !(1..=SIDE_MAX).contains(&side) {
        let what = format!("the size is {side}, expected 1 to {SIDE_MAX}");
        return Err(unusable(entry, PREPROCESSING, what));
    }
    let filter = match settings.interpolation {
        Interpolation::Bilinear => Filter::Bilinear,
        Interpolation::Bicubic => Filter::Bicubic,
        Interpolation::Lanczos => Filter::Lanczos,
    };
    let pixels = match settings.resize_mode {
        ResizeMode::Squash => vision::resize(pixels.clone(), side, side, filter),
        ResizeMode::Shortest => middle(pixels).and_then(|pixels| {
            let (width, height) = shortest((pixels.width(), pixels.height()), side);
            let resized = vision::resize(pixels, width, height, filter)?;
            vision::crop(&resized, side, side)
        }),
    };
    let scaling =
        Scaling { mean: settings.mean.to_vec(), std: settings.std.to_vec(), ..Scaling::default() };
    let values = vision::normalise(&pixels.map_err(bad)?, &scaling, Order::Nchw)
        .map_err(|error| unusable(entry, PREPROCESSING, error))?;
    let side = usize::try_from(side).map_err(Fault::internal)?;
    let tensor = Tensor::from_slice(vec![1, 3, side, side], &values).map_err(Fault::internal)?;
    Ok(NamedTensor::new(&spec.name, tensor))
}

/// The part of an image from which the crop comes: the ends of a long image are cut off.
fn middle(pixels: &Pixels) -> Result<Pixels, VisionError> {
    let (width, height) = (pixels.width(), pixels.height());
    let most = width.min(height).saturating_mul(LONGEST);
    match width.max(height) > most {
        true => vision::crop(pixels, width.min(most), height.min(most)),
        false => Ok(pixels.clone()),
    }
}

/// The size at which the shorter side has `side` pixels. The division rounds as Immich's does;
/// otherwise the crop could be off by one pixel.
fn shortest((width, height): (u32, u32), side: u32) -> (u32, u32) {
    let longer = |long: u32, short: u32| {
        // The value is positive, and the cast saturates.
        (f64::from(long) / f64::from(short) * f64::from(side)) as u32
    };
    match width < height {
        true => (side, longer(height, width)),
        false => (longer(width, height), side),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_side_gets_the_size() {
        for (size, side, expected) in [
            ((640, 480), 224, (298, 224)),
            ((480, 640), 224, (224, 298)),
            ((1, 1), 224, (224, 224)),
            ((1, u32::MAX), 224, (224, u32::MAX)),
            // As in Python, where 25 / 7 × 7 is less than 25.
            ((7, 25), 7, (7, 25)),
        ] {
            assert_eq!(shortest(size, side), expected, "{size:?}");
        }
    }
}
