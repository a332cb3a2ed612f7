//! Produces weights, by training.
//!
//! Only this layer uses candle, its autograd toolkit. `lgp-inference` writes the results as ONNX,
//! so other layers run them and know nothing of training.

#![forbid(unsafe_code)]

mod digits;
mod error;

pub use digits::{
    CLASSES, DigitSet, DigitsConfig, DigitsNetwork, PIXELS, Report, SIDE, accuracy, train_digits,
};
pub use error::{Error, Result};
