//! Elements that collectives carry, as bytes and as numbers.

use half::{bf16, f16};
use lgp_memory::{Element, Reduction};

/// Elements that the collectives of a [`Ring`](crate::Ring) take: f32, f64, f16, bf16, i32 and i64.
pub trait RingElement: Word {
    /// The type of partial sums: f32 for f16 and bf16, otherwise the same type.
    type Wide: Sum;
    /// The elements themselves, if they can hold partial sums.
    #[doc(hidden)]
    fn as_wide(elements: &mut [Self]) -> Option<&mut [Self::Wide]>;
    #[doc(hidden)]
    fn widen(self) -> Self::Wide;
    #[doc(hidden)]
    fn narrow(wide: Self::Wide) -> Self;
}

/// Elements as they travel: little-endian.
pub trait Word: Element {
    /// Writes elements; `bytes` has room for them.
    #[doc(hidden)]
    fn put(elements: &[Self], bytes: &mut [u8]);
    /// Reads elements; `bytes` has as many.
    #[doc(hidden)]
    fn get(bytes: &[u8], elements: &mut [Self]);
}

/// Elements that are summed and compared.
pub trait Sum: Word {
    /// Combines the sum so far, which came as bytes, with a rank's own elements into the next sum.
    #[doc(hidden)]
    fn join(how: Reduction, bytes: &[u8], own: &mut [Self]);
    /// Divides sums by the number of ranks.
    #[doc(hidden)]
    fn divide(sums: &mut [Self], ranks: u16);
}

macro_rules! word {
    ($($t:ty),*) => { $(
        impl Word for $t {
            fn put(elements: &[Self], bytes: &mut [u8]) {
                let (words, _) = bytes.as_chunks_mut::<{ size_of::<$t>() }>();
                for (word, element) in words.iter_mut().zip(elements) {
                    *word = element.to_le_bytes();
                }
            }
            fn get(bytes: &[u8], elements: &mut [Self]) {
                let (words, _) = bytes.as_chunks::<{ size_of::<$t>() }>();
                for (word, element) in words.iter().zip(elements) {
                    *element = <$t>::from_le_bytes(*word);
                }
            }
        }
    )* };
}
word!(f16, bf16, f32, f64, i32, i64);

/// Both reductions of a type: `$add` of the sum so far and the own element; which of both is larger
/// is decided as `Group` of `lgp-compute` does it, so that both agree to the bit.
macro_rules! sum {
    ($($t:ty, $add:expr, $number:ty);*) => { $(
        impl Sum for $t {
            fn join(how: Reduction, bytes: &[u8], own: &mut [Self]) {
                fn each(bytes: &[u8], own: &mut [$t], f: impl Fn($t, $t) -> $t) {
                    let (words, _) = bytes.as_chunks::<{ size_of::<$t>() }>();
                    for (word, own) in words.iter().zip(own) {
                        *own = f(<$t>::from_le_bytes(*word), *own);
                    }
                }
                #[allow(clippy::eq_op, reason = "only NaN is not itself; integers share the code")]
                let nan = |x: $t| x != x;
                match how {
                    Reduction::Sum | Reduction::Mean => each(bytes, own, $add),
                    Reduction::Max => {
                        each(bytes, own, |sum, own| if nan(sum) || sum > own { sum } else { own });
                    }
                    Reduction::Min => {
                        each(bytes, own, |sum, own| if nan(sum) || own > sum { sum } else { own });
                    }
                }
            }
            fn divide(sums: &mut [Self], ranks: u16) {
                for sum in sums {
                    *sum /= <$number>::from(ranks);
                }
            }
        }
        impl RingElement for $t {
            type Wide = $t;
            fn as_wide(elements: &mut [Self]) -> Option<&mut [$t]> {
                Some(elements)
            }
            fn widen(self) -> $t {
                self
            }
            fn narrow(wide: $t) -> Self {
                wide
            }
        }
    )* };
}
sum!(
    f32, |sum, own| sum + own, f32;
    f64, |sum, own| sum + own, f64;
    i32, i32::wrapping_add, i32;
    i64, i64::wrapping_add, i64
);

macro_rules! half {
    ($($t:ty),*) => { $(
        impl RingElement for $t {
            type Wide = f32;
            fn as_wide(_: &mut [Self]) -> Option<&mut [f32]> {
                None
            }
            fn widen(self) -> f32 {
                self.to_f32()
            }
            fn narrow(wide: f32) -> Self {
                Self::from_f32(wide)
            }
        }
    )* };
}
half!(f16, bf16);
