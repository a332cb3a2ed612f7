//! Pixels of another size: exact, shortest side and centre crop, or letterboxed.
//!
//! Filters widen when they shrink an image, as PIL's do (OpenCV's `INTER_LINEAR` does not).

use super::{DecodeLimits, Pixels, VisionError};
use image::imageops::{self, FilterType};
use image::{ImageBuffer, Pixel};

/// How pixels between pixels are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// PIL's `BILINEAR`.
    Bilinear,
    /// Catmull-Rom, a = −0.5: PIL's `BICUBIC` (OpenCV takes −0.75).
    Bicubic,
}

/// A picture in the middle of a larger area, and where it lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letterbox {
    /// The whole area.
    pub pixels: Pixels,
    /// Columns before the picture.
    pub left: u32,
    /// Columns of the picture.
    pub inner_width: u32,
    /// Rows before the picture.
    pub top: u32,
    /// Rows of the picture.
    pub inner_height: u32,
}

/// Resizes to exactly `width` × `height`, whatever the proportions.
///
/// # Errors
/// `Parameters` where a side is 0, `TooManyPixels` above the default of [`DecodeLimits`].
pub fn resize(
    pixels: Pixels,
    width: u32,
    height: u32,
    filter: Filter,
) -> Result<Pixels, VisionError> {
    check(width, height)?;
    check(pixels.width, pixels.height)?;
    // Rows come first: as many as wanted, each as long as before.
    check(pixels.width, height)?;
    if (width, height) == (pixels.width, pixels.height) {
        return Ok(pixels);
    }
    let data = match pixels.channels.count() {
        1 => resized::<image::Luma<u8>>(&pixels, width, height, filter),
        3 => resized::<image::Rgb<u8>>(&pixels, width, height, filter),
        _ => resized::<image::Rgba<u8>>(&pixels, width, height, filter),
    }?;
    Pixels::new(width, height, pixels.channels, data)
}

/// Resizes so that the shorter side has `shortest` pixels, and cuts `width` × `height` out of the
/// middle: torchvision's `Resize(shortest)` and `CenterCrop`.
///
/// # Errors
/// As [`resize`], and `Parameters` where the crop is larger than what was resized.
pub fn resize_shortest_and_crop(
    pixels: Pixels,
    shortest: u32,
    width: u32,
    height: u32,
    filter: Filter,
) -> Result<Pixels, VisionError> {
    check(width, height)?;
    check(pixels.width, pixels.height)?;
    let short = u64::from(pixels.width.min(pixels.height));
    let side = |own: u32| narrow(u64::from(own) * u64::from(shortest) / short);
    let resized = resize(pixels.clone(), side(pixels.width), side(pixels.height), filter)?;
    if width > resized.width || height > resized.height {
        return Err(VisionError::Parameters(format!(
            "a crop of {width}x{height} does not fit into {}x{}, expected a smaller crop or a larger shortest side",
            resized.width, resized.height
        )));
    }
    let (left, top) = ((resized.width - width) / 2, (resized.height - height) / 2);
    let mut data = Vec::new();
    for row in rows(&resized).skip(index(top)).take(index(height)) {
        let channels = resized.channels.count();
        data.extend(row.iter().skip(index(left) * channels).take(index(width) * channels));
    }
    Pixels::new(width, height, resized.channels, data)
}

/// Resizes to fit into `width` × `height` with the proportions kept, and fills the rest with
/// `fill` on both sides, the smaller half before: what YOLO models are trained with.
///
/// # Errors
/// As [`resize`].
pub fn letterbox(
    pixels: Pixels,
    width: u32,
    height: u32,
    fill: u8,
    filter: Filter,
) -> Result<Letterbox, VisionError> {
    check(width, height)?;
    check(pixels.width, pixels.height)?;
    let own = (u64::from(pixels.width), u64::from(pixels.height));
    let area = (u64::from(width), u64::from(height));
    // Whole numbers keep sizes the same on every machine.
    let (inner_width, inner_height) = match area.0 * own.1 <= area.1 * own.0 {
        true => (width, narrow(((2 * own.1 * area.0 + own.0) / (2 * own.0)).max(1))),
        false => (narrow(((2 * own.0 * area.1 + own.1) / (2 * own.1)).max(1)), height),
    };
    let inner = resize(pixels, inner_width, inner_height, filter)?;
    let (left, top) = ((width - inner_width) / 2, (height - inner_height) / 2);
    let channels = inner.channels.count();
    let mut data = vec![fill; index(width) * index(height) * channels];
    let lines = data.chunks_exact_mut(index(width) * channels).skip(index(top));
    for (to, from) in lines.zip(rows(&inner)) {
        to.iter_mut().skip(index(left) * channels).zip(from).for_each(|(to, from)| *to = *from);
    }
    let pixels = Pixels::new(width, height, inner.channels, data)?;
    Ok(Letterbox { pixels, left, inner_width, top, inner_height })
}

fn check(width: u32, height: u32) -> Result<(), VisionError> {
    let pixels_max = DecodeLimits::default().pixels_max;
    match u64::from(width) * u64::from(height) {
        0 => Err(VisionError::Parameters(format!(
            "a size of {width}x{height} pixels, expected sides of 1 or more"
        ))),
        count if count > pixels_max => {
            Err(VisionError::TooManyPixels { width, height, pixels_max })
        }
        _ => Ok(()),
    }
}

fn resized<P: Pixel<Subpixel = u8> + 'static>(
    pixels: &Pixels,
    width: u32,
    height: u32,
    filter: Filter,
) -> Result<Vec<u8>, VisionError> {
    let filter = match filter {
        Filter::Bilinear => FilterType::Triangle,
        Filter::Bicubic => FilterType::CatmullRom,
    };
    ImageBuffer::<P, &[u8]>::from_raw(pixels.width, pixels.height, pixels.data.as_slice())
        .map(|image| imageops::resize(&image, width, height, filter).into_raw())
        .ok_or_else(|| VisionError::Parameters("fewer pixels than the size says".to_owned()))
}

fn rows(pixels: &Pixels) -> impl Iterator<Item = &[u8]> {
    pixels.data.chunks_exact(index(pixels.width) * pixels.channels.count())
}

fn index(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::Channels;
    use super::*;

    fn grey(width: u32, height: u32, data: &[u8]) -> Pixels {
        Pixels::new(width, height, Channels::Grey, data.to_vec()).expect("they fit")
    }

    #[test]
    fn sizes_and_values_are_known() {
        let ramp = || grey(4, 1, &[0, 100, 200, 100]);
        // Halving: a triangle of radius 2 pixels, weights 3/7 3/7 1/7 at the edge, worked by hand.
        let half = resize(ramp(), 2, 1, Filter::Bilinear).expect("a good size");
        assert_eq!(half.data(), [71, 143]);
        let twice = resize(grey(2, 1, &[0, 100]), 4, 1, Filter::Bilinear).expect("a good size");
        assert_eq!(twice.data(), [0, 25, 75, 100]);
        // Catmull-Rom overshoots at an edge, and is cut to what a byte holds.
        let steep = resize(grey(4, 1, &[0, 0, 200, 200]), 8, 1, Filter::Bicubic).expect("good");
        assert!(steep.data()[5] > 200 && steep.data()[2] == 0, "{:?}", steep.data());
        let crop = resize_shortest_and_crop(
            grey(4, 2, &[1, 2, 3, 4, 5, 6, 7, 8]),
            2,
            2,
            2,
            Filter::Bilinear,
        );
        assert_eq!(crop.expect("it fits").data(), [2, 3, 6, 7]);
    }

    #[test]
    fn a_letterbox_says_where_the_picture_lies() {
        let boxed = letterbox(grey(2, 1, &[9, 9]), 4, 5, 114, Filter::Bilinear).expect("good");
        assert_eq!((boxed.left, boxed.inner_width, boxed.top, boxed.inner_height), (0, 4, 1, 2));
        let expected: Vec<u8> = [[114; 4], [9; 4], [9; 4], [114; 4], [114; 4]].concat();
        assert_eq!(boxed.pixels.data(), expected);
        let thin = letterbox(grey(100, 1, &[9; 100]), 4, 4, 0, Filter::Bilinear).expect("good");
        assert_eq!((thin.top, thin.inner_height), (1, 1));
    }

    #[test]
    fn sizes_are_bounded() {
        let line = || grey(60_000, 1, &[0; 60_000]);
        for (shortest, width) in [(0, 1), (4000, 1), (1, 0), (1, 60_001)] {
            resize_shortest_and_crop(line(), shortest, width, 1, Filter::Bilinear)
                .expect_err("it is out of bounds");
        }
        resize(line(), u32::MAX, u32::MAX, Filter::Bilinear).expect_err("too large");
        resize(line(), 1, 4000, Filter::Bilinear).expect_err("too large on the way");
        letterbox(line(), 0, 4, 0, Filter::Bilinear).expect_err("no width");
    }
}
