//! Element types.

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements. Elements of fewer than eight bits take a whole byte in memory;
/// only files pack them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the field's own")]
pub enum DType {
    F16,
    BF16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    F4E2M1,
    I4,
    U4,
    I2,
    U2,
    Complex64,
    Complex128,
    Str,
}

impl DType {
    /// Every dtype whose elements are bytes: all but strings.
    pub const ALL: [Self; 25] = [
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool,
        Self::F8E4M3FN,
        Self::F8E4M3FNUZ,
        Self::F8E5M2,
        Self::F8E5M2FNUZ,
        Self::F8E8M0,
        Self::F4E2M1,
        Self::I4,
        Self::U4,
        Self::I2,
        Self::U2,
        Self::Complex64,
        Self::Complex128,
    ];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F8E4M3FN | Self::F8E4M3FNUZ | Self::F8E5M2 | Self::F8E5M2FNUZ | Self::F8E8M0 => 1,
            Self::F4E2M1 | Self::I4 | Self::U4 | Self::I2 | Self::U2 => 1,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 2,
            // A string's element is the index of its text in the tensor's table.
            Self::F32 | Self::I32 | Self::U32 | Self::Str => 4,
            Self::F64 | Self::I64 | Self::U64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// The multiple of bytes at which an element may begin.
    #[must_use]
    pub const fn align(self) -> usize {
        match self {
            // A complex number is two numbers.
            Self::Complex64 | Self::Complex128 => self.size() / 2,
            _ => self.size(),
        }
    }

    /// Bits of a packed element, as in files.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::F4E2M1 | Self::I4 | Self::U4 => 4,
            Self::I2 | Self::U2 => 2,
            Self::Complex128 => 128,
            Self::F64 | Self::I64 | Self::U64 | Self::Complex64 => 64,
            Self::F32 | Self::I32 | Self::U32 | Self::Str => 32,
            Self::F16 | Self::BF16 | Self::I16 | Self::U16 => 16,
            _ => 8,
        }
    }

    /// Whether some byte values are invalid: those of bools, and of elements of fewer than eight
    /// bits.
    #[must_use]
    pub const fn is_checked(self) -> bool {
        matches!(self, Self::Bool) || self.bits() < 8
    }

    /// The short name, as Rust writes it: `f32`, `bf16`, `bool`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bool => "bool",
            Self::F8E4M3FN => "f8e4m3fn",
            Self::F8E4M3FNUZ => "f8e4m3fnuz",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E5M2FNUZ => "f8e5m2fnuz",
            Self::F8E8M0 => "f8e8m0",
            Self::F4E2M1 => "f4e2m1",
            Self::I4 => "i4",
            Self::U4 => "u4",
            Self::I2 => "i2",
            Self::U2 => "u2",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::Str => "string",
        }
    }

    /// Whether operators compute with these floating-point numbers; smaller floats are only stored
    /// and converted.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
