//! Where a tensor's elements lie in a file, and how they become a tensor.

use super::Fail;
use super::quants::Quant;
use lgp_memory::{Buffer, DType, Result, Shape, Tensor};
use std::ops::Range;

/// A tensor may take this many times the bytes of its file: quantised blocks and repeated rows
/// grow, but within bounds.
const GROWTH: usize = 16;

/// Bytes that tensors of a small file may take in addition.
const FREE_BYTES: usize = 1 << 16;

/// How the elements are written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Encoding {
    /// Row-major, without gaps.
    Plain,
    /// Strides of the dimensions, in elements from the start of the range.
    Strided(Vec<usize>),
    /// Blocks that share a scale.
    Quantised(&'static Quant),
}

/// A tensor in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// The file's bytes from which the elements are read.
    pub(super) range: Range<usize>,
    pub(super) encoding: Encoding,
}

impl Entry {
    /// Fails unless every element lies in a file of `file_len` bytes, and the tensor's size is in
    /// proportion to the file.
    pub(super) fn check(&self, name: &str, file_len: usize) -> Result<(), Fail> {
        let fail = |message: String| Fail::Bad(format!("tensor '{name}': {message}"));
        let Self { dtype, shape, range, encoding } = self;
        let bytes = Shape::new(shape.clone()).byte_len(*dtype).map_err(|e| fail(e.to_string()))?;
        if range.start > range.end || range.end > file_len {
            return Err(fail(format!("bytes {range:?} of a file of {file_len}")));
        }
        if bytes > file_len.saturating_mul(GROWTH).saturating_add(FREE_BYTES) {
            return Err(fail(format!("{dtype} of shape {shape:?} in a file of {file_len} bytes")));
        }
        let wanted = match encoding {
            Encoding::Plain => Some(bytes),
            Encoding::Strided(strides) => span(shape, strides, dtype.size()),
            Encoding::Quantised(quant) => quant.byte_len(bytes / dtype.size()),
        };
        let exact = *encoding != Encoding::Plain || wanted == Some(range.len());
        if !exact || wanted.is_none_or(|wanted| wanted > range.len()) {
            let wanted = wanted.map_or("more than there can be".to_owned(), |n| n.to_string());
            let given = range.len();
            return Err(fail(format!("{given} bytes, but {dtype} of {shape:?} takes {wanted}")));
        }
        Ok(())
    }

    /// Makes the tensor from the bytes against which the entry was checked.
    pub(super) fn read(&self, file: &[u8]) -> Result<Tensor> {
        let shape = Shape::new(self.shape.clone());
        let bytes = file.get(self.range.clone()).unwrap_or_default();
        let mut out = Buffer::zeroed(shape.byte_len(self.dtype)?)?;
        match &self.encoding {
            Encoding::Plain if out.len() == bytes.len() => out.copy_from_slice(bytes),
            // The check when the file was loaded rules out other lengths.
            Encoding::Plain => {}
            Encoding::Strided(strides) => gather(&mut out, bytes, &self.shape, strides, self.dtype),
            Encoding::Quantised(quant) => quant.expand(bytes, &mut out),
        }
        Tensor::from_buffer(self.dtype, shape, out)
    }
}

/// Bytes from the first to the last element; `None` if their number overflows, or the ranks differ.
fn span(shape: &[usize], strides: &[usize], size: usize) -> Option<usize> {
    if shape.len() != strides.len() {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    let last = shape.iter().zip(strides).try_fold(0usize, |sum, (&dim, &stride)| {
        sum.checked_add(stride.checked_mul(dim.saturating_sub(1))?)
    });
    last?.checked_add(1)?.checked_mul(size)
}

/// The strides of elements without gaps between them.
pub(super) fn contiguous(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(shape[i].max(1));
    }
    strides
}

/// Copies elements in row-major order, counting through the dimensions like an odometer.
pub(super) fn gather(
    out: &mut [u8],
    bytes: &[u8],
    shape: &[usize],
    strides: &[usize],
    dtype: DType,
) {
    let size = dtype.size();
    let mut index = vec![0usize; shape.len()];
    let mut at = 0usize;
    for slot in out.chunks_exact_mut(size) {
        if let Some(element) = bytes.get(at..at.saturating_add(size)) {
            slot.copy_from_slice(element);
        }
        for ((i, &dim), &stride) in index.iter_mut().zip(shape).zip(strides).rev() {
            *i += 1;
            at = at.saturating_add(stride.saturating_mul(size));
            if *i < dim {
                break;
            }
            at = at.saturating_sub(stride.saturating_mul(size).saturating_mul(dim));
            *i = 0;
        }
    }
}
