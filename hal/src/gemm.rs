//! A product of matrices, as the vendors' libraries compute it.

use crate::buffer::Buffer;
use crate::error::{Error, Result};

/// `c = alpha · op(a) · op(b) + beta · c` for each of `batch` products: row-major f32, with `op(a)`
/// of `m × k`, `op(b)` of `k × n` and `c` of `m × n`. With `beta` 0 the old `c` is not read.
/// Results must not overlap operands or each other.
#[derive(Debug, Clone, Copy)]
pub struct Gemm<'a> {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Length of each sum.
    pub k: usize,
    /// Number of products.
    pub batch: usize,
    /// The left operand.
    pub a: Matrix<'a>,
    /// The right operand.
    pub b: Matrix<'a>,
    /// The result.
    pub c: Matrix<'a>,
    /// Whether `a` is stored as `k × m`.
    pub transpose_a: bool,
    /// Whether `b` is stored as `n × k`.
    pub transpose_b: bool,
    /// Scale of the product.
    pub alpha: f32,
    /// Scale of the result's old content.
    pub beta: f32,
}

/// The place of one operand's matrices in a buffer, from its first byte on.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// The buffer.
    pub buffer: &'a dyn Buffer,
    /// Elements from one row to the next; at least a row's length.
    pub row_stride: usize,
    /// Elements from one matrix of the batch to the next; 0 uses one operand for all.
    pub batch_stride: usize,
}

impl Gemm<'_> {
    /// The error that refuses this product.
    pub(crate) fn refusal(&self, reason: impl Into<String>) -> Error {
        Error::Launch { kernel: "gemm".to_owned(), reason: reason.into() }
    }

    /// Refuses operands that reach beyond their buffers, and results that overlap; every library
    /// makes these checks.
    ///
    /// # Errors
    /// [`Error::Launch`].
    pub fn check(&self) -> Result<()> {
        let &Self { m, n, k, batch, .. } = self;
        let (a, b) = (
            if self.transpose_a { (k, m) } else { (m, k) },
            if self.transpose_b { (n, k) } else { (k, n) },
        );
        for (name, matrix, (rows, columns)) in
            [("a", self.a, a), ("b", self.b, b), ("c", self.c, (m, n))]
        {
            if matrix.row_stride < columns {
                let stride = matrix.row_stride;
                return Err(
                    self.refusal(format!("rows of {name} are {stride} apart, {columns} long"))
                );
            }
            let extent = |count: usize, stride: usize, last: usize| match count.checked_sub(1) {
                Some(before) if last > 0 => before.checked_mul(stride)?.checked_add(last),
                _ => Some(0),
            };
            let one = extent(rows, matrix.row_stride, columns);
            let all = one.and_then(|one| extent(batch, matrix.batch_stride, one)?.checked_mul(4));
            let bytes = matrix.buffer.bytes();
            if all.is_none_or(|all| all > bytes) {
                return Err(
                    self.refusal(format!("{name} reaches beyond its buffer of {bytes} bytes"))
                );
            }
            if name == "c" && batch > 1 && one.is_none_or(|one| matrix.batch_stride < one) {
                return Err(self.refusal("the results of the batch overlap"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::null::NullDevice;
    use crate::device::Device;

    #[test]
    fn what_does_not_fit_is_refused() {
        let device = NullDevice::new(None);
        // Two products of 2 × 3 and 3 × 4.
        let [a, b, c] = [12, 24, 16].map(|count| device.allocate(4 * count).expect("fits"));
        let matrix = |buffer, row_stride, batch_stride| Matrix { buffer, row_stride, batch_stride };
        let right = Gemm {
            m: 2,
            n: 4,
            k: 3,
            batch: 2,
            a: matrix(&*a, 3, 6),
            b: matrix(&*b, 4, 12),
            c: matrix(&*c, 4, 8),
            transpose_a: false,
            transpose_b: false,
            alpha: 1.0,
            beta: 0.0,
        };
        right.check().expect("fits");
        Gemm { a: matrix(&*a, 2, 6), transpose_a: true, ..right }.check().expect("fits");
        Gemm { b: matrix(&*b, 4, 0), ..right }.check().expect("one operand for all");
        Gemm { batch: 0, ..right }.check().expect("nothing fits");
        Gemm { k: 0, ..right }.check().expect("sums of nothing fit");
        for (faulty, part) in [
            (Gemm { k: 4, ..right }, "rows of a are 3 apart, 4 long"),
            (Gemm { transpose_b: true, ..right }, "b reaches beyond its buffer of 96 bytes"),
            (Gemm { m: 3, ..right }, "a reaches beyond its buffer of 48 bytes"),
            (Gemm { batch: 3, ..right }, "a reaches beyond"),
            (Gemm { c: matrix(&*c, 5, 8), ..right }, "c reaches beyond"),
            (Gemm { c: matrix(&*c, 4, 7), ..right }, "results of the batch overlap"),
            (Gemm { a: matrix(&*a, usize::MAX, 6), ..right }, "a reaches beyond"),
        ] {
            let error = faulty.check().expect_err(part);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
