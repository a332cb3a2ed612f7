//! Errors of images and of image operations.

/// An unusable image, or parameters that do not fit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisionError {
    /// The encoded image is too long.
    #[error("the image has {bytes} bytes, expected at most {bytes_max}")]
    TooManyBytes {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// The bytes do not begin like a known format.
    #[error("the bytes begin as neither PNG, JPEG nor WebP do, expected one of the three")]
    UnknownFormat,
    /// The picture has no columns or no rows.
    #[error("the image has no pixels, by its header")]
    NoPixels,
    /// The image, or the requested size, has too many pixels.
    #[error(
        "an image of {width}x{height} pixels is too large, expected at most {pixels_max} pixels"
    )]
    TooManyPixels {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// The limit of columns times rows.
        pixels_max: u64,
    },
    /// The bytes are damaged, truncated, or of an unsupported kind.
    #[error("the image does not decode: {0}")]
    Undecodable(#[source] image::ImageError),
    /// The parameters contradict the image or each other.
    #[error("{0}")]
    Parameters(String),
}
