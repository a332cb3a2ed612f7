//! The Rust types of elements, and views of bytes as elements.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::small_float::{
    Complex64, Complex128, F4E2M1, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0,
};
use crate::small_int::{I2, I4, U2, U4};
use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};

/// A Rust type that can be a tensor's element.
pub trait Element: NoUninit + CheckedBitPattern + Copy + Default + Send + Sync + 'static {
    /// The dtype that this Rust type stands for.
    const DTYPE: DType;
}

macro_rules! element {
    ($($t:ty => $d:ident),* $(,)?) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(
    f16 => F16, bf16 => BF16, f32 => F32, f64 => F64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, bool => Bool,
    F8E4M3FN => F8E4M3FN, F8E4M3FNUZ => F8E4M3FNUZ, F8E5M2 => F8E5M2, F8E5M2FNUZ => F8E5M2FNUZ,
    F8E8M0 => F8E8M0, F4E2M1 => F4E2M1, I4 => I4, U4 => U4, I2 => I2, U2 => U2,
    Complex64 => Complex64, Complex128 => Complex128,
);

/// Views bytes as elements of `T`.
pub(crate) fn cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    if bytes.is_empty() {
        return Ok(&[]);
    }
    bytemuck::checked::try_cast_slice(bytes).map_err(cast_error::<T>)
}

/// Views bytes as mutable elements of `T`.
pub(crate) fn cast_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T]> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::checked::try_cast_slice_mut(bytes).map_err(cast_error::<T>)
}

/// Fails unless every byte is a valid element.
pub(crate) fn check_bytes(dtype: DType, bytes: &[u8]) -> Result<()> {
    let good = match dtype {
        DType::Bool => bytes.iter().all(|&b| b < 2),
        DType::U2 => bytes.iter().all(|&b| b < 4),
        DType::U4 | DType::F4E2M1 => bytes.iter().all(|&b| b < 16),
        DType::I2 => bytes.iter().all(|b| (-2..2).contains(&b.cast_signed())),
        DType::I4 => bytes.iter().all(|b| (-8..8).contains(&b.cast_signed())),
        _ => true,
    };
    if good { Ok(()) } else { Err(bad_byte(dtype)) }
}

fn bad_byte(dtype: DType) -> Error {
    if dtype == DType::Bool { Error::BoolByte } else { Error::ElementByte { dtype } }
}

fn cast_error<T: Element>(error: bytemuck::checked::CheckedCastError) -> Error {
    match error {
        bytemuck::checked::CheckedCastError::InvalidBitPattern => bad_byte(T::DTYPE),
        bytemuck::checked::CheckedCastError::PodCastError(_) => {
            Error::Unaligned { dtype: T::DTYPE }
        }
    }
}
