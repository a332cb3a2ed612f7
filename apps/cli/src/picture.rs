//! Images as model inputs: decoded to the input's channels, resized, scaled.
//!
//! `MODEL.toml` beside `MODEL.onnx` may name `scale` (default 1/255), `mean` and `std`; a pixel
//! becomes `(value × scale − mean) / std`. `mean` and `std` have one number, or one per channel.

use crate::failure::{Failure, Result};
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader};
use lgp_sdk::{DType, Dim, Element, Tensor, TensorType};
use serde::Deserialize;
use std::path::Path;

/// How pixel values become numbers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Scaling {
    scale: f32,
    mean: Vec<f32>,
    std: Vec<f32>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self { scale: 1.0 / 255.0, mean: Vec::new(), std: Vec::new() }
    }
}

impl Scaling {
    /// Reads the model's config file, where there is one.
    ///
    /// # Errors
    /// `model_config_invalid`, naming the key, when the file is there and wrong.
    pub(crate) fn of_model(model: &Path) -> Result<Self> {
        let path = model.with_extension("toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(Failure::file("read", &path, &error)),
        };
        Self::parse(&text).map_err(|what| {
            let message = format!("model config {} is not usable: {what}", path.display());
            Failure::new("model_config_invalid", message)
                .hint("its keys are scale, a number, and mean and std, lists of numbers")
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let scaling: Self =
            toml::from_str(text).map_err(|error| error.message().trim().to_owned())?;
        match scaling.std.contains(&0.0) {
            true => Err("std has a 0, expected numbers to divide by".to_owned()),
            false => Ok(scaling),
        }
    }

    fn apply(&self, value: u8, channel: usize) -> f32 {
        let of = |list: &[f32], default: f32| match list {
            [] => default,
            [one] => *one,
            many => many[channel],
        };
        (f32::from(value) * self.scale - of(&self.mean, 0.0)) / of(&self.std, 1.0)
    }

    fn check(&self, channels: usize) -> Result<(), String> {
        for (key, list) in [("mean", &self.mean), ("std", &self.std)] {
            if list.len() > 1 && list.len() != channels {
                let given = list.len();
                return Err(format!(
                    "the model's config has {given} numbers as {key}, expected 1 or {channels}"
                ));
            }
        }
        Ok(())
    }
}

/// Where channels, height and width of one image lie in an input.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Layout {
    channels: usize,
    height: Option<usize>,
    width: Option<usize>,
    channels_last: bool,
    batched: bool,
}

impl Layout {
    /// Understands `[N,C,H,W]`, `[C,H,W]` and, where the channels say so, `[N,H,W,C]`, `[H,W,C]`.
    fn of(ty: &TensorType) -> Option<Self> {
        let dims: Vec<Option<usize>> = ty.shape.as_ref()?.0.iter().map(Dim::known).collect();
        let (batched, dims) = match dims.as_slice() {
            [first, rest @ ..] if rest.len() == 3 && first.is_none_or(|n| n == 1) => (true, rest),
            all if all.len() == 3 => (false, all),
            _ => return None,
        };
        let is_channels = |dim: Option<usize>| matches!(dim, Some(1 | 3 | 4));
        match (dims[0], dims[2]) {
            (c, last) if !is_channels(c) && is_channels(last) => Some(Self {
                channels: last?,
                height: dims[0],
                width: dims[1],
                channels_last: true,
                batched,
            }),
            (None, _) => None,
            (c, _) if is_channels(c) => Some(Self {
                channels: c?,
                height: dims[1],
                width: dims[2],
                channels_last: false,
                batched,
            }),
            _ => None,
        }
    }
}

/// Reads an image as the input of type `ty`.
///
/// # Errors
/// `file_not_found`, `image_undecodable`, or `input_shape` when the input takes no image.
pub(crate) fn read(path: &Path, name: &str, ty: &TensorType, scaling: &Scaling) -> Result<Tensor> {
    let takes_none = |why: &str| {
        Failure::new("input_shape", format!("input '{name}' ({ty}) does not take an image: {why}"))
            .hint("give it a .npy file instead")
    };
    let layout = Layout::of(ty)
        .ok_or_else(|| takes_none("expected [1,C,H,W] or [C,H,W] with 1, 3 or 4 channels"))?;
    let reader = ImageReader::open(path)
        .and_then(ImageReader::with_guessed_format)
        .map_err(|error| Failure::file("read", path, &error))?;
    let image = reader.decode().map_err(|error| {
        let message = format!("{} does not decode as an image: {error}", path.display());
        Failure::new("image_undecodable", message).hint("PNG and JPEG images are understood")
    })?;
    scaling.check(layout.channels).map_err(|what| takes_none(&what))?;
    let (pixels, height, width) = pixels(image, layout);
    let plane = height * width;
    let source = |index: usize| {
        // The pixels have the channels last; `index` counts in the input's order.
        let (at, channel) = match layout.channels_last {
            true => (index, index % layout.channels),
            false => {
                let (channel, pixel) = (index / plane, index % plane);
                (pixel * layout.channels + channel, channel)
            }
        };
        (pixels[at], channel)
    };
    let mut shape = match layout.channels_last {
        true => vec![height, width, layout.channels],
        false => vec![layout.channels, height, width],
    };
    if layout.batched {
        shape.insert(0, 1);
    }
    let all = 0..pixels.len();
    let tensor = match ty.dtype {
        DType::F32 => collect(shape, all.map(source).map(|(v, c)| scaling.apply(v, c))),
        DType::F16 => {
            collect(shape, all.map(source).map(|(v, c)| half::f16::from_f32(scaling.apply(v, c))))
        }
        DType::U8 => collect(shape, all.map(source).map(|(v, _)| v)),
        _ => return Err(takes_none("expected f32, f16 or u8")),
    };
    tensor.map_err(Failure::internal)
}

fn collect<T: Element>(
    shape: Vec<usize>,
    values: impl Iterator<Item = T>,
) -> Result<Tensor, lgp_sdk::TensorError> {
    Tensor::from_slice(shape, &values.collect::<Vec<_>>())
}

/// The resized pixels, row by row with the channels together, and height and width.
fn pixels(image: DynamicImage, layout: Layout) -> (Vec<u8>, usize, usize) {
    let size = |wanted: Option<usize>, own: u32| {
        wanted.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0).unwrap_or(own)
    };
    let (width, height) = (size(layout.width, image.width()), size(layout.height, image.height()));
    let image = match (width, height) == (image.width(), image.height()) {
        true => image,
        false => image.resize_exact(width, height, FilterType::Triangle),
    };
    let bytes = match layout.channels {
        1 => image.into_luma8().into_raw(),
        3 => image.into_rgb8().into_raw(),
        _ => image.into_rgba8().into_raw(),
    };
    (bytes, height as usize, width as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::SymShape;

    fn ty(dtype: DType, dims: &[Option<usize>]) -> TensorType {
        let dims = dims.iter().map(|dim| dim.map_or(Dim::Unknown, Dim::Known)).collect();
        TensorType { dtype, shape: Some(SymShape(dims)) }
    }

    /// A 2×2 PNG: red, green, blue, white.
    fn png() -> tempfile::NamedTempFile {
        let file = tempfile::Builder::new().suffix(".png").tempfile().expect("a temporary file");
        let bytes = vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255];
        let image = image::RgbImage::from_raw(2, 2, bytes).expect("four pixels");
        image.save(file.path()).expect("PNG is built in");
        file
    }

    fn values(ty: &TensorType, scaling: &str) -> (Vec<usize>, Vec<f32>) {
        let scaling = Scaling::parse(scaling).expect("a good config");
        let tensor = read(png().path(), "image", ty, &scaling).expect("a good image");
        (tensor.shape().to_vec(), tensor.as_slice::<f32>().expect("f32").to_vec())
    }

    #[test]
    fn pixels_land_where_the_input_wants_them() {
        let any = None;
        let (shape, nchw) = values(&ty(DType::F32, &[any, Some(3), any, any]), "");
        assert_eq!(shape, [1, 3, 2, 2]);
        assert_eq!(nchw, [1., 0., 0., 1., 0., 1., 0., 1., 0., 0., 1., 1.]);
        let (shape, hwc) = values(&ty(DType::F32, &[Some(2), Some(2), Some(3)]), "scale = 1.0");
        assert_eq!(shape, [2, 2, 3]);
        assert_eq!(hwc, [255., 0., 0., 0., 255., 0., 0., 0., 255., 255., 255., 255.]);
        let grey = values(&ty(DType::F32, &[any, Some(1), Some(8), Some(8)]), "");
        assert_eq!((grey.0, grey.1.len()), (vec![1, 1, 8, 8], 64));
    }

    #[test]
    fn the_models_config_is_applied() {
        let chw = ty(DType::F32, &[Some(3), Some(2), Some(2)]);
        let (_, scaled) = values(&chw, "mean = [0.5, 0.0, 1.0]\nstd = [0.5]");
        assert_eq!(scaled, [1., -1., -1., 1., 0., 2., 0., 2., -2., -2., 0., 0.]);
        for (text, part) in [
            ("stdd = [1.0]", "stdd"),
            ("std = [0.0]", "std has a 0"),
            ("scale = 'x'", "expected f32"),
        ] {
            let error = Scaling::parse(text).expect_err("a bad config");
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }

    #[test]
    fn inputs_that_take_no_image_are_refused() {
        let (any, png) = (None, png());
        for (ty, scaling) in [
            (ty(DType::F32, &[any, Some(10)]), ""),
            (ty(DType::F32, &[Some(2), Some(3), Some(4), Some(4)]), ""),
            (ty(DType::F32, &[any, Some(7), any, any]), ""),
            (ty(DType::I64, &[any, Some(3), any, any]), ""),
            (ty(DType::F32, &[any, Some(1), any, any]), "mean = [1.0, 2.0]"),
            (TensorType { dtype: DType::F32, shape: None }, ""),
        ] {
            let scaling = Scaling::parse(scaling).expect("a good config");
            let failure = read(png.path(), "x", &ty, &scaling).expect_err("it takes no image");
            assert_eq!(failure.code, "input_shape", "{ty}");
        }
    }

    #[test]
    fn what_is_no_image_is_refused() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), b"\x89PNG\r\n\x1a\nnope").expect("ours");
        let ty = ty(DType::F32, &[None, Some(3), None, None]);
        let read = |path: &Path| read(path, "x", &ty, &Scaling::default()).expect_err("no image");
        assert_eq!(read(file.path()).code, "image_undecodable");
        assert_eq!(read(Path::new("/nonexistent.png")).code, "file_not_found");
    }
}
