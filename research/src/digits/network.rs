//! The network: three convolutions and a linear layer, small enough to bundle.

use super::data::{CLASSES, PIXELS, SIDE};
use crate::error::Result;
use candle_core::{Device, Tensor, Var};
use rand::{Rng, RngExt};

/// Output channels of the three convolutions. The second has stride 2.
const CHANNELS: [usize; 3] = [16, 32, 32];
/// Height and width of every convolution's kernel; its padding is 1.
pub(super) const KERNEL: usize = 3;
pub(super) const STRIDES: [usize; 3] = [1, 2, 1];
/// The values of an image after the last convolution: 32 channels of 4×4.
const FEATURES: usize = CHANNELS[2] * (SIDE / 2) * (SIDE / 2);

/// The digits network with its weights. It takes the pixels of the data, 0–16.
#[derive(Debug)]
pub struct DigitsNetwork {
    /// Kernel `[out, in, 3, 3]` and bias `[out]` of each convolution.
    pub(super) convolutions: [(Var, Var); 3],
    /// Weight `[10, 512]` and bias `[10]`.
    pub(super) linear: (Var, Var),
}

impl DigitsNetwork {
    /// A network with random weights (He's uniform initialisation) and zero biases.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(rng: &mut impl Rng) -> Result<Self> {
        let mut layer = |shape: &[usize]| -> Result<(Var, Var)> {
            let out = shape.first().copied().unwrap_or(1);
            let count: usize = shape.iter().product();
            let bound = (6.0 / (count / out) as f32).sqrt();
            let weights: Vec<f32> =
                (0..count).map(|_| bound * (2.0 * rng.random::<f32>() - 1.0)).collect();
            let weight = Var::from_tensor(&Tensor::from_vec(weights, shape, &Device::Cpu)?)?;
            let bias = Var::from_tensor(&Tensor::from_vec(vec![0.0_f32; out], out, &Device::Cpu)?)?;
            Ok((weight, bias))
        };
        let [a, b, c] = CHANNELS;
        let convolutions = [
            layer(&[a, 1, KERNEL, KERNEL])?,
            layer(&[b, a, KERNEL, KERNEL])?,
            layer(&[c, b, KERNEL, KERNEL])?,
        ];
        // The first kernel scales pixels to 0–1, which saves an operation in each run of the model.
        // Dividing weights by 16, a power of two, is exact.
        let scaled = (convolutions[0].0.as_tensor() / 16.0)?;
        convolutions[0].0.set(&scaled)?;
        Ok(Self { convolutions, linear: layer(&[CLASSES, FEATURES])? })
    }

    /// All weights and biases, in a fixed order.
    #[must_use]
    pub fn variables(&self) -> Vec<Var> {
        let pairs = self.convolutions.iter().chain([&self.linear]);
        pairs.flat_map(|(weight, bias)| [weight.clone(), bias.clone()]).collect()
    }

    /// Logits `[n, 10]` of `pixels`, which hold whole images one after the other.
    ///
    /// # Errors
    /// If the pixels are not a whole number of images.
    pub fn forward(&self, pixels: &[f32]) -> Result<Tensor> {
        let images = pixels.len() / PIXELS;
        let mut x = Tensor::from_slice(pixels, (images, 1, SIDE, SIDE), &Device::Cpu)?;
        for ((kernel, bias), stride) in self.convolutions.iter().zip(STRIDES) {
            let bias = bias.reshape((1, (), 1, 1))?;
            x = x.conv2d(kernel, KERNEL / 2, stride, 1, 1)?.broadcast_add(&bias)?.relu()?;
        }
        let (weight, bias) = &self.linear;
        Ok(x.flatten_from(1)?.matmul(&weight.t()?)?.broadcast_add(bias)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};

    #[test]
    fn the_seed_decides_the_weights() {
        let logits = |seed| {
            let network = DigitsNetwork::new(&mut StdRng::seed_from_u64(seed)).unwrap();
            let pixels: Vec<f32> = (0..2 * PIXELS).map(|i| (i % 17) as f32).collect();
            network.forward(&pixels).unwrap().to_vec2::<f32>().unwrap()
        };
        assert_eq!((logits(1).len(), logits(1)[0].len()), (2, CLASSES));
        assert_eq!(logits(1), logits(1));
        assert_ne!(logits(1), logits(2));
    }

    #[test]
    fn half_an_image_is_an_error() {
        let network = DigitsNetwork::new(&mut StdRng::seed_from_u64(1)).unwrap();
        assert!(network.forward(&[0.0; PIXELS + PIXELS / 2]).is_err());
    }
}
