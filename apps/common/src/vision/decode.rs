//! Decodes images into upright 8-bit pixels. Sizes are checked before pixels are decoded.

use super::VisionError;
use image::error::{DecodingError, ImageFormatHint};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use std::io::Cursor;

/// Limits of an encoded image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Length of the encoded bytes.
    pub bytes_max: usize,
    /// Width × height, as given in the header.
    pub pixels_max: u64,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { bytes_max: 64 << 20, pixels_max: 64 << 20 }
    }
}

/// The channels that a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channels {
    /// Luma of ITU-R BT.709, as the crate `image` computes it.
    Grey,
    /// Red, green, blue.
    Rgb,
    /// Red, green, blue, alpha; colours are not multiplied by alpha.
    Rgba,
}

impl Channels {
    /// The variant with `count` channels.
    #[must_use]
    pub fn of(count: usize) -> Option<Self> {
        match count {
            1 => Some(Self::Grey),
            3 => Some(Self::Rgb),
            4 => Some(Self::Rgba),
            _ => None,
        }
    }

    /// The number of channels.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::Rgb => 3,
            Self::Rgba => 4,
        }
    }
}

/// 8-bit pixels, row by row; the channels of a pixel are adjacent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pixels {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) channels: Channels,
    pub(super) data: Vec<u8>,
}

impl Pixels {
    /// Wraps pixels that the caller made.
    ///
    /// # Errors
    /// `Parameters` if the length of `data` is not width × height × channels.
    pub fn new(
        width: u32,
        height: u32,
        channels: Channels,
        data: Vec<u8>,
    ) -> Result<Self, VisionError> {
        let count = u128::from(width) * u128::from(height);
        let expected = count * u128::try_from(channels.count()).unwrap_or(4);
        if u128::try_from(data.len()).ok() == Some(expected) {
            return Ok(Self { width, height, channels, data });
        }
        let given = data.len();
        Err(VisionError::Parameters(format!("{given} bytes of pixels, expected {expected}")))
    }

    /// Columns.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows.
    #[must_use]
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The channels of each pixel.
    #[must_use]
    pub fn channels(&self) -> Channels {
        self.channels
    }

    /// The pixels row by row; the channels of a pixel are adjacent.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }
}

/// Width and height from the header of a PNG, JPEG or WebP, before EXIF orientation is applied.
///
/// # Errors
/// An error for a bad header, or for sizes beyond the limits.
pub fn dimensions(bytes: &[u8], limits: &DecodeLimits) -> Result<(u32, u32), VisionError> {
    Ok(open(bytes, limits)?.dimensions())
}

/// Reads the header and checks it against the limits.
fn open<'a>(
    bytes: &'a [u8],
    limits: &DecodeLimits,
) -> Result<impl ImageDecoder + use<'a>, VisionError> {
    if bytes.len() > limits.bytes_max {
        let bytes_max = limits.bytes_max;
        return Err(VisionError::TooManyBytes { bytes: bytes.len(), bytes_max });
    }
    let mut reader = match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP)) => {
            ImageReader::with_format(Cursor::new(bytes), format)
        }
        _ => return Err(VisionError::UnknownFormat),
    };
    if reader.format() == Some(ImageFormat::WebP) {
        let damaged = |reason: String| {
            let format = ImageFormatHint::Exact(ImageFormat::WebP);
            VisionError::Undecodable(ImageError::Decoding(DecodingError::new(format, reason)))
        };
        super::webp::check(bytes).map_err(damaged)?;
    }
    let mut allocation = Limits::no_limits();
    // A pixel takes up to eight bytes, with four channels of 16 bits.
    allocation.max_alloc = Some(limits.pixels_max.saturating_mul(8).max(1 << 20));
    reader.limits(allocation);
    let decoder = reader.into_decoder().map_err(VisionError::Undecodable)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        return Err(VisionError::NoPixels);
    }
    if u64::from(width) * u64::from(height) > limits.pixels_max {
        return Err(VisionError::TooManyPixels { width, height, pixels_max: limits.pixels_max });
    }
    Ok(decoder)
}

/// Decodes a PNG, JPEG or WebP; of an animation, the first frame. Applies the EXIF orientation. Unless `channels`
/// include alpha, transparent pixels are blended with white.
///
/// # Errors
/// An error for bad bytes. Sizes are checked by the header before pixels are decoded.
pub fn decode(
    bytes: &[u8],
    channels: Channels,
    limits: &DecodeLimits,
) -> Result<Pixels, VisionError> {
    let mut decoder = open(bytes, limits)?;
    // Unreadable EXIF data do not make the pixels unreadable.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(VisionError::Undecodable)?;
    image.apply_orientation(orientation);
    if image.color().has_alpha() && channels != Channels::Rgba {
        image = DynamicImage::ImageRgb8(over_white(image));
    }
    let (width, height) = (image.width(), image.height());
    let data = match channels {
        Channels::Grey => image.into_luma8().into_raw(),
        Channels::Rgb => image.into_rgb8().into_raw(),
        Channels::Rgba => image.into_rgba8().into_raw(),
    };
    Ok(Pixels { width, height, channels, data })
}

fn over_white(image: DynamicImage) -> image::RgbImage {
    let source = image.into_rgba8();
    let mut flat = image::RgbImage::new(source.width(), source.height());
    for (to, from) in flat.pixels_mut().zip(source.pixels()) {
        let [r, g, b, alpha] = from.0;
        let over = |colour: u8| {
            let (colour, alpha) = (u32::from(colour), u32::from(alpha));
            u8::try_from((colour * alpha + 255 * (255 - alpha) + 127) / 255).unwrap_or(u8::MAX)
        };
        to.0 = [over(r), over(g), over(b)];
    }
    flat
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ExtendedColorType, ImageEncoder};

    fn png(width: u32, height: u32, colour: ExtendedColorType, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        image::codecs::png::PngEncoder::new(&mut bytes)
            .write_image(data, width, height, colour)
            .expect("good pixels");
        bytes
    }

    /// Left half black, right half white, 16×8, with the given EXIF orientation.
    fn jpeg(orientation: u8) -> Vec<u8> {
        let image =
            image::RgbImage::from_fn(16, 8, |x, _| image::Rgb([if x < 8 { 0 } else { 255 }; 3]));
        let mut plain = Vec::new();
        image::codecs::jpeg::JpegEncoder::new_with_quality(&mut plain, 100)
            .encode_image(&image)
            .expect("good pixels");
        let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        let length = u16::try_from(exif.len() + 2).expect("short").to_be_bytes();
        [&plain[..2], [0xff, 0xe1].as_slice(), &length[..], exif.as_slice(), &plain[2..]].concat()
    }

    #[test]
    fn exif_turns_pictures_upright() {
        let limits = DecodeLimits::default();
        // The first and the last pixel's brightness show the orientation.
        for (orientation, size, bright) in [
            (1, (16, 8), [false, true]),
            (3, (16, 8), [true, false]),
            (6, (8, 16), [false, true]),
            (8, (8, 16), [true, false]),
        ] {
            let pixels = decode(&jpeg(orientation), Channels::Grey, &limits).expect("a good JPEG");
            assert_eq!((pixels.width(), pixels.height()), size, "{orientation}");
            let ends = [pixels.data[0], pixels.data[pixels.data.len() - 1]].map(|v| v > 128);
            assert_eq!(ends, bright, "{orientation}");
        }
    }

    #[test]
    fn alpha_is_laid_over_white_or_kept() {
        let bytes = png(2, 1, ExtendedColorType::Rgba8, &[10, 20, 30, 0, 0, 100, 255, 128]);
        let decode =
            |channels| decode(&bytes, channels, &DecodeLimits::default()).expect("a good PNG").data;
        assert_eq!(decode(Channels::Rgb), [255, 255, 255, 127, 177, 255]);
        assert_eq!(decode(Channels::Rgba), [10, 20, 30, 0, 0, 100, 255, 128]);
    }

    /// A chunk of a WebP file.
    fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).expect("short").to_le_bytes();
        let padding: &[u8] = if body.len() % 2 == 1 { &[0] } else { &[] };
        [&name[..], &length[..], body, padding].concat()
    }

    fn riff(chunks: &[u8]) -> Vec<u8> {
        chunk(b"RIFF", &[b"WEBP".as_slice(), chunks].concat())
    }

    /// A lossless WebP of one colour.
    fn webp(colour: [u8; 3]) -> Vec<u8> {
        let mut bytes = Vec::new();
        image::codecs::webp::WebPEncoder::new_lossless(&mut bytes)
            .write_image(&colour.repeat(4), 2, 2, ExtendedColorType::Rgb8)
            .expect("good pixels");
        bytes
    }

    /// An animation of the frames' images, on 2×2 pixels.
    fn moving(frames: &[Vec<u8>]) -> Vec<u8> {
        // The animation flag; width and height minus one.
        let mut chunks = chunk(b"VP8X", &[0x02, 0, 0, 0, 1, 0, 0, 1, 0, 0]);
        chunks.extend(chunk(b"ANIM", &[0; 6]));
        for frame in frames {
            // Position, width and height minus one, duration, no blending; then the image's own chunk.
            let head = [0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 40, 0, 0, 2];
            chunks.extend(chunk(b"ANMF", &[&head[..], &frame[12..]].concat()));
        }
        riff(&chunks)
    }

    #[test]
    fn a_moving_picture_gives_its_first() {
        let frames = [webp([10, 20, 30]), webp([200, 100, 0])];
        let limits = DecodeLimits::default();
        for (bytes, colour) in [(&frames[1], [200, 100, 0]), (&moving(&frames), [10, 20, 30])] {
            let pixels = decode(bytes, Channels::Rgb, &limits).expect("a good WebP");
            assert_eq!((pixels.width(), pixels.height()), (2, 2));
            assert_eq!(pixels.data, colour.repeat(4));
        }
        let error = decode(&moving(&[]), Channels::Rgb, &limits).expect_err("it has none");
        assert!(matches!(error, VisionError::Undecodable(_)), "{error}");
    }

    #[test]
    fn attacks_get_typed_errors() {
        let good = png(4, 4, ExtendedColorType::L8, &[7; 16]);
        // A header that claims 60,000 × 60,000 pixels, with a valid checksum.
        let mut ihdr = b"IHDR\0\0\xea\x60\0\0\xea\x60\x08\0\0\0\0".to_vec();
        ihdr.extend(crc32(&ihdr).to_be_bytes());
        let bomb = [&good[..12], &ihdr[..], &good[33..]].concat();
        let limits = DecodeLimits { bytes_max: 4096, ..DecodeLimits::default() };
        let error = |bytes: &[u8]| decode(bytes, Channels::Rgb, &limits).expect_err("it is bad");
        assert!(matches!(error(&bomb), VisionError::TooManyPixels { width: 60_000, .. }));
        // The header of a lossless WebP claims 16,383 × 16,383; a claim of one more reads as none.
        let mut bomb = webp([1, 2, 3]);
        bomb[21..25].copy_from_slice(&(0x3ffe_u32 | 0x3ffe << 14).to_le_bytes());
        assert!(matches!(error(&bomb), VisionError::TooManyPixels { width: 16_383, .. }));
        bomb[21..25].copy_from_slice(&(0x3fff_u32 | 0x3fff << 14).to_le_bytes());
        assert!(matches!(error(&bomb), VisionError::NoPixels));
        // An image that claims 16,383 × 16,383 within a file that claims 2 × 2, animated or not; and a chunk of 4
        // GiB.
        let lossy =
            [&[0x10, 0, 0, 0x9d, 0x01, 0x2a, 0xff, 0x3f, 0xff, 0x3f][..], &[0; 32]].concat();
        let lossy = chunk(b"VP8 ", &lossy);
        let canvas = |flags| chunk(b"VP8X", &[flags, 0, 0, 0, 1, 0, 0, 1, 0, 0]);
        let still = riff(&[canvas(0), lossy.clone()].concat());
        let head = [&[0; 12][..], &lossy].concat();
        let endless = [canvas(8), b"EXIF\xff\xff\xff\xff".to_vec(), vec![0; 32]].concat();
        for (bytes, part) in [
            (still, "16383x16383 pixels, expected 2x2"),
            (moving(&[head]), "16383x16383 pixels, expected 2x2"),
            (riff(&endless), "EXIF says 4294967295 bytes"),
        ] {
            let error = error(&bytes);
            assert!(matches!(error, VisionError::Undecodable(_)), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let webp = webp([1, 2, 3]);
        for length in 12..webp.len() {
            assert!(matches!(error(&webp[..length]), VisionError::Undecodable(_)), "{length}");
        }
        let jpeg = jpeg(1);
        assert!(matches!(error(&jpeg[..jpeg.len() / 4]), VisionError::Undecodable(_)));
        assert!(matches!(error(&good[..40]), VisionError::Undecodable(_)));
        for wrong in [b"GIF89a\x01\0\x01\0".as_slice(), b"", b"BM", b"<svg/>"] {
            assert!(matches!(error(wrong), VisionError::UnknownFormat), "{wrong:?}");
        }
        assert!(matches!(error(&[0; 4097]), VisionError::TooManyBytes { bytes: 4097, .. }));
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
            })
        })
    }
}
