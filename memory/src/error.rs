//! Errors of shapes, dtypes and allocations.

use crate::dtype::DType;
use crate::segments::Shortage;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of shapes, dtypes and host memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor was read as a wrong element type.
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
    /// A reshape between shapes with different element counts.
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
    /// A byte is not a valid element of a dtype with fewer than eight bits.
    #[error("a byte is no {dtype}, which has {} bits", dtype.bits())]
    ElementByte {
        /// Element type.
        dtype: DType,
    },
    /// Bytes were given as elements of a string tensor, or strings were read from a tensor of
    /// another dtype.
    #[error("a tensor of strings is made of strings, not of bytes")]
    Strings,
    /// The bytes are not the packed form of that many strings.
    #[error("packed strings: {reason}")]
    Packed {
        /// What is wrong with them.
        reason: String,
    },
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
    /// The axes are not a permutation of a view's axes.
    #[error("{perm:?} does not name each of {rank} axes once")]
    Permutation {
        /// Axes given.
        perm: Vec<usize>,
        /// Axes there are.
        rank: usize,
    },
    /// The shape cannot be broadcast to the other one.
    #[error("cannot broadcast {from:?} to {to:?}")]
    Broadcast {
        /// Present dimensions.
        from: Vec<usize>,
        /// Wanted dimensions.
        to: Vec<usize>,
    },
    /// A slice exceeds its axis.
    #[error("{len} elements from {start} in steps of {step} leave axis {axis} of size {dim}")]
    Slice {
        /// Axis sliced.
        axis: usize,
        /// Its size; 0 when there is no such axis.
        dim: usize,
        /// First index.
        start: usize,
        /// Distance between indices.
        step: isize,
        /// Number of indices.
        len: usize,
    },
    /// A strided copy between byte slices that do not match its view.
    #[error("a copy from {source_bytes} to {target_bytes} bytes does not match its view")]
    CopyLength {
        /// Bytes to read from.
        source_bytes: usize,
        /// Bytes to write.
        target_bytes: usize,
    },
    /// A limit of segments is invalid.
    #[error("the limit {limit} is {given}, expected {expected}")]
    SegmentLimit {
        /// The limit's name.
        limit: &'static str,
        /// Its value.
        given: usize,
        /// The allowed values.
        expected: &'static str,
    },
    /// No segment can hold the range.
    #[error(
        "{bytes} bytes do not fit one segment, which has {segment_bytes_max} at most; split them"
    )]
    RangeTooLarge {
        /// Bytes asked for.
        bytes: usize,
        /// The largest segment.
        segment_bytes_max: usize,
    },
    /// There is no room for the range now.
    #[error("out of memory: cannot take {shortage}")]
    Shortage {
        /// The state of the memory, and its holders.
        shortage: Box<Shortage>,
        /// The reason why the source has no further segment; `None` if the budget was the limit.
        #[source]
        refusal: Option<Box<Error>>,
    },
    /// The range is not taken.
    #[error("range {serial} is not taken: it was given back, or is one of others")]
    NoSuchRange {
        /// The range's serial number.
        serial: u64,
    },
    /// A tensor cannot be stored on disk.
    #[error("a tensor cannot be kept on disk: {reason}")]
    Spill {
        /// The system's message.
        reason: String,
    },
    /// A log cannot be written or read.
    #[error("the log of memory failed: {reason}")]
    LogFile {
        /// The message of the file.
        reason: String,
    },
    /// A line does not belong to a log.
    #[error("no log of memory, line {line}: {reason}")]
    LogLine {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// An error of the device.
    #[error(transparent)]
    Device(#[from] lgp_hal::Error),
}

impl Error {
    /// Whether a device was lost: directly, or as the reason for a shortage.
    #[must_use]
    pub fn is_device_lost(&self) -> bool {
        matches!(self, Self::Device(lgp_hal::Error::DeviceLost { .. }))
    }

    pub(crate) fn spill(error: &std::io::Error) -> Self {
        Self::Spill { reason: error.to_string() }
    }
}
