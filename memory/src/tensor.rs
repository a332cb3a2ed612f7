//! Contiguous row-major tensors on the host, owned and borrowed.

mod arrays;
mod elements;
#[cfg(test)]
mod tests;
mod texts;
mod view;

pub use view::TensorView;

use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::element::{Element, cast_mut};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::shape::Shape;
use crate::strings::StringTable;
use elements::{Elements, check_dtype, check_elements, check_len, readers};
use std::sync::Arc;

/// An owned, contiguous, row-major tensor on an aligned buffer.
///
/// Cloning shares the bytes; writing through [`Tensor::as_mut_slice`] copies them first if they
/// are shared.
#[derive(Debug, Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Arc<Buffer>,
    /// The texts of a string tensor; without a table all texts are empty.
    table: Option<StringTable>,
}

impl Tensor {
    /// A tensor of zeros (`false` for bool).
    ///
    /// # Errors
    /// [`Error::TooLarge`] or [`Error::OutOfMemory`].
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let data = Arc::new(Buffer::zeroed(shape.byte_len(dtype)?)?);
        Ok(Self { dtype, shape, data, table: None })
    }

    /// A tensor on a buffer of a pool. Its elements are initialised but unspecified, except that
    /// bools are `false` and elements of fewer than eight bits 0.
    ///
    /// # Errors
    /// [`Error::TooLarge`] or [`Error::OutOfMemory`].
    pub fn pooled(pool: &Pool, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let data = pool.alloc(shape.byte_len(dtype)?)?;
        Ok(Self::unspecified(dtype, shape, data))
    }

    /// Like [`Tensor::pooled`], for brief use: see [`Pool::alloc_briefly`].
    ///
    /// # Errors
    /// As [`Tensor::pooled`].
    pub fn scratch(pool: &Pool, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        let data = pool.alloc_briefly(shape.byte_len(dtype)?)?;
        Ok(Self::unspecified(dtype, shape, data))
    }

    fn unspecified(dtype: DType, shape: Shape, mut data: Buffer) -> Self {
        if dtype.is_checked() {
            // Not every byte is a valid element, so the buffer's old content must not be read.
            data.fill(0);
        }
        Self { dtype, shape, data: Arc::new(data), table: None }
    }

    /// A tensor on a buffer that already holds its elements in row-major, native byte order.
    ///
    /// # Errors
    /// [`Error::ByteLength`] unless the buffer has exactly the bytes of dtype and shape;
    /// [`Error::BoolByte`] for a bool that is neither 0 nor 1, [`Error::ElementByte`] for a byte
    /// that is no element of fewer than eight bits, [`Error::Strings`] for strings.
    pub fn from_buffer(dtype: DType, shape: impl Into<Shape>, data: Buffer) -> Result<Self> {
        let shape = shape.into();
        check_elements(dtype, &shape, &data)?;
        Ok(Self { dtype, shape, data: Arc::new(data), table: None })
    }

    /// Copies raw little-endian element bytes.
    ///
    /// # Errors
    /// As [`Tensor::from_buffer`].
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Self> {
        let shape = shape.into();
        check_len(dtype, &shape, bytes.len())?;
        let mut data = Buffer::zeroed(bytes.len())?;
        data.copy_from_slice(bytes);
        Self::from_buffer(dtype, shape, data)
    }

    /// Copies elements.
    ///
    /// # Errors
    /// [`Error::ByteLength`] when the slice does not fill the shape.
    ///
    /// ```
    /// let t = lgp_memory::Tensor::from_slice([2, 2], &[1f32, 2., 3., 4.])?;
    /// assert_eq!(t.shape().dims(), [2, 2]);
    /// # Ok::<(), lgp_memory::Error>(())
    /// ```
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, data: &[T]) -> Result<Self> {
        Self::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(data))
    }

    /// A tensor of rank 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn scalar<T: Element>(value: T) -> Result<Self> {
        Self::from_slice(Shape::default(), &[value])
    }

    readers!();

    fn elements(&self) -> Elements<'_> {
        Elements { dtype: self.dtype, bytes: &self.data, table: self.table.as_ref() }
    }

    /// The elements for writing; shared bytes are copied first.
    ///
    /// # Errors
    /// [`Error::DType`], or [`Error::OutOfMemory`] for the copy.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        check_dtype::<T>(self.dtype)?;
        cast_mut(self.as_bytes_mut()?)
    }

    /// The raw bytes for writing; shared bytes are copied first. Writing an invalid byte to a bool
    /// tensor, or to one of fewer than eight bits per element, makes its elements unreadable.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] for the copy.
    pub fn as_bytes_mut(&mut self) -> Result<&mut [u8]> {
        if Arc::get_mut(&mut self.data).is_none() {
            let mut copy = Buffer::zeroed(self.data.len())?;
            copy.copy_from_slice(&self.data);
            self.data = Arc::new(copy);
        }
        match Arc::get_mut(&mut self.data) {
            Some(data) => Ok(data),
            None => Err(Error::OutOfMemory { bytes: self.shape.byte_len(self.dtype)? }),
        }
    }

    /// The same bytes with another shape, without copying.
    ///
    /// # Errors
    /// [`Error::Reshape`] when the element counts differ.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.elements()? != self.len() {
            return Err(Error::Reshape { from: self.shape.to_vec(), to: shape.to_vec() });
        }
        Ok(Self { shape, ..self.clone() })
    }

    /// The tensor for long-term use. Bytes in an arena, which would keep the whole arena alive, are
    /// copied to a buffer of the pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn outside_arena(self, pool: &Pool) -> Result<Self> {
        if !self.data.is_in_arena() {
            return Ok(self);
        }
        let mut data = pool.alloc(self.data.len())?;
        data.copy_from_slice(&self.data);
        Ok(Self { data: Arc::new(data), ..self })
    }
}

/// Two tensors are equal when dtype, shape and bytes (or texts) are: NaN equals the same NaN.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        if self.dtype != other.dtype || self.shape != other.shape {
            return false;
        }
        match (self.strings(), other.strings()) {
            (Ok(a), Ok(b)) => a == b,
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

/// A tensor with the name of its model input or output.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// Input or output name.
    pub name: String,
    /// The value.
    pub tensor: Tensor,
}

impl NamedTensor {
    /// Pairs a name with a tensor.
    #[must_use]
    pub fn new(name: impl Into<String>, tensor: Tensor) -> Self {
        Self { name: name.into(), tensor }
    }
}
