//! Images as inputs and outputs of models: from JPEG, PNG or WebP to numbers, from scores to labels
//! and boxes. All functions are pure, over 8-bit pixels and f32.

mod decode;
mod error;
mod labels;
mod nms;
mod normalise;
mod resize;
mod webp;

pub use decode::{Channels, DecodeLimits, Pixels, decode, dimensions};
pub use error::VisionError;
pub use labels::{softmax, top_k};
pub use nms::{NmsOptions, PixelBox, nms};
pub use normalise::{Order, Scaling, arrange, normalise};
pub use resize::{Filter, crop, resize, resize_bytes};
