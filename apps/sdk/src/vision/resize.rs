//! Pixels of another size, bilinearly. The filter widens where it shrinks a picture, as PIL's does
//! (OpenCV's `INTER_LINEAR` does not).

use super::{DecodeLimits, Pixels, VisionError};
use image::imageops::{self, FilterType};
use image::{ImageBuffer, Pixel};

/// Resizes to exactly `width` × `height`, whatever the proportions.
///
/// # Errors
/// `Parameters` where a side is 0, `TooManyPixels` above the default of [`DecodeLimits`].
pub fn resize(pixels: Pixels, width: u32, height: u32) -> Result<Pixels, VisionError> {
    check(width, height)?;
    check(pixels.width, pixels.height)?;
    // Rows come first: as many as wanted, each as long as before.
    check(pixels.width, height)?;
    if (width, height) == (pixels.width, pixels.height) {
        return Ok(pixels);
    }
    let data = match pixels.channels.count() {
        1 => resized::<image::Luma<u8>>(&pixels, width, height),
        3 => resized::<image::Rgb<u8>>(&pixels, width, height),
        _ => resized::<image::Rgba<u8>>(&pixels, width, height),
    }?;
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
) -> Result<Vec<u8>, VisionError> {
    ImageBuffer::<P, &[u8]>::from_raw(pixels.width, pixels.height, pixels.data.as_slice())
        .map(|image| imageops::resize(&image, width, height, FilterType::Triangle).into_raw())
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
        let half = resize(ramp(), 2, 1).expect("a good size");
        assert_eq!(half.data(), [71, 143]);
        let twice = resize(grey(2, 1, &[0, 100]), 4, 1).expect("a good size");
        assert_eq!(twice.data(), [0, 25, 75, 100]);
    }

    #[test]
    fn sizes_are_bounded() {
        let line = || grey(60_000, 1, &[0; 60_000]);
        resize(line(), u32::MAX, u32::MAX).expect_err("too large");
        resize(line(), 1, 4000).expect_err("too large on the way");
        resize(line(), 0, 4).expect_err("no width");
    }
}
