//! Tensors of strings, and the form of tensors for transport.

use super::Tensor;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Shape;
use crate::strings::{self, StringTable};
use std::borrow::Cow;

impl Tensor {
    /// A tensor of strings.
    ///
    /// # Errors
    /// [`Error::ByteLength`] when the texts do not fill the shape.
    ///
    /// ```
    /// let t = lgp_memory::Tensor::from_strings([2], &["cat", "dog"])?;
    /// assert_eq!(t.strings()?, ["cat", "dog"]);
    /// # Ok::<(), lgp_memory::Error>(())
    /// ```
    pub fn from_strings<S: AsRef<str>>(shape: impl Into<Shape>, texts: &[S]) -> Result<Self> {
        let (table, numbers) = StringTable::of(texts);
        let numbers = Self::from_slice(shape, &numbers)?;
        Ok(Self { dtype: DType::Str, table: Some(table), ..numbers })
    }

    /// A string tensor with the same texts, as indices into `table`; texts that the table lacks
    /// become empty.
    ///
    /// # Errors
    /// [`Error::Strings`] for a tensor of another dtype.
    pub fn with_table(&self, table: &StringTable) -> Result<Self> {
        let numbers: Vec<u32> =
            self.strings()?.iter().map(|text| table.find(text).unwrap_or(u32::MAX)).collect();
        let numbers = Self::from_slice(self.shape.clone(), &numbers)?;
        Ok(Self { dtype: DType::Str, table: Some(table.clone()), ..numbers })
    }

    /// Sets the table of a string tensor that has none: operators that move elements do not know
    /// tables.
    #[must_use]
    pub fn or_table(mut self, table: &StringTable) -> Self {
        if self.dtype == DType::Str && self.table.is_none() {
            self.table = Some(table.clone());
        }
        self
    }

    /// The elements' bytes for transport: the raw bytes, or for strings each text after its length
    /// in bytes, a little-endian u32. The Open Inference Protocol uses the same form.
    ///
    /// ```
    /// let t = lgp_memory::Tensor::from_strings([2], &["ab", ""])?;
    /// assert_eq!(*t.packed(), [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
    /// assert_eq!(lgp_memory::Tensor::from_packed(t.dtype(), [2], &t.packed())?, t);
    /// # Ok::<(), lgp_memory::Error>(())
    /// ```
    #[must_use]
    pub fn packed(&self) -> Cow<'_, [u8]> {
        match self.strings() {
            Ok(texts) => Cow::Owned(strings::pack(&texts)),
            Err(_) => Cow::Borrowed(self.as_bytes()),
        }
    }

    /// The number of bytes of [`Tensor::packed`].
    #[must_use]
    pub fn packed_len(&self) -> usize {
        match self.strings() {
            Ok(texts) => strings::packed_len(&texts),
            Err(_) => self.as_bytes().len(),
        }
    }

    /// A tensor from the bytes of [`Tensor::packed`].
    ///
    /// # Errors
    /// As [`Tensor::from_bytes`], and [`Error::Packed`] for bytes that do not hold one text per
    /// element.
    pub fn from_packed(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Self> {
        if dtype != DType::Str {
            return Self::from_bytes(dtype, shape, bytes);
        }
        let shape = shape.into();
        let texts = strings::unpack(bytes, shape.elements()?)?;
        Self::from_strings(shape, &texts)
    }
}
