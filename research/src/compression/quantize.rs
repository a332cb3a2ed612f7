//! Quantisation of weights and activations: grids, rounding methods, transforms that make a weight
//! easier to round, a bit budget over many tensors, and the packed layouts of ONNX Runtime.
//!
//! A weight W is `[n outputs, k inputs]` and its layer computes y = W x.

mod auto_round;
mod awq;
mod bias;
mod budget;
mod equalize;
mod factor;
#[cfg(test)]
pub(super) mod fixtures;
mod gptq;
mod grid;
mod half;
mod hqq;
mod nearest;
mod nf4;
mod pack;
mod qronos;
mod quantized;
mod ranges;
mod rotate;
mod rounding;
mod scale;
mod smooth_quant;

pub use auto_round::AutoRound;
pub use awq::{Awq, awq};
pub use bias::bias_correction;
pub use budget::{Budget, Choice, allocate};
pub use equalize::equalize;
pub use gptq::Gptq;
pub use grid::{Grid, GroupParams, Scheme};
pub use half::{HalfFormat, Halved, Overflow};
pub use hqq::Hqq;
pub use nearest::Nearest;
pub use nf4::{NF4, Nf4};
pub use pack::{NBits, pack_nf4, unpack_nf4};
pub use qronos::Qronos;
pub use quantized::Quantized;
pub use ranges::{Affine, Histogram, Int8, Range, RangeMethod};
pub use rotate::Rotation;
pub use rounding::Rounding;
pub use scale::{scale_columns, to_powers_of_two, unscale_rows};
pub use smooth_quant::smooth_quant;

/// The methods that round a weight to a grid, with their default settings.
pub const ROUNDINGS: &[&dyn Rounding] =
    &[&Nearest, &Gptq::DEFAULT, &Qronos::DEFAULT, &Hqq, &AutoRound::DEFAULT];
