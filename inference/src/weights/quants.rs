//! Quantised blocks of GGUF as `f32`: one row of the table and one function each. The layouts are
//! those of ggml's `block_*` structs; numbers in brackets are elements and bytes of a block.

use half::f16;

/// The largest block.
const MOST: usize = 256;

/// A method of quantisation.
#[derive(Debug)]
pub(super) struct Quant {
    /// The method's number in files.
    pub(super) kind: u32,
    pub(super) name: &'static str,
    /// Elements of a block.
    pub(super) elements: usize,
    /// Bytes of a block.
    bytes: usize,
    /// Expands a block to its elements.
    expand: fn(&[u8], &mut [f32]),
}

impl PartialEq for Quant {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// The methods that can be read.
pub(super) const QUANTS: &[Quant] = &[
    Quant { kind: 2, name: "Q4_0", elements: 32, bytes: 18, expand: q4_0 },
    Quant { kind: 3, name: "Q4_1", elements: 32, bytes: 20, expand: q4_1 },
    Quant { kind: 6, name: "Q5_0", elements: 32, bytes: 22, expand: q5_0 },
    Quant { kind: 7, name: "Q5_1", elements: 32, bytes: 24, expand: q5_1 },
    Quant { kind: 8, name: "Q8_0", elements: 32, bytes: 34, expand: q8_0 },
    Quant { kind: 10, name: "Q2_K", elements: 256, bytes: 84, expand: q2_k },
    Quant { kind: 11, name: "Q3_K", elements: 256, bytes: 110, expand: q3_k },
    Quant { kind: 12, name: "Q4_K", elements: 256, bytes: 144, expand: q4_k },
    Quant { kind: 13, name: "Q5_K", elements: 256, bytes: 176, expand: q5_k },
    Quant { kind: 14, name: "Q6_K", elements: 256, bytes: 210, expand: q6_k },
];

impl Quant {
    /// Bytes of this many elements; `None` unless they fill whole blocks.
    pub(super) fn byte_len(&self, elements: usize) -> Option<usize> {
        let whole = elements.is_multiple_of(self.elements);
        whole.then(|| (elements / self.elements).checked_mul(self.bytes)).flatten()
    }

    /// Fills `out`, the bytes of `f32` elements, from whole blocks.
    pub(super) fn expand(&self, blocks: &[u8], out: &mut [u8]) {
        let mut values = [0f32; MOST];
        let out = out.chunks_exact_mut(self.elements * size_of::<f32>());
        for (block, out) in blocks.chunks_exact(self.bytes).zip(out) {
            let values = &mut values[..self.elements];
            (self.expand)(block, values);
            for (slot, value) in out.chunks_exact_mut(size_of::<f32>()).zip(values) {
                slot.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
}

/// The half-precision number at a byte of a block.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Low halves of the bytes, then high halves.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|q| q & 15).chain(bytes.iter().map(|q| q >> 4))
}

/// [32, 18] A scale, then elements of 4 bits around 8.
fn q4_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (y, q) in out.iter_mut().zip(nibbles(&block[2..])) {
        *y = (f32::from(q) - 8.) * d;
    }
}

/// [32, 20] A scale and a least value, then elements of 4 bits.
fn q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (y, q) in out.iter_mut().zip(nibbles(&block[4..])) {
        *y = f32::from(q) * d + m;
    }
}

/// Elements of 5 bits: the highest bits of all 32 elements come first.
fn five(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let high = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    nibbles(&bytes[4..]).enumerate().map(move |(i, q)| q | if high >> i & 1 == 1 { 16 } else { 0 })
}

/// [32, 22] A scale, then elements of 5 bits around 16.
fn q5_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (y, q) in out.iter_mut().zip(five(&block[2..])) {
        *y = (f32::from(q) - 16.) * d;
    }
}

/// [32, 24] A scale and a least value, then elements of 5 bits.
fn q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    for (y, q) in out.iter_mut().zip(five(&block[4..])) {
        *y = f32::from(q) * d + m;
    }
}

/// [32, 34] A scale, then bytes.
fn q8_0(block: &[u8], out: &mut [f32]) {
    let d = half(block, 0);
    for (y, q) in out.iter_mut().zip(&block[2..]) {
        *y = f32::from(q.cast_signed()) * d;
    }
}

/// [256, 84] Scales and minima of 16 elements each, of 4 bits; elements of 2 bits; the scales of
/// both.
fn q2_k(block: &[u8], out: &mut [f32]) {
    let (scales, q) = (&block[..16], &block[16..80]);
    let (d, least) = (half(block, 80), half(block, 82));
    for (run, (out, scale)) in out.chunks_exact_mut(16).zip(scales).enumerate() {
        let (dl, ml) = (d * f32::from(scale & 15), least * f32::from(scale >> 4));
        let (from, shift) = two_bits(run);
        for (y, q) in out.iter_mut().zip(&q[from..]) {
            *y = dl * f32::from(q >> shift & 3) - ml;
        }
    }
}

/// The place of the two low bits of a run of 16 elements in a K block: 128 elements share 32 bytes,
/// and each byte has the bits of four elements that are 32 apart.
fn two_bits(run: usize) -> (usize, usize) {
    (run / 8 * 32 + run % 2 * 16, run % 8 / 2 * 2)
}

/// [256, 110] High bits of the elements; their two low bits; scales of 6 bits around 32 in 12
/// bytes; the scale of those.
fn q3_k(block: &[u8], out: &mut [f32]) {
    let (high, q, scales) = (&block[..32], &block[32..96], &block[96..108]);
    let d = half(block, 108);
    for (run, out) in out.chunks_exact_mut(16).enumerate() {
        let low = scales[run % 8] >> (run / 8 * 4) & 15;
        let scale = low | (scales[8 + run % 4] >> (run / 4 * 2) & 3) << 4;
        let dl = d * (f32::from(scale) - 32.);
        let (from, shift) = two_bits(run);
        let bits = q[from..].iter().zip(&high[run % 2 * 16..]);
        for (y, (q, high)) in out.iter_mut().zip(bits) {
            let absent = if high >> (run / 2) & 1 == 1 { 0. } else { 4. };
            *y = dl * (f32::from(q >> shift & 3) - absent);
        }
    }
}

/// Scale and minimum, of 6 bits each, of the 32 elements of run `j`, from 12 bytes.
fn scale_and_least(s: &[u8], j: usize) -> (f32, f32) {
    let (scale, least) = if j < 4 {
        (s[j] & 63, s[j + 4] & 63)
    } else {
        ((s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4)
    };
    (f32::from(scale), f32::from(least))
}

/// [256, 144] Scales of scales and of minima; those; elements of 4 bits, 64 of which share 32
/// bytes.
fn q4_k(block: &[u8], out: &mut [f32]) {
    let (d, least) = (half(block, 0), half(block, 2));
    let (scales, q) = (&block[4..16], &block[16..144]);
    for (run, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, m) = scale_and_least(scales, run);
        let (dl, ml) = (d * scale, least * m);
        for (y, q) in out.iter_mut().zip(&q[run / 2 * 32..]) {
            *y = dl * f32::from(q >> (run % 2 * 4) & 15) - ml;
        }
    }
}

/// [256, 176] As Q4_K, with the elements' fifth bits before the rest.
fn q5_k(block: &[u8], out: &mut [f32]) {
    let (d, least) = (half(block, 0), half(block, 2));
    let (scales, high, q) = (&block[4..16], &block[16..48], &block[48..176]);
    for (run, out) in out.chunks_exact_mut(32).enumerate() {
        let (scale, m) = scale_and_least(scales, run);
        let (dl, ml) = (d * scale, least * m);
        for (y, (q, high)) in out.iter_mut().zip(q[run / 2 * 32..].iter().zip(high)) {
            let element = (q >> (run % 2 * 4) & 15) | (high >> run & 1) << 4;
            *y = dl * f32::from(element) - ml;
        }
    }
}

/// [256, 210] Four low bits of the elements; two high bits; scales of 16 elements; their scale.
/// Elements are around 32.
fn q6_k(block: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let d = half(block, 208);
    for (run, (out, scale)) in out.chunks_exact_mut(32).zip(scales.chunks_exact(2)).enumerate() {
        // 128 elements share 64 bytes of low bits and 32 of high ones, in four runs.
        let (half_block, part) = (run / 4, run % 4);
        let low = &low[half_block * 64 + part % 2 * 32..];
        let high = &high[half_block * 32..];
        for (i, (y, (low, high))) in out.iter_mut().zip(low.iter().zip(high)).enumerate() {
            let element = (low >> (part / 2 * 4) & 15) | (high >> (part * 2) & 3) << 4;
            let scale = f32::from(scale[i / 16].cast_signed());
            *y = d * scale * (f32::from(element) - 32.);
        }
    }
}
