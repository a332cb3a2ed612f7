//! What can be wrong with a shape, a dtype or an allocation.

use crate::dtype::DType;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of shapes, dtypes and host memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor was read as another element type than it has.
    #[error("dtype is {given}, expected {expected}")]
    DType {
        /// What the caller asked for.
        expected: DType,
        /// What the tensor holds.
        given: DType,
    },
    /// The bytes do not match dtype and shape.
    #[error("{given} bytes given, but {dtype} of shape {shape:?} takes {expected}")]
    ByteLength {
        /// Element type.
        dtype: DType,
        /// Dimensions.
        shape: Vec<usize>,
        /// Bytes that dtype and shape take.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// The element or byte count does not fit the address space.
    #[error("shape {shape:?} has more elements than can be addressed")]
    TooLarge {
        /// Dimensions.
        shape: Vec<usize>,
    },
    /// A reshape between shapes of different element counts.
    #[error("cannot reshape {from:?} to {to:?}: the element counts differ")]
    Reshape {
        /// Present dimensions.
        from: Vec<usize>,
        /// Wanted dimensions.
        to: Vec<usize>,
    },
    /// A byte of a bool tensor is neither 0 nor 1.
    #[error("bool data has bytes other than 0 and 1")]
    BoolByte,
    /// Unaligned bytes were viewed as elements.
    #[error("data is not aligned for {dtype}")]
    Unaligned {
        /// Element type.
        dtype: DType,
    },
    /// A strided array was borrowed as a contiguous tensor.
    #[error("the array is not contiguous in row-major order; copy it first")]
    NotContiguous,
    /// The host has no memory for an allocation.
    #[error("cannot allocate {bytes} bytes of host memory")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
}
