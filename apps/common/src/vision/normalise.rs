//! Converts 8-bit pixels to numbers in the order that a model expects.

use super::{Pixels, VisionError};
use serde::{Deserialize, Serialize};

/// Scales a pixel's value: `(value × scale − mean) / std`. `mean` and `std` have one number, or one
/// per channel; the defaults are scale 1/255, mean 0 and std 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scaling {
    /// The factor of values from 0 to 255.
    pub scale: f32,
    /// Subtracted after scaling; empty is 0.
    pub mean: Vec<f32>,
    /// The divisor; empty is 1.
    pub std: Vec<f32>,
}

impl Default for Scaling {
    fn default() -> Self {
        Self { scale: 1.0 / 255.0, mean: Vec::new(), std: Vec::new() }
    }
}

impl Scaling {
    /// Checks that the scaling suits pixels with this many channels.
    ///
    /// # Errors
    /// `Parameters` if a list does not fit `channels`, `std` has a 0, or a number is not finite.
    pub fn check(&self, channels: usize) -> Result<(), VisionError> {
        for (key, list) in [("mean", &self.mean), ("std", &self.std)] {
            let given = list.len();
            if given > 1 && given != channels {
                let what = format!("{given} numbers as {key}, expected 1 or {channels}");
                return Err(VisionError::Parameters(what));
            }
        }
        let mut all = self.mean.iter().chain(&self.std).chain([&self.scale]);
        if let Some(odd) = all.find(|number| !number.is_finite()) {
            let what = format!("{odd} among scale, mean and std, expected finite numbers");
            return Err(VisionError::Parameters(what));
        }
        match self.std.contains(&0.0) {
            true => Err(VisionError::Parameters(
                "std has a 0, expected numbers to divide by".to_owned(),
            )),
            false => Ok(()),
        }
    }

    fn apply(&self, value: u8, channel: usize) -> f32 {
        let of = |list: &[f32], default: f32| match list {
            [one] => *one,
            many => many.get(channel).copied().unwrap_or(default),
        };
        (f32::from(value) * self.scale - of(&self.mean, 0.0)) / of(&self.std, 1.0)
    }
}

/// The order of one image's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// `[C, H, W]`: one plane after the other.
    Nchw,
    /// `[H, W, C]`: the channels of a pixel are adjacent.
    Nhwc,
}

/// The pixels as f32 in `order`.
///
/// # Errors
/// As [`Scaling::check`].
pub fn normalise(
    pixels: &Pixels,
    scaling: &Scaling,
    order: Order,
) -> Result<Vec<f32>, VisionError> {
    scaling.check(pixels.channels.count())?;
    Ok(ordered(pixels, order, |value, channel| scaling.apply(value, channel)))
}

/// The unscaled pixels in `order`.
#[must_use]
pub fn arrange(pixels: &Pixels, order: Order) -> Vec<u8> {
    ordered(pixels, order, |value, _| value)
}

fn ordered<T>(pixels: &Pixels, order: Order, number: impl Fn(u8, usize) -> T) -> Vec<T> {
    let channels = pixels.channels.count();
    let mut all = Vec::with_capacity(pixels.data.len());
    match order {
        Order::Nhwc => {
            for pixel in pixels.data.chunks_exact(channels) {
                all.extend(
                    pixel.iter().enumerate().map(|(channel, &value)| number(value, channel)),
                );
            }
        }
        Order::Nchw => {
            for channel in 0..channels {
                let plane = pixels.data.iter().skip(channel).step_by(channels);
                all.extend(plane.map(|&value| number(value, channel)));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Channels;
    use super::*;

    #[test]
    fn numbers_come_scaled_and_in_order() {
        let pixels = Pixels::new(2, 1, Channels::Rgb, vec![1, 2, 3, 4, 5, 6]).expect("they fit");
        let scaling = Scaling { scale: 2.0, mean: vec![0.0, 1.0, 2.0], std: vec![2.0] };
        let numbers = |order| normalise(&pixels, &scaling, order).expect("a good scaling");
        assert_eq!(numbers(Order::Nhwc), [1.0, 1.5, 2.0, 4.0, 4.5, 5.0]);
        assert_eq!(numbers(Order::Nchw), [1.0, 4.0, 1.5, 4.5, 2.0, 5.0]);
        assert_eq!(arrange(&pixels, Order::Nchw), [1, 4, 2, 5, 3, 6]);
        for bad in [
            Scaling { mean: vec![1.0, 2.0], ..Scaling::default() },
            Scaling { std: vec![1.0, 0.0, 1.0], ..Scaling::default() },
            Scaling { std: vec![f32::NAN], ..Scaling::default() },
            Scaling { scale: f32::INFINITY, ..Scaling::default() },
        ] {
            normalise(&pixels, &bad, Order::Nchw).expect_err("it fits no RGB");
        }
    }
}
