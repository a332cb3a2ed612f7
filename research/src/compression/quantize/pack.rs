//! The packed layouts of ONNX Runtime's `MatMulNBits` and `MatMulBnb4`.

use super::grid::{Grid, Scheme};
use super::nf4::Nf4;
use super::quantized::Quantized;
use crate::error::{Error, Result};

/// A weight as the inputs and attributes of `MatMulNBits`.
#[derive(Debug, Clone, PartialEq)]
pub struct NBits {
    /// Rows n and columns k, attributes `N` and `K`.
    pub shape: [usize; 2],
    /// Bits of a code: 2, 4 or 8.
    pub bits: u8,
    /// Elements along k that share a scale, attribute `block_size`.
    pub block: usize,
    /// `[n, blocks, block·bits/8]`, the first element in the lowest bits. Codes after the end of a
    /// row are 0.
    pub codes: Vec<u8>,
    /// `[n, blocks]`.
    pub scales: Vec<f32>,
    /// `[n, ⌈blocks·bits/8⌉]`, packed like codes; `None` where all are 2^(bits−1).
    pub zeros: Option<Vec<u8>>,
}

impl NBits {
    /// Packs a weight.
    ///
    /// # Errors
    /// Fails if the grid has other bits than 2, 4 or 8, or no groups of a multiple of 8.
    pub fn pack(quantized: &Quantized) -> Result<Self> {
        let grid = quantized.grid();
        let [n, k] = quantized.shape();
        let bits = grid.bits();
        let block = grid.group().unwrap_or(0);
        check(bits, block)?;
        // A last block is filled up with zeros.
        let padded = grid.groups(k) * block;
        let mut codes = Vec::with_capacity(n * padded * usize::from(bits) / 8);
        for row in quantized.codes().chunks(k.max(1)) {
            let mut row = row.to_vec();
            row.resize(padded, 0);
            pack_bits(&row, bits, &mut codes);
        }
        let zeros = (grid.scheme() == Scheme::Asymmetric).then(|| {
            let mut zeros = Vec::new();
            for row in quantized.zeros().chunks(grid.groups(k).max(1)) {
                pack_bits(row, bits, &mut zeros);
            }
            zeros
        });
        let scales = quantized.scales().to_vec();
        Ok(Self { shape: [n, k], bits, block, codes, scales, zeros })
    }

    /// The weight with its codes in bytes. Its scheme is asymmetric where there are zero points, and
    /// symmetric otherwise.
    ///
    /// # Errors
    /// Fails if a part has another length than the attributes ask for.
    pub fn unpack(&self) -> Result<Quantized> {
        check(self.bits, self.block)?;
        let [n, k] = self.shape;
        let scheme = if self.zeros.is_some() { Scheme::Asymmetric } else { Scheme::Symmetric };
        let grid = Grid::new(self.bits, Some(self.block), scheme)?;
        let blocks = grid.groups(k);
        let row = blocks * self.block * usize::from(self.bits) / 8;
        let codes = unpack_rows("codes", &self.codes, [n, row], self.bits, k)?;
        let zeros = match &self.zeros {
            None => vec![1 << (self.bits - 1); n * blocks],
            Some(zeros) => {
                let row = (blocks * usize::from(self.bits)).div_ceil(8);
                unpack_rows("zero points", zeros, [n, row], self.bits, blocks)?
            }
        };
        Quantized::new(grid, self.shape, codes, self.scales.clone(), zeros)
    }
}

/// Packs NF4 codes into the weight of `MatMulBnb4`: one row of nibbles of W `[n, k]`, the first of a
/// byte in its upper half. The operator's other input is the weight's `absmax`.
///
/// # Errors
/// Fails unless the block is even and divides the number of elements, which the operator asks for.
pub fn pack_nf4(weight: &Nf4) -> Result<Vec<u8>> {
    let (elements, block) = (weight.codes().len(), weight.block());
    if block % 2 != 0 || elements % block != 0 {
        return Err(refuse(format!(
            "{elements} elements in blocks of {block}, expected a multiple of an even block"
        )));
    }
    Ok(weight.codes().chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// The weight that [`pack_nf4`] packed.
///
/// # Errors
/// Fails if the lengths do not fit the shape and the block.
pub fn unpack_nf4(packed: &[u8], shape: [usize; 2], block: usize, absmax: Vec<f32>) -> Result<Nf4> {
    let codes = packed.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
    Nf4::new(shape, block, codes, absmax)
}

/// Appends bytes of 8/bits codes each, the first in the lowest bits.
fn pack_bits(codes: &[u8], bits: u8, packed: &mut Vec<u8>) {
    let bytes = codes.chunks(usize::from(8 / bits));
    packed.extend(bytes.map(|part| {
        part.iter()
            .rev()
            .fold(0u8, |byte, code| if bits == 8 { *code } else { byte << bits | code })
    }));
}

/// The first `count` codes of each row of packed bytes.
fn unpack_rows(
    what: &str,
    packed: &[u8],
    [rows, bytes]: [usize; 2],
    bits: u8,
    count: usize,
) -> Result<Vec<u8>> {
    let expected = rows.saturating_mul(bytes);
    if packed.len() != expected {
        let found = packed.len();
        return Err(refuse(format!("{found} bytes of {what}, expected {expected}")));
    }
    let mask = u8::MAX >> (8 - bits);
    let codes = |byte: &u8| {
        let byte = *byte;
        (0..8 / bits).map(move |i| byte >> (i * bits) & mask)
    };
    let rows = packed.chunks(bytes.max(1));
    Ok(rows.flat_map(|row| row.iter().flat_map(codes).take(count)).collect())
}

fn check(bits: u8, block: usize) -> Result<()> {
    if !matches!(bits, 2 | 4 | 8) {
        let value = bits.to_string();
        return Err(Error::Setting { name: "bits", value, expected: "2, 4 or 8" });
    }
    if block == 0 || !block.is_multiple_of(8) {
        let value = if block == 0 { "the whole row".into() } else { block.to_string() };
        return Err(Error::Setting { name: "group", value, expected: "a multiple of 8" });
    }
    Ok(())
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "pack a weight", message }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{gaussian, rng};
    use super::super::nearest::round_nearest;
    use super::*;
    use ndarray::Array2;

    /// What the operator computes: (element − zero) · scale, an element being the bits of its place
    /// in its block.
    fn operator(packed: &NBits) -> Array2<f32> {
        let [n, k] = packed.shape;
        let (bits, blocks) = (usize::from(packed.bits), k.div_ceil(packed.block));
        let element = |bytes: &[u8], i: usize| {
            let bit = i * bits;
            f32::from(bytes[bit / 8] >> (bit % 8) & (255 >> (8 - bits)))
        };
        let (size, row) = (packed.block * bits / 8, (blocks * bits).div_ceil(8));
        Array2::from_shape_fn((n, k), |(i, j)| {
            let group = i * blocks + j / packed.block;
            let middle = f32::from(1u8 << (bits - 1));
            let zero = packed.zeros.as_ref();
            let zero = zero.map_or(middle, |z| element(&z[i * row..], j / packed.block));
            let code = element(&packed.codes[group * size..][..size], j % packed.block);
            (code - zero) * packed.scales[group]
        })
    }

    /// Packed codes come back, and the operator's formula gives the same weight; with a short last
    /// block and an odd number of blocks.
    #[test]
    fn round_trip() {
        let w = gaussian(5, 88, &mut rng(71));
        for bits in [2, 4, 8] {
            for scheme in [Scheme::Symmetric, Scheme::Asymmetric] {
                for group in [8, 16, 32] {
                    let grid = Grid::new(bits, Some(group), scheme).unwrap();
                    let quantized = round_nearest(w.view(), &grid);
                    let packed = NBits::pack(&quantized).unwrap();
                    let bytes = 88usize.div_ceil(group) * group * usize::from(bits) / 8;
                    assert_eq!(packed.codes.len(), 5 * bytes);
                    assert_eq!(packed.unpack().unwrap(), quantized);
                    assert_eq!(operator(&packed), quantized.dequantize());
                }
            }
        }
    }

    /// The first of two codes is in the lower half of a byte of `MatMulNBits`, and in the upper half
    /// of a byte of `MatMulBnb4`.
    #[test]
    fn order_in_a_byte() {
        let mut bytes = Vec::new();
        pack_bits(&[1, 2, 3], 4, &mut bytes);
        pack_bits(&[1, 2, 3, 0, 2], 2, &mut bytes);
        pack_bits(&[200, 7], 8, &mut bytes);
        assert_eq!(bytes, [0x21, 0x03, 0b0011_1001, 0b10, 200, 7]);
        let nf4 = Nf4::new([1, 4], 2, vec![1, 2, 15, 0], vec![1.0, 2.0]).unwrap();
        let packed = pack_nf4(&nf4).unwrap();
        assert_eq!(packed, [0x12, 0xf0]);
        assert_eq!(unpack_nf4(&packed, [1, 4], 2, vec![1.0, 2.0]).unwrap(), nf4);
        let nf4 = Nf4::quantize(gaussian(6, 64, &mut rng(72)).view(), 64).unwrap();
        let packed = pack_nf4(&nf4).unwrap();
        assert_eq!(unpack_nf4(&packed, [6, 64], 64, nf4.absmax().to_vec()).unwrap(), nf4);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let w = gaussian(2, 16, &mut rng(73));
        for (bits, group) in [(3, Some(8)), (4, None), (4, Some(4))] {
            let grid = Grid::new(bits, group, Scheme::Symmetric).unwrap();
            assert!(NBits::pack(&round_nearest(w.view(), &grid)).is_err(), "{bits} {group:?}");
        }
        let grid = Grid::new(4, Some(8), Scheme::Asymmetric).unwrap();
        let packed = NBits::pack(&round_nearest(w.view(), &grid)).unwrap();
        let short = NBits { codes: vec![0; 3], ..packed.clone() };
        assert!(short.unpack().is_err());
        assert!(NBits { zeros: Some(vec![]), ..packed.clone() }.unpack().is_err());
        assert!(NBits { scales: vec![0.0; 4], ..packed }.unpack().is_err());
        assert!(pack_nf4(&Nf4::quantize(w.view(), 5).unwrap()).is_err());
        assert!(unpack_nf4(&[0], [1, 4], 2, vec![1.0, 2.0]).is_err());
    }
}
