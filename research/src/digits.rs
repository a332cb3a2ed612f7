//! The digits model: its data, network, training and export to ONNX.

mod augment;
mod data;
mod export;
mod network;
mod train;

pub use data::{CLASSES, DigitSet, PIXELS, SIDE};
pub use network::DigitsNetwork;
pub use train::{DigitsConfig, Report, accuracy, train_digits};
