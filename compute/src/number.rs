//! Arithmetic that integers and floats share, and choosing a Rust type by dtype.

use lgp_memory::Element;

/// A numeric element. Integers wrap.
pub(crate) trait Number: Element + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// The quotient; integers truncate. A zero divisor gives 0; callers refuse zero divisors.
    fn div(self, other: Self) -> Self;
    fn pow(self, other: Self) -> Self;
    /// C's remainder: the sign is the dividend's. A zero divisor as for `div`.
    fn rem(self, other: Self) -> Self;
    /// Python's remainder: the sign is the divisor's. A zero divisor as for `div`.
    fn modulo(self, other: Self) -> Self;
    fn abs(self) -> Self;
    fn neg(self) -> Self;
    fn sign(self) -> Self;
    /// A count as an element.
    fn count(n: usize) -> Self;
    /// Whether division by this number is an error.
    fn is_integer_zero(self) -> bool;

    /// The smaller; a NaN wins.
    #[inline(always)]
    #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
    fn least(self, other: Self) -> Self {
        if self < other || self != self { self } else { other }
    }

    /// The larger; a NaN wins.
    #[inline(always)]
    #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
    fn most(self, other: Self) -> Self {
        if self > other || self != self { self } else { other }
    }
}

macro_rules! integer {
    ($signed:ident: $($t:ty),*) => { $(
        #[allow(
            clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
            reason = "a power with a negative exponent rounds to 0, 1 or -1; counts wrap like sums"
        )]
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn div(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_div(other) }
            }
            fn pow(self, other: Self) -> Self {
                match u32::try_from(other) {
                    Ok(n) => self.wrapping_pow(n),
                    Err(_) => (self as f64).powf(other as f64) as Self,
                }
            }
            fn rem(self, other: Self) -> Self {
                if other == 0 { 0 } else { self.wrapping_rem(other) }
            }
            fn modulo(self, other: Self) -> Self {
                let r = self.rem(other);
                if r != 0 && (r < 0) != (other < 0) { r.wrapping_add(other) } else { r }
            }
            fn abs(self) -> Self { integer!(@abs $signed self) }
            fn neg(self) -> Self { self.wrapping_neg() }
            fn sign(self) -> Self { integer!(@sign $signed self) }
            fn count(n: usize) -> Self { n as Self }
            fn is_integer_zero(self) -> bool { self == 0 }
        }
    )* };
    (@abs signed $x:ident) => { $x.wrapping_abs() };
    (@abs unsigned $x:ident) => { $x };
    (@sign signed $x:ident) => { $x.signum() };
    (@sign unsigned $x:ident) => { $x.min(1) };
}
#[allow(unused_comparisons, reason = "the same body serves unsigned integers")]
mod unsigned {
    use super::Number;
    integer!(unsigned: u8, u16, u32, u64);
}
integer!(signed: i8, i16, i32, i64);

macro_rules! floats {
    ($($t:ty),*) => { $(
        #[allow(clippy::cast_precision_loss, reason = "counts beyond 2^24 need no last digit")]
        impl Number for $t {
            const ZERO: Self = 0.;
            const ONE: Self = 1.;
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn div(self, other: Self) -> Self { self / other }
            #[inline(always)]
            fn pow(self, other: Self) -> Self {
                // Squares are by far the most frequent powers, and this product is exact.
                if other == 2. { self * self } else { self.powf(other) }
            }
            fn rem(self, other: Self) -> Self { self % other }
            fn modulo(self, other: Self) -> Self {
                let r = self % other;
                if r != 0. && (r < 0.) != (other < 0.) { r + other } else { r }
            }
            #[inline(always)]
            fn abs(self) -> Self { <$t>::abs(self) }
            #[inline(always)]
            fn neg(self) -> Self { -self }
            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0. { 1. } else if self < 0. { -1. } else { self }
            }
            fn count(n: usize) -> Self { n as Self }
            fn is_integer_zero(self) -> bool { false }
        }
    )* };
}
floats!(f32, f64);

/// Evaluates a fallible expression with a type name bound to a dtype's Rust type; any other
/// dtype is an `Unsupported` error.
macro_rules! with_type {
    ($dtype:expr, number $T:ident => $body:expr) => {
        $crate::number::with_type!($dtype, [
            F32 f32, F64 f64, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64
        ] $T => $body)
    };
    ($dtype:expr, real $T:ident => $body:expr) => {
        $crate::number::with_type!($dtype, [F32 f32, F64 f64] $T => $body)
    };
    ($dtype:expr, [$($d:ident $t:ty),*] $T:ident => $body:expr) => {
        match $dtype {
            $(lgp_memory::DType::$d => { type $T = $t; $body })*
            other => Err($crate::Error::unsupported(format!("dtype {other}"))),
        }
    };
}
pub(crate) use with_type;
