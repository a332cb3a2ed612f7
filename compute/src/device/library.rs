//! Products of matrices that the library of a device's vendor computes, where there is one.

use super::kernel::Argument;
use super::tensor::DeviceTensor;
use crate::error::{Error, Result};
use lgp_hal::{Arg, Gemm, Matrix};

/// `result = left · right` of row-major f32 matrices, for each of `batch` products.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LibraryProduct {
    /// Rows, columns and the length of each sum.
    pub(crate) sizes: [usize; 3],
    /// How many products.
    pub(crate) batch: usize,
    /// Both operands.
    pub(crate) operands: [LibraryOperand; 2],
    /// Where the results go.
    pub(crate) result: Argument,
}

/// An operand of a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LibraryOperand {
    pub(crate) argument: Argument,
    /// Whether it lies transposed in memory.
    pub(crate) transposed: bool,
    /// Whether each product has an operand of its own; if not, all share one.
    pub(crate) each: bool,
}

impl LibraryProduct {
    /// Additions and multiplications.
    pub(super) fn flops(&self) -> u64 {
        self.sizes.iter().chain([&self.batch]).map(|&n| n as u64).product::<u64>() * 2
    }

    pub(super) fn reads(&self, input: usize) -> bool {
        self.operands.iter().any(|operand| operand.argument == Argument::Input(input))
    }

    /// The product on these buffers.
    ///
    /// # Errors
    /// A missing buffer.
    pub(super) fn on<'a>(
        &self,
        inputs: &[Option<&'a DeviceTensor>],
        outputs: &[Option<&'a DeviceTensor>],
        scratch: &'a [DeviceTensor],
    ) -> Result<Gemm<'a>> {
        let matrix = |argument: Argument, row_stride: usize, batch_stride: usize| match argument
            .resolve(inputs, outputs, scratch)?
        {
            Arg::Buffer(buffer) => Ok(Matrix { buffer, row_stride, batch_stride }),
            _ => Err(Error::invalid("an operand of a product is no buffer").of("launch")),
        };
        let [m, n, k] = self.sizes;
        let [left, right] = self.operands;
        let stride = |operand: LibraryOperand, size: usize| if operand.each { size } else { 0 };
        Ok(Gemm {
            m,
            n,
            k,
            batch: self.batch,
            a: matrix(left.argument, if left.transposed { m } else { k }, stride(left, m * k))?,
            b: matrix(right.argument, if right.transposed { k } else { n }, stride(right, k * n))?,
            c: matrix(self.result, n, m * n)?,
            transpose_a: left.transposed,
            transpose_b: right.transposed,
            alpha: 1.,
            beta: 0.,
        })
    }
}
