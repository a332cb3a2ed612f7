//! Contiguous row-major tensors on the host, owned and borrowed.

use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::element::{Element, cast, cast_mut, check_bytes};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::shape::Shape;
use crate::strings::{self, StringTable};
use ndarray::{ArrayD, ArrayViewD, IxDyn};
use std::borrow::Cow;
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
        check_len(dtype, &shape, data.len())?;
        if dtype == DType::Str {
            return Err(Error::Strings);
        }
        check_bytes(dtype, &data)?;
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

    /// The texts of a string tensor, row-major.
    ///
    /// # Errors
    /// [`Error::Strings`] for a tensor of another dtype.
    pub fn strings(&self) -> Result<Vec<&str>> {
        texts(self.dtype, &self.data, self.table.as_ref())
    }

    /// The table that a string tensor's elements index.
    #[must_use]
    pub fn string_table(&self) -> Option<&StringTable> {
        self.table.as_ref()
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

    /// A tensor of rank 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn scalar<T: Element>(value: T) -> Result<Self> {
        Self::from_slice(Shape::default(), &[value])
    }

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
        self.data.len() / self.dtype.size()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The raw bytes, row-major, native byte order.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.data
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// [`Error::DType`] when `T` is not the tensor's type.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        check_dtype::<T>(self.dtype)?;
        cast(&self.data)
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
        check_len(dtype, &shape, data.len())?;
        if dtype == DType::Str {
            return Err(Error::Strings);
        }
        if !data.is_empty() && !data.as_ptr().addr().is_multiple_of(dtype.align()) {
            return Err(Error::Unaligned { dtype });
        }
        check_bytes(dtype, data)?;
        Ok(Self { dtype, shape, data, owner: None, table: None })
    }

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
        self.data.len() / self.dtype.size()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The raw bytes, row-major, native byte order.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.data
    }

    /// The elements, row-major.
    ///
    /// # Errors
    /// [`Error::DType`] when `T` is not the view's type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        check_dtype::<T>(self.dtype)?;
        cast(self.data)
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

    /// The texts of a string tensor, row-major.
    ///
    /// # Errors
    /// [`Error::Strings`] for a view of another dtype.
    pub fn strings(&self) -> Result<Vec<&'a str>> {
        texts(self.dtype, self.data, self.table)
    }

    /// The table that a string tensor's elements index.
    #[must_use]
    pub fn string_table(&self) -> Option<&'a StringTable> {
        self.table
    }

    /// A string tensor's elements as the indices that are stored; any other view is unchanged.
    #[must_use]
    pub fn as_numbers(&self) -> Self {
        let dtype = if self.dtype == DType::Str { DType::U32 } else { self.dtype };
        Self { dtype, table: None, owner: None, ..self.clone() }
    }
}

impl<'a> From<&'a Tensor> for TensorView<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        tensor.view()
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

fn texts<'a>(dtype: DType, data: &'a [u8], table: Option<&'a StringTable>) -> Result<Vec<&'a str>> {
    if dtype != DType::Str {
        return Err(Error::Strings);
    }
    let numbers: &[u32] = cast(data)?;
    Ok(numbers.iter().map(|&n| table.map_or("", |table| table.text(n))).collect())
}

fn check_dtype<T: Element>(given: DType) -> Result<()> {
    if T::DTYPE == given { Ok(()) } else { Err(Error::DType { expected: T::DTYPE, given }) }
}

fn check_len(dtype: DType, shape: &Shape, given: usize) -> Result<()> {
    let expected = shape.byte_len(dtype)?;
    if expected == given {
        Ok(())
    } else {
        Err(Error::ByteLength { dtype, shape: shape.to_vec(), expected, given })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn elements_fill_the_shape_exactly() {
        for (dims, n, ok) in [
            (vec![2, 3], 6, true),
            (vec![], 1, true),
            (vec![0, 9], 0, true),
            (vec![2, 3], 5, false),
        ] {
            let made = Tensor::from_slice(dims.clone(), &vec![1i32; n]);
            assert_eq!(made.is_ok(), ok, "{dims:?} {n}");
        }
        let error = Tensor::from_slice([2, 3], &[0f32; 5]).unwrap_err().to_string();
        assert_eq!(error, "20 bytes given, but f32 of shape [2, 3] takes 24");
    }

    #[test]
    fn sizes_that_overflow_are_errors() {
        for dims in [vec![usize::MAX], vec![1 << 40, 1 << 40], vec![isize::MAX.unsigned_abs()]] {
            let made = Tensor::zeros(DType::F32, dims.clone());
            assert!(matches!(made, Err(Error::TooLarge { .. })), "{dims:?}");
        }
    }

    #[test]
    fn reading_as_another_dtype_is_an_error() {
        let t = Tensor::scalar(1f32).unwrap();
        let error = t.as_slice::<i32>().unwrap_err().to_string();
        assert_eq!(error, "dtype is f32, expected i32");
    }

    #[test]
    fn bools_are_zero_or_one() {
        assert_eq!(Tensor::from_bytes(DType::Bool, [2], &[0, 2]), Err(Error::BoolByte));
        let pool = Pool::new();
        Tensor::pooled(&pool, DType::U8, [64]).unwrap().as_bytes_mut().unwrap().fill(9);
        let t = Tensor::pooled(&pool, DType::Bool, [64]).unwrap();
        assert_eq!(pool.stats().hits, 1);
        assert_eq!(t.as_slice::<bool>().unwrap(), [false; 64]);
    }

    #[test]
    fn writing_to_a_clone_leaves_the_original() {
        let a = Tensor::from_slice([2], &[1u8, 2]).unwrap();
        let mut b = a.clone();
        assert_eq!(a.as_bytes().as_ptr(), b.as_bytes().as_ptr());
        b.as_mut_slice::<u8>().unwrap()[0] = 9;
        assert_eq!(a.as_slice::<u8>().unwrap(), [1, 2]);
        assert_eq!(b.as_slice::<u8>().unwrap(), [9, 2]);
    }

    #[test]
    fn reshaping_shares_the_bytes() {
        let a = Tensor::from_slice([2, 3], &[0i64; 6]).unwrap();
        let b = a.reshape([3, 2]).unwrap();
        assert_eq!(a.as_bytes().as_ptr(), b.as_bytes().as_ptr());
        assert!(matches!(a.reshape([4]), Err(Error::Reshape { .. })));
    }

    #[test]
    fn arrays_go_in_and_out() {
        let a = array![[1f32, 2., 3.], [4., 5., 6.]];
        let t = Tensor::from_array(a.t().into_dyn()).unwrap();
        assert_eq!(t.shape().dims(), [3, 2]);
        assert_eq!(t.as_slice::<f32>().unwrap(), [1., 4., 2., 5., 3., 6.]);
        assert_eq!(t.to_array::<f32>().unwrap(), a.t().into_dyn());
        assert!(matches!(TensorView::try_from(a.t().into_dyn()), Err(Error::NotContiguous)));
        let view = TensorView::try_from(a.view().into_dyn()).unwrap();
        assert_eq!(view.shape().dims(), [2, 3]);
    }

    #[test]
    fn views_of_tensors_share_and_others_copy() {
        let t = Tensor::from_slice([2], &[1f32, 2.]).unwrap();
        assert_eq!(t.view().to_tensor().unwrap().as_bytes().as_ptr(), t.as_bytes().as_ptr());
        let data = [1f32, 2.];
        let copied = TensorView::from_slice([2], &data).unwrap().to_tensor().unwrap();
        assert_eq!(copied, t);
    }

    #[test]
    fn bytes_are_viewed_where_they_can_be_elements() {
        let data = [1f32, 2.];
        let bytes: &[u8] = bytemuck::cast_slice(&data);
        let view = TensorView::from_bytes(DType::F32, [2], bytes).unwrap();
        assert_eq!(view.as_slice::<f32>().unwrap().as_ptr(), data.as_ptr());
        let short = TensorView::from_bytes(DType::F32, [3], bytes);
        assert!(matches!(short, Err(Error::ByteLength { .. })), "{short:?}");
        let odd = TensorView::from_bytes(DType::F32, [1], &bytes[1..5]);
        assert!(matches!(odd, Err(Error::Unaligned { .. })), "{odd:?}");
        let strings = TensorView::from_bytes(DType::Str, [1], &bytes[..4]);
        assert!(matches!(strings, Err(Error::Strings)), "{strings:?}");
        assert!(TensorView::from_bytes(DType::F64, [0], &[]).unwrap().is_empty());
    }
}
