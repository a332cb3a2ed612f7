//! A library of linear algebra for tests: the host multiplies.

use crate::blas::Blas;
use crate::error::Result;
use crate::gemm::{Gemm, Matrix};
use crate::queue::Queue;

/// Reads the operands through the queue, multiplies on the host and writes the result back, for
/// test devices without a library.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostBlas;

impl Blas for HostBlas {
    fn gemm(&self, queue: &mut dyn Queue, gemm: &Gemm<'_>) -> Result<()> {
        gemm.check()?;
        let mut floats = |matrix: &Matrix<'_>| -> Result<Vec<f32>> {
            let mut bytes = vec![0; matrix.buffer.bytes()];
            queue.read(matrix.buffer, 0, &mut bytes)?;
            let words = bytes.chunks_exact(4).map(|it| [it[0], it[1], it[2], it[3]]);
            Ok(words.map(f32::from_ne_bytes).collect())
        };
        let (a, b, mut c) = (floats(&gemm.a)?, floats(&gemm.b)?, floats(&gemm.c)?);
        let place = |matrix: &Matrix<'_>, product: usize, transposed: bool, at: [usize; 2]| {
            let [row, column] = if transposed { [at[1], at[0]] } else { at };
            product * matrix.batch_stride + row * matrix.row_stride + column
        };
        let &Gemm { m, n, .. } = gemm;
        for at in 0..gemm.batch * m * n {
            let (product, i, j) = (at / (m * n), at / n % m, at % n);
            let terms = (0..gemm.k).map(|k| {
                a[place(&gemm.a, product, gemm.transpose_a, [i, k])]
                    * b[place(&gemm.b, product, gemm.transpose_b, [k, j])]
            });
            let result = &mut c[place(&gemm.c, product, false, [i, j])];
            let old = if gemm.beta == 0.0 { 0.0 } else { gemm.beta * *result };
            *result = gemm.alpha * terms.sum::<f32>() + old;
        }
        let bytes: Vec<u8> = c.iter().flat_map(|value| value.to_ne_bytes()).collect();
        queue.write(gemm.c.buffer, 0, &bytes)
    }
}
