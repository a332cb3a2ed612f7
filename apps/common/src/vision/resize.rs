//! Resizes and crops images. Filters widen when they shrink an image, as PIL's do (OpenCV's `INTER_LINEAR` does
//! not).

use super::{DecodeLimits, Pixels, VisionError};
use image::imageops::{self, FilterType};
use image::{ImageBuffer, Pixel};

/// The interpolation between pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// PIL's `BILINEAR`.
    Bilinear,
    /// Catmull-Rom, a = −0.5: PIL's `BICUBIC` (OpenCV takes −0.75).
    Bicubic,
    /// With a window of three pixels: PIL's `LANCZOS`.
    Lanczos,
}

/// Resizes to exactly `width` × `height`, without keeping proportions.
///
/// # Errors
/// `Parameters` if a side is 0, `TooManyPixels` above the default of [`DecodeLimits`].
pub fn resize(
    pixels: Pixels,
    width: u32,
    height: u32,
    filter: Filter,
) -> Result<Pixels, VisionError> {
    check(width, height)?;
    check(pixels.width, pixels.height)?;
    let from = (pixels.width, pixels.height);
    if (width, height) == from {
        return Ok(pixels);
    }
    if upright(from, (width, height)) > turned(from, (width, height)) {
        let turned = resized_as_they_are(transposed(&pixels), height, width, filter)?;
        return Ok(transposed(&turned));
    }
    resized_as_they_are(pixels, width, height, filter)
}

/// Approximate bytes that resizing takes besides its input and output.
#[must_use]
pub fn resize_bytes(from: (u32, u32), to: (u32, u32)) -> usize {
    // Up to four channels of f32 for each pixel.
    const PIXEL_BYTES: u64 = 16;
    let between = upright(from, to).min(turned(from, to));
    usize::try_from(between.saturating_mul(PIXEL_BYTES)).unwrap_or(usize::MAX)
}

/// Pixels of the intermediate image if the vertical pass comes first: the new height by the old width.
fn upright(from: (u32, u32), to: (u32, u32)) -> u64 {
    u64::from(from.0) * u64::from(to.1)
}

/// Like [`upright`], if the horizontal pass comes first. The smaller of both never exceeds the larger image.
fn turned(from: (u32, u32), to: (u32, u32)) -> u64 {
    u64::from(to.0) * u64::from(from.1)
}

/// Swaps rows and columns.
fn transposed(pixels: &Pixels) -> Pixels {
    let index = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    let (width, channels) = (index(pixels.width), pixels.channels.count());
    let mut data = Vec::with_capacity(pixels.data.len());
    for column in 0..width {
        for row in pixels.data.chunks_exact(width * channels) {
            data.extend(row.iter().skip(column * channels).take(channels));
        }
    }
    Pixels { width: pixels.height, height: pixels.width, channels: pixels.channels, data }
}

fn resized_as_they_are(
    pixels: Pixels,
    width: u32,
    height: u32,
    filter: Filter,
) -> Result<Pixels, VisionError> {
    let data = match pixels.channels.count() {
        1 => resized::<image::Luma<u8>>(&pixels, width, height, filter),
        3 => resized::<image::Rgb<u8>>(&pixels, width, height, filter),
        _ => resized::<image::Rgba<u8>>(&pixels, width, height, filter),
    }?;
    Pixels::new(width, height, pixels.channels, data)
}

/// Cuts `width` × `height` out of the centre. If the margins cannot be equal, the upper or left one is the smaller.
///
/// # Errors
/// `Parameters` if a side is 0 or longer than the image's.
pub fn crop(pixels: &Pixels, width: u32, height: u32) -> Result<Pixels, VisionError> {
    check(width, height)?;
    if width > pixels.width || height > pixels.height {
        return Err(VisionError::Parameters(format!(
            "a crop of {width}x{height} does not fit into {}x{}, expected a smaller one",
            pixels.width, pixels.height
        )));
    }
    let index = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    let (left, top) = ((pixels.width - width) / 2, (pixels.height - height) / 2);
    let channels = pixels.channels.count();
    let mut data = Vec::with_capacity(index(width) * index(height) * channels);
    let rows = pixels.data.chunks_exact(index(pixels.width) * channels);
    for row in rows.skip(index(top)).take(index(height)) {
        data.extend(row.iter().skip(index(left) * channels).take(index(width) * channels));
    }
    Pixels::new(width, height, pixels.channels, data)
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
        Filter::Lanczos => FilterType::Lanczos3,
    };
    ImageBuffer::<P, &[u8]>::from_raw(pixels.width, pixels.height, pixels.data.as_slice())
        .map(|image| imageops::resize(&image, width, height, filter).into_raw())
        .ok_or_else(|| VisionError::Parameters("fewer pixels than the size says".to_owned()))
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
        // Both filters overshoot at an edge, and the result is clamped to a byte.
        for filter in [Filter::Bicubic, Filter::Lanczos] {
            let steep = resize(grey(4, 1, &[0, 0, 200, 200]), 8, 1, filter).expect("a good size");
            assert!(steep.data()[5] > 200 && steep.data()[2] == 0, "{:?}", steep.data());
        }
    }

    #[test]
    fn pixels_are_those_of_pil() {
        let made_up = |(width, height): (u32, u32)| {
            let all = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
            let value = |(x, y)| (x * x * 7 + y * 13 * x + (x * y) % 17 * 9) % 256;
            let data: Vec<u8> = all.map(|at| value(at).try_into().expect("below 256")).collect();
            grey(width, height, &data)
        };
        // The results of Pillow 13 at 7 × 5 pixels.
        for (size, filter, expected) in [
            (
                (37, 29),
                Filter::Bilinear,
                [
                    101, 142, 142, 136, 118, 134, 123, 116, 143, 129, 118, 123, 138, 139, 103, 140,
                    135, 118, 122, 123, 130, 96, 127, 122, 109, 129, 135, 122, 105, 114, 122, 131,
                    136, 145, 139,
                ],
            ),
            (
                (4, 3),
                Filter::Bilinear,
                [
                    0, 3, 7, 18, 30, 50, 63, 0, 6, 15, 31, 48, 74, 89, 0, 10, 27, 51, 76, 109, 129,
                    0, 15, 39, 71, 104, 144, 169, 0, 18, 47, 84, 122, 167, 195,
                ],
            ),
            (
                (37, 29),
                Filter::Bicubic,
                [
                    97, 147, 144, 135, 115, 135, 120, 116, 147, 126, 116, 123, 139, 142, 98, 143,
                    136, 119, 122, 121, 129, 93, 131, 121, 105, 129, 137, 120, 103, 116, 122, 131,
                    136, 146, 140,
                ],
            ),
            (
                (4, 3),
                Filter::Bicubic,
                [
                    0, 1, 4, 14, 27, 48, 61, 0, 3, 12, 26, 44, 71, 87, 0, 7, 26, 49, 76, 113, 134,
                    0, 11, 41, 72, 108, 155, 181, 0, 13, 49, 84, 125, 179, 206,
                ],
            ),
            (
                (37, 29),
                Filter::Lanczos,
                [
                    96, 151, 145, 133, 115, 136, 120, 117, 148, 125, 116, 124, 139, 145, 95, 145,
                    136, 119, 123, 120, 128, 91, 135, 123, 101, 128, 139, 117, 101, 117, 122, 129,
                    137, 148, 139,
                ],
            ),
            (
                (4, 3),
                Filter::Lanczos,
                [
                    0, 1, 4, 12, 28, 49, 61, 0, 2, 11, 21, 41, 68, 81, 0, 6, 26, 47, 77, 115, 134,
                    0, 10, 41, 73, 113, 162, 187, 0, 11, 48, 82, 126, 181, 207,
                ],
            ),
        ] {
            let given = resize(made_up(size), 7, 5, filter).expect("a good size");
            let far = given.data().iter().zip(expected).map(|(&a, b)| i32::from(a).abs_diff(b));
            assert!(far.max() <= Some(1), "{filter:?} {:?}", given.data());
        }
    }

    #[test]
    fn a_crop_is_the_middle() {
        let all = grey(4, 3, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(crop(&all, 2, 1).expect("it fits").data(), [6, 7]);
        assert_eq!(crop(&all, 3, 2).expect("it fits").data(), [1, 2, 3, 5, 6, 7]);
        for (width, height) in [(5, 1), (1, 4), (0, 1), (1, 0)] {
            crop(&all, width, height).expect_err("it does not fit");
        }
    }

    #[test]
    fn what_is_between_the_steps_is_no_more_than_the_larger_picture() {
        assert_eq!(resize_bytes((60_000, 1), (1, 4000)), 16);
        assert_eq!(resize_bytes((104_857, 1), (640, 640)), 640 * 16);
        assert_eq!(resize_bytes((4000, 3000), (224, 224)), 224 * 3000 * 16);
        let line = grey(60_000, 1, &[7; 60_000]);
        let tall = resize(line, 1, 4000, Filter::Bilinear).expect("it takes sixteen bytes");
        assert_eq!((tall.width(), tall.height()), (1, 4000));
        assert!(tall.data().iter().all(|&value| value == 7));
        // Both orders give the same, up to the last rounding.
        let values: Vec<u8> = (0..23 * 5).map(|at| (at * 37 % 251) as u8).collect();
        let wide = grey(23, 5, &values);
        let (rows, columns) = (
            resized_as_they_are(wide.clone(), 7, 11, Filter::Bicubic).expect("small"),
            transposed(
                &resized_as_they_are(transposed(&wide), 11, 7, Filter::Bicubic).expect("small"),
            ),
        );
        let close = |(a, b): (&u8, &u8)| a.abs_diff(*b) <= 1;
        assert_eq!(rows.data().len(), columns.data().len());
        assert!(rows.data().iter().zip(columns.data()).all(close));
    }

    #[test]
    fn sizes_are_bounded() {
        let line = || grey(60_000, 1, &[0; 60_000]);
        resize(line(), u32::MAX, u32::MAX, Filter::Bilinear).expect_err("too large");
        resize(line(), 0, 4, Filter::Bilinear).expect_err("no width");
    }
}
