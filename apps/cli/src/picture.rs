//! Images as model inputs: decoded to the input's channels, resized, scaled.
//!
//! `MODEL.toml` beside `MODEL.onnx` may name `scale` (default 1/255), `mean` and `std`; a pixel
//! becomes `(value × scale − mean) / std`. `mean` and `std` have one number, or one per channel.
//! Pictures are turned upright as EXIF tells, and laid over white where the input has no alpha.

use crate::failure::{Failure, Result};
use crate::files;
use lgp_common::vision::{
    self, Channels, DecodeLimits, Filter, Order, Pixels, Scaling, VisionError,
};
use lgp_common::{Beside, LabelsError};
use lgp_sdk::tensor::{DType, Dim, Element, Tensor, TensorType};
use std::io::Read;
use std::path::Path;

/// The configuration file beside a model, if there is one.
///
/// # Errors
/// `model_config_invalid`, naming the key, when the file is there and wrong.
pub(crate) fn beside(model: &Path) -> Result<Beside> {
    Beside::of(model).map_err(config_failure)
}

/// The scaling of pixels from the file beside a model.
///
/// # Errors
/// As [`beside`].
pub(crate) fn scaling_of(model: &Path) -> Result<Scaling> {
    Ok(beside(model)?.scaling)
}

/// The failure of a file beside a model, or of a file of names.
pub(crate) fn config_failure(error: LabelsError) -> Failure {
    match &error {
        LabelsError::Io { path, source } => Failure::file("read", path, source),
        _ => Failure::new("model_config_invalid", format!("model config {error}")).hint(
            "it may have scale, a number; mean and std, lists of numbers; and labels, a list of names or \
             the name of a file with one name on each line",
        ),
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
    let order = match layout.channels_last {
        true => Order::Nhwc,
        false => Order::Nchw,
    };
    let unfit = |error: VisionError| takes_none(&format!("the model's config has {error}"));
    scaling.check(layout.channels).map_err(unfit)?;
    let pixels = pixels(path, layout)?;
    let (height, width) = (pixels.height() as usize, pixels.width() as usize);
    let mut shape = match layout.channels_last {
        true => vec![height, width, layout.channels],
        false => vec![layout.channels, height, width],
    };
    if layout.batched {
        shape.insert(0, 1);
    }
    let numbers = || vision::normalise(&pixels, scaling, order).map_err(unfit);
    let tensor = match ty.dtype {
        DType::F32 => collect(shape, numbers()?.into_iter()),
        DType::F16 => collect(shape, numbers()?.into_iter().map(half::f16::from_f32)),
        DType::U8 => collect(shape, vision::arrange(&pixels, order).into_iter()),
        _ => return Err(takes_none("expected f32, f16 or u8")),
    };
    tensor.map_err(Failure::internal)
}

fn collect<T: Element>(
    shape: Vec<usize>,
    values: impl Iterator<Item = T>,
) -> Result<Tensor, lgp_sdk::tensor::Error> {
    Tensor::from_slice(shape, &values.collect::<Vec<_>>())
}

/// The upright, resized pixels.
fn pixels(path: &Path, layout: Layout) -> Result<Pixels> {
    let limits = DecodeLimits::default();
    let mut bytes = Vec::new();
    // One byte more than is taken shows that a file is too long.
    let read = files::open_regular(path)?.take(limits.bytes_max as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::file("read", path, &error))?;
    let undecodable = |error: VisionError| {
        Failure::new("image_undecodable", format!("{} is not usable: {error}", path.display()))
            .hint("PNG, JPEG and WebP images are understood")
    };
    let channels = Channels::of(layout.channels).ok_or_else(|| {
        let message = format!("no image has {} channels, expected 1, 3 or 4", layout.channels);
        Failure::new("input_shape", message)
    })?;
    let pixels = vision::decode(&bytes, channels, &limits).map_err(undecodable)?;
    let size = |wanted: Option<usize>, own: u32| {
        wanted.and_then(|n| u32::try_from(n).ok()).filter(|&n| n > 0).unwrap_or(own)
    };
    let (width, height) =
        (size(layout.width, pixels.width()), size(layout.height, pixels.height()));
    vision::resize(pixels, width, height, Filter::Bilinear).map_err(undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_sdk::tensor::SymShape;

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

    fn parse(text: &str) -> Scaling {
        toml::from_str(text).expect("a good scaling")
    }

    fn values(ty: &TensorType, scaling: &str) -> (Vec<usize>, Vec<f32>) {
        let scaling = parse(scaling);
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
    fn transparent_pixels_are_white_where_the_input_has_no_alpha() {
        let file = tempfile::Builder::new().suffix(".png").tempfile().expect("a temporary file");
        let image = image::RgbaImage::from_raw(1, 1, vec![9, 9, 9, 0]).expect("a pixel");
        image.save(file.path()).expect("PNG is built in");
        for (channels, expected) in [(1, vec![255.]), (3, vec![255.; 3]), (4, vec![9., 9., 9., 0.])]
        {
            let ty = ty(DType::F32, &[None, Some(channels), None, None]);
            let scaling = parse("scale = 1.0");
            let tensor = read(file.path(), "image", &ty, &scaling).expect("a good image");
            assert_eq!(tensor.as_slice::<f32>().expect("f32"), expected, "{channels}");
        }
    }

    #[test]
    fn the_models_config_is_applied() {
        let chw = ty(DType::F32, &[Some(3), Some(2), Some(2)]);
        let (_, scaled) = values(&chw, "mean = [0.5, 0.0, 1.0]\nstd = [0.5]");
        assert_eq!(scaled, [1., -1., -1., 1., 0., 2., 0., 2., -2., -2., 0., 0.]);
        let model = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(model.path().join("m.toml"), "stdd = [1.0]").expect("ours");
        let failure = beside(&model.path().join("m.onnx")).expect_err("a bad config");
        assert_eq!(failure.code, "model_config_invalid");
        assert!(failure.message.contains("stdd"), "{failure}");
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
            let scaling = parse(scaling);
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
