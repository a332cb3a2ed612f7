//! Tensors and views from and to arrays of `ndarray`.

use super::{Tensor, TensorView};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::shape::Shape;
use ndarray::{ArrayD, ArrayViewD, IxDyn};

impl Tensor {
    /// Copies an array of any memory order into row-major order.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn from_array<T: Element>(array: ArrayViewD<'_, T>) -> Result<Self> {
        let shape = Shape::from(array.shape());
        match array.as_slice() {
            Some(data) => Self::from_slice(shape, data),
            None => Self::from_slice(shape, &array.iter().copied().collect::<Vec<_>>()),
        }
    }

    /// The tensor as an `ndarray` view, without copying.
    ///
    /// # Errors
    /// [`Error::DType`] when `T` is not the tensor's type.
    pub fn to_array_view<T: Element>(&self) -> Result<ArrayViewD<'_, T>> {
        ArrayViewD::from_shape(IxDyn(&self.shape), self.as_slice()?)
            .map_err(|_| Error::TooLarge { shape: self.shape.to_vec() })
    }

    /// The tensor copied to an owned array.
    ///
    /// # Errors
    /// [`Error::DType`] when `T` is not the tensor's type.
    pub fn to_array<T: Element>(&self) -> Result<ArrayD<T>> {
        Ok(self.to_array_view::<T>()?.to_owned())
    }
}

/// Borrows an array in standard (row-major, contiguous) order.
impl<'a, T: Element> TryFrom<ArrayViewD<'a, T>> for TensorView<'a> {
    type Error = Error;
    fn try_from(array: ArrayViewD<'a, T>) -> Result<Self> {
        let shape = Shape::from(array.shape());
        let data = array.to_slice().ok_or(Error::NotContiguous)?;
        Self::from_slice(shape, data)
    }
}
