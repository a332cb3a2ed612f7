//! NF4: 16 values at quantiles of a normal distribution, scaled by the largest magnitude of each
//! block. "QLoRA: Efficient Finetuning of Quantized LLMs" (2023).

use super::quantized::check_weight;
use crate::error::{Error, Result};
use ndarray::{Array2, ArrayView2};

const METHOD: &str = "quantise to NF4";

/// The values of the codes, in increasing order, as the paper's appendix lists them.
pub const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A weight `[n, k]` in NF4. Blocks run over the elements row by row and may cross the end of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Nf4 {
    shape: [usize; 2],
    block: usize,
    codes: Vec<u8>,
    absmax: Vec<f32>,
}

impl Nf4 {
    /// The nearest codes for a weight, in blocks of `block` elements; the last may be shorter.
    ///
    /// # Errors
    /// Fails if the weight is empty or not finite, or `block` is 0.
    pub fn quantize(w: ArrayView2<f32>, block: usize) -> Result<Self> {
        check_weight(METHOD, w)?;
        check_block(block)?;
        let flat: Vec<f32> = w.iter().copied().collect();
        let (mut codes, mut absmax) = (Vec::with_capacity(flat.len()), Vec::new());
        for part in flat.chunks(block) {
            let largest = part.iter().fold(0f32, |m, v| m.max(v.abs()));
            // A subnormal divisor would leave the range of the codes.
            let largest = if largest < f32::MIN_POSITIVE { 0.0 } else { largest };
            let divisor = if largest == 0.0 { f32::INFINITY } else { largest };
            codes.extend(part.iter().map(|&v| nearest(v / divisor)));
            absmax.push(largest);
        }
        Ok(Self { shape: w.dim().into(), block, codes, absmax })
    }

    /// A weight from its parts, the codes row by row.
    ///
    /// # Errors
    /// Fails if a part has another length, a code is above 15, or a largest value is not finite.
    pub fn new([n, k]: [usize; 2], block: usize, codes: Vec<u8>, absmax: Vec<f32>) -> Result<Self> {
        check_block(block)?;
        let elements = n.saturating_mul(k);
        let blocks = elements.div_ceil(block);
        if codes.len() != elements || absmax.len() != blocks {
            let (c, a) = (codes.len(), absmax.len());
            return Err(refuse(format!(
                "{c} codes and {a} block values, expected {elements} and {blocks}"
            )));
        }
        if let Some(code) = codes.iter().find(|&&c| c > 15) {
            return Err(refuse(format!("code {code}, expected at most 15")));
        }
        if let Some(value) = absmax.iter().find(|v| !v.is_finite()) {
            return Err(refuse(format!("block value {value}, expected finite values")));
        }
        Ok(Self { shape: [n, k], block, codes, absmax })
    }

    /// Rows n and columns k.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Elements that share a largest value.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The codes, row by row.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The largest magnitude of each block.
    pub fn absmax(&self) -> &[f32] {
        &self.absmax
    }

    /// The weight that the codes stand for, `[n, k]`.
    pub fn dequantize(&self) -> Array2<f32> {
        let k = self.shape[1];
        Array2::from_shape_fn(self.shape, |(row, column)| {
            let at = row * k + column;
            NF4[usize::from(self.codes[at])] * self.absmax[at / self.block]
        })
    }
}

/// The code of the value nearest to x in [−1, 1].
fn nearest(x: f32) -> u8 {
    let above = NF4.windows(2).filter(|pair| x > (pair[0] + pair[1]) / 2.0).count();
    u8::try_from(above).unwrap_or(15)
}

fn check_block(block: usize) -> Result<()> {
    if block > 0 {
        return Ok(());
    }
    Err(Error::Setting { name: "block", value: "0".into(), expected: "at least 1 element" })
}

fn refuse(message: String) -> Error {
    Error::Compression { method: METHOD, message }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng, sqnr_db};
    use super::*;

    /// SQNR of N(0, 1) in blocks of 32, 64 and 128: 21.18, 20.73 and 20.40 dB.
    #[test]
    fn sqnr_of_gaussian_blocks() {
        let w = gaussian(1024, 256, &mut rng(3));
        for (block, expected) in [(32, 21.18), (64, 20.73), (128, 20.40)] {
            let found =
                sqnr_db(w.view(), Nf4::quantize(w.view(), block).unwrap().dequantize().view());
            assert!((found - expected).abs() < 0.1, "{block}: {found}");
        }
    }

    /// The codebook's own values, zeros and a last short block come back exactly.
    #[test]
    fn codebook_is_exact() {
        let mut values: Vec<f32> = NF4.iter().map(|v| v * 4.0).collect();
        values.extend([0.0; 16]);
        values.extend([3.0, -3.0, 0.0]);
        let w = Array2::from_shape_vec((5, 7), values).unwrap();
        let q = Nf4::quantize(w.view(), 16).unwrap();
        assert_eq!(q.dequantize(), w);
        assert_eq!(q.codes()[..16], std::array::from_fn::<u8, 16, _>(|i| i as u8));
        assert_eq!(q.absmax(), [4.0, 0.0, 3.0]);
        let again = Nf4::new([5, 7], 16, q.codes().to_vec(), q.absmax().to_vec());
        assert_eq!(again.unwrap(), q);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let w = Array2::<f32>::ones((2, 2));
        assert!(Nf4::quantize(w.view(), 0).is_err());
        assert!(Nf4::quantize((w * f32::INFINITY).view(), 2).is_err());
        assert!(Nf4::new([2, 2], 2, vec![0; 4], vec![0.0; 1]).is_err());
        assert!(Nf4::new([2, 2], 2, vec![16; 4], vec![0.0; 2]).is_err());
    }
}
