//! What can be wrong with a picture or with what is asked of it.

/// A picture that cannot be used, or parameters that do not fit it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisionError {
    /// The encoded picture is longer than is taken.
    #[error("the image has {bytes} bytes, expected at most {bytes_max}")]
    TooManyBytes {
        /// Its length.
        bytes: usize,
        /// The most that is taken.
        bytes_max: usize,
    },
    /// The bytes begin as no format that is read.
    #[error("the bytes begin as neither PNG, JPEG nor WebP do, expected one of the three")]
    UnknownFormat,
    /// The picture has no columns or no rows.
    #[error("the image has no pixels, by its header")]
    NoPixels,
    /// The picture, or the size that is asked for, has too many pixels.
    #[error(
        "an image of {width}x{height} pixels is too large, expected at most {pixels_max} pixels"
    )]
    TooManyPixels {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// The most that columns times rows may be.
        pixels_max: u64,
    },
    /// The bytes are damaged, cut short, or of a kind that is not read.
    #[error("the image does not decode: {0}")]
    Undecodable(#[source] image::ImageError),
    /// What is asked for contradicts the picture or itself.
    #[error("{0}")]
    Parameters(String),
}
