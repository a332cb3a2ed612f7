//! Integers of two and four bits, one per byte, sign-extended so that the byte reads as the value.
//! Files pack them; see [`pack`] and [`unpack`].

use crate::dtype::DType;
use bytemuck::{CheckedBitPattern, NoUninit, Zeroable};

macro_rules! small_int {
    ($($(#[$doc:meta])* $name:ident($t:ty): $low:literal..=$high:literal, $bits:literal bits),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name($t);

        impl $name {
            /// The smallest value.
            pub const MIN: Self = Self($low);
            /// The largest value.
            pub const MAX: Self = Self($high);

            /// Keeps the low bits, as casts between integers do.
            #[must_use]
            #[inline]
            pub const fn wrapping(value: $t) -> Self {
                Self((value << (8 - $bits)) >> (8 - $bits))
            }

            /// The value.
            #[must_use]
            #[inline]
            pub const fn get(self) -> $t {
                self.0
            }
        }

        impl From<$name> for $t {
            #[inline]
            fn from(x: $name) -> Self {
                x.0
            }
        }

        // SAFETY: one byte, transparent: no padding, no uninitialised part, no interior mutability.
        unsafe impl NoUninit for $name {}
        // SAFETY: zero is within the range.
        unsafe impl Zeroable for $name {}
        // SAFETY: `Bits` has the size and alignment of the type, and only bytes within the range,
        // which are the type's values, are accepted.
        unsafe impl CheckedBitPattern for $name {
            type Bits = $t;
            #[inline]
            fn is_valid_bit_pattern(bits: &$t) -> bool {
                ($low..=$high).contains(bits)
            }
        }
    )* };
}

small_int!(
    /// A signed integer of four bits, -8 to 7.
    I4(i8): -8..=7, 4 bits,
    /// An unsigned integer of four bits, 0 to 15.
    U4(u8): 0..=15, 4 bits,
    /// A signed integer of two bits, -2 to 1.
    I2(i8): -2..=1, 2 bits,
    /// An unsigned integer of two bits, 0 to 3.
    U2(u8): 0..=3, 2 bits,
);

/// Unpacks elements to one byte each, as tensors hold them; the first element is in the lowest
/// bits. Elements of whole bytes are copied. Stops at the shorter of input and output.
pub fn unpack(dtype: DType, packed: &[u8], out: &mut [u8]) {
    let bits = dtype.bits();
    let Some(per_byte) = per_byte(bits) else {
        let n = packed.len().min(out.len());
        out[..n].copy_from_slice(&packed[..n]);
        return;
    };
    let signed = matches!(dtype, DType::I4 | DType::I2);
    let shift = 8 - bits;
    for (out, &byte) in out.chunks_mut(per_byte).zip(packed) {
        let mut rest = byte;
        for o in out {
            let high = rest << shift;
            *o = if signed { (high.cast_signed() >> shift).cast_unsigned() } else { high >> shift };
            rest = rest.checked_shr(bits).unwrap_or(0);
        }
    }
}

/// Packs elements of one byte each as files hold them: the first in the lowest bits, the last byte
/// padded with zeros. Elements of whole bytes are copied.
#[must_use]
pub fn pack(dtype: DType, elements: &[u8]) -> Vec<u8> {
    let bits = dtype.bits();
    let Some(per_byte) = per_byte(bits) else { return elements.to_vec() };
    let mask = 0xff >> (8 - bits);
    let byte = |chunk: &[u8]| {
        chunk.iter().rev().fold(0u8, |byte, &x| byte.checked_shl(bits).unwrap_or(0) | (x & mask))
    };
    elements.chunks(per_byte).map(byte).collect()
}

/// The number of elements that share a byte; `None` if elements are whole bytes.
const fn per_byte(bits: u32) -> Option<usize> {
    match bits {
        2 => Some(4),
        4 => Some(2),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_bits_are_kept() {
        assert_eq!([9, 8, 7, -8, -9].map(|x| I4::wrapping(x).get()), [-7, -8, 7, -8, 7]);
        assert_eq!([16, 15, 255].map(|x| U4::wrapping(x).get()), [0, 15, 15]);
        assert_eq!([2, 1, -2, -3].map(|x| I2::wrapping(x).get()), [-2, 1, -2, 1]);
        assert_eq!([4, 3, 7].map(|x| U2::wrapping(x).get()), [0, 3, 3]);
    }

    #[test]
    fn elements_survive_packing() {
        let cases: [(DType, &[u8], &[u8]); 5] = [
            (DType::I4, &[7, 0xf8, 0xff], &[0x87, 0x0f]),
            (DType::U4, &[1, 15, 2], &[0xf1, 0x02]),
            (DType::I2, &[1, 0xfe, 0xff, 0, 1], &[0x39, 0x01]),
            (DType::U2, &[1, 2, 3, 0, 1], &[0x39, 0x01]),
            (DType::U8, &[9, 200], &[9, 200]),
        ];
        for (dtype, elements, packed) in cases {
            assert_eq!(pack(dtype, elements), packed, "{dtype}");
            let mut out = vec![0x55; elements.len()];
            unpack(dtype, packed, &mut out);
            assert_eq!(out, elements, "{dtype}");
        }
    }
}
