//! Tensors that borrow their elements.

use super::Tensor;
use super::elements::{Elements, check_elements, check_len, readers};
use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::strings::StringTable;
use std::sync::Arc;

/// A borrowed, contiguous, row-major tensor: the input of an operator.
#[derive(Debug, Clone)]
pub struct TensorView<'a> {
    dtype: DType,
    shape: Shape,
    data: &'a [u8],
    owner: Option<&'a Arc<Buffer>>,
    table: Option<&'a StringTable>,
}

impl<'a> TensorView<'a> {
    /// A view of elements that fill `shape` in row-major order.
    ///
    /// # Errors
    /// [`Error::ByteLength`] when they do not.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, data: &'a [T]) -> Result<Self> {
        let shape = shape.into();
        let data: &[u8] = bytemuck::cast_slice(data);
        check_len(T::DTYPE, &shape, data.len())?;
        Ok(Self { dtype: T::DTYPE, shape, data, owner: None, table: None })
    }

    /// A view of raw bytes as elements of any dtype except strings, in row-major, native byte
    /// order.
    ///
    /// # Errors
    /// As [`Tensor::from_buffer`], and [`Error::Unaligned`] for bytes that are not aligned for the
    /// dtype.
    ///
    /// ```
    /// use lgp_memory::{DType, TensorView};
    /// let view = TensorView::from_bytes(DType::Bool, [2], &[0, 1])?;
    /// assert_eq!(view.as_slice::<bool>()?, [false, true]);
    /// assert!(TensorView::from_bytes(DType::Bool, [1], &[2]).is_err());
    /// # Ok::<(), lgp_memory::Error>(())
    /// ```
    pub fn from_bytes(dtype: DType, shape: impl Into<Shape>, data: &'a [u8]) -> Result<Self> {
        let shape = shape.into();
        check_elements(dtype, &shape, data)?;
        if !data.is_empty() && !data.as_ptr().addr().is_multiple_of(dtype.align()) {
            return Err(Error::Unaligned { dtype });
        }
        Ok(Self { dtype, shape, data, owner: None, table: None })
    }

    readers!('a);

    fn elements(&self) -> Elements<'a> {
        Elements { dtype: self.dtype, bytes: self.data, table: self.table }
    }

    /// An owned tensor: shares the bytes when the view is of a [`Tensor`], copies them otherwise.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn to_tensor(&self) -> Result<Tensor> {
        match self.owner {
            Some(data) => Ok(Tensor {
                dtype: self.dtype,
                shape: self.shape.clone(),
                data: Arc::clone(data),
                table: self.table.cloned(),
            }),
            None => Tensor::from_bytes(self.dtype, self.shape.clone(), self.data),
        }
    }

    /// A string tensor's elements as the indices that are stored; any other view is unchanged.
    #[must_use]
    pub fn as_numbers(&self) -> Self {
        let dtype = if self.dtype == DType::Str { DType::U32 } else { self.dtype };
        Self { dtype, table: None, owner: None, ..self.clone() }
    }
}

impl Tensor {
    /// A borrowed view of the whole tensor.
    #[must_use]
    pub fn view(&self) -> TensorView<'_> {
        TensorView {
            dtype: self.dtype,
            shape: self.shape.clone(),
            data: &self.data,
            owner: Some(&self.data),
            table: self.table.as_ref(),
        }
    }
}

impl<'a> From<&'a Tensor> for TensorView<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        tensor.view()
    }
}
