//! The elements that tensors and views have in common, and the methods that read them.

use crate::dtype::DType;
use crate::element::{Element, cast, check_bytes};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::strings::StringTable;

/// The elements of a tensor or a view.
#[derive(Clone, Copy)]
pub(super) struct Elements<'a> {
    pub(super) dtype: DType,
    pub(super) bytes: &'a [u8],
    /// The texts of string elements; without a table all texts are empty.
    pub(super) table: Option<&'a StringTable>,
}

impl<'a> Elements<'a> {
    pub(super) fn len(self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    pub(super) fn slice<T: Element>(self) -> Result<&'a [T]> {
        check_dtype::<T>(self.dtype)?;
        cast(self.bytes)
    }

    pub(super) fn strings(self) -> Result<Vec<&'a str>> {
        if self.dtype != DType::Str {
            return Err(Error::Strings);
        }
        let numbers: &[u32] = cast(self.bytes)?;
        Ok(numbers.iter().map(|&n| self.table.map_or("", |table| table.text(n))).collect())
    }
}

/// The public methods that read a type with the fields `dtype` and `shape` and a method `elements`.
/// They return borrows of the given lifetime, or of `self` without one.
macro_rules! readers {
    ($($life:lifetime)?) => {
        /// Element type.
        #[must_use]
        pub fn dtype(&self) -> DType {
            self.dtype
        }

        /// Dimensions.
        #[must_use]
        pub fn shape(&self) -> &Shape {
            &self.shape
        }

        /// Number of elements.
        #[must_use]
        pub fn len(&self) -> usize {
            self.elements().len()
        }

        /// Whether there are no elements.
        #[must_use]
        pub fn is_empty(&self) -> bool {
            self.elements().bytes.is_empty()
        }

        /// The raw bytes, row-major, native byte order.
        #[must_use]
        pub fn as_bytes(&self) -> &$($life)? [u8] {
            self.elements().bytes
        }

        /// The elements, row-major.
        ///
        /// # Errors
        /// [`Error::DType`] when the elements are not of the type `T`.
        pub fn as_slice<T: Element>(&self) -> Result<&$($life)? [T]> {
            self.elements().slice()
        }

        /// The texts of string elements, row-major.
        ///
        /// # Errors
        /// [`Error::Strings`] for elements of another dtype.
        pub fn strings(&self) -> Result<Vec<&$($life)? str>> {
            self.elements().strings()
        }

        /// The table that string elements index.
        #[must_use]
        pub fn string_table(&self) -> Option<&$($life)? StringTable> {
            self.elements().table
        }
    };
}
pub(super) use readers;

/// Fails unless the bytes are valid elements that fill the shape. Strings have no such bytes.
pub(super) fn check_elements(dtype: DType, shape: &Shape, bytes: &[u8]) -> Result<()> {
    check_len(dtype, shape, bytes.len())?;
    if dtype == DType::Str {
        return Err(Error::Strings);
    }
    check_bytes(dtype, bytes)
}

pub(super) fn check_dtype<T: Element>(given: DType) -> Result<()> {
    if T::DTYPE == given { Ok(()) } else { Err(Error::DType { expected: T::DTYPE, given }) }
}

pub(super) fn check_len(dtype: DType, shape: &Shape, given: usize) -> Result<()> {
    let expected = shape.byte_len(dtype)?;
    if expected == given {
        Ok(())
    } else {
        Err(Error::ByteLength { dtype, shape: shape.to_vec(), expected, given })
    }
}
