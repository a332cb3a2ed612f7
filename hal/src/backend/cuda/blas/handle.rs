//! The library's handle, which all its calls take.

use super::functions::Functions;
use crate::backend::cuda::buffer::CudaBuffer;
use crate::backend::cuda::library::{Status, done};
use crate::backend::cuda::shared::Shared;
use crate::backend::cuda::stream::Stream;
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Matrix};
use cudarc::cublas::sys::{cublasHandle_t, cublasOperation_t, cublasStatus_t};
use std::ffi::{c_int, c_longlong};
use std::sync::Arc;

/// The library's handle for one stream.
#[derive(Debug)]
pub(in crate::backend::cuda) struct Handle {
    shared: Arc<Shared>,
    functions: Functions,
    handle: cublasHandle_t,
    /// The stream that the handle refers to.
    _stream: Arc<Stream>,
}

// SAFETY: any one thread at a time may use the handle if the device's context is the thread's
// current one. Every use binds the context first, and `Handle` is not `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    /// Makes the handle; the device's context must be bound.
    pub(in crate::backend::cuda) fn new(
        shared: Arc<Shared>,
        functions: Functions,
        stream: Arc<Stream>,
    ) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is bound; the handle is destroyed once, in `drop`.
        done(unsafe { (functions.cublasCreate_v2)(&raw mut handle) })
            .map_err(refusal(&shared, "cublasCreate"))?;
        let made = Self { shared, functions, handle, _stream: Arc::clone(&stream) };
        // SAFETY: handle and stream are alive.
        done(unsafe { (functions.cublasSetStream_v2)(handle, stream.handle.cast()) })
            .map_err(refusal(&made.shared, "cublasSetStream"))?;
        Ok(made)
    }

    /// Queues a checked product; the device's context must be bound.
    pub(super) fn gemm(&self, gemm: &Gemm<'_>) -> Result<()> {
        let address =
            |matrix: &Matrix<'_>| Ok(CudaBuffer::of(matrix.buffer, &self.shared)?.address());
        let (a, b, c) = (address(&gemm.a)?, address(&gemm.b)?, address(&gemm.c)?);
        if gemm.m == 0 || gemm.n == 0 || gemm.batch == 0 {
            return Ok(());
        }
        let int = |value: usize| {
            c_int::try_from(value)
                .map_err(|_| gemm.refusal(format!("{value} is beyond the 31 bits of cuBLAS")))
        };
        let long = |value: usize| {
            c_longlong::try_from(value)
                .map_err(|_| gemm.refusal(format!("{value} is beyond the 63 bits of cuBLAS")))
        };
        let op = |transposed| match transposed {
            true => cublasOperation_t::CUBLAS_OP_T,
            false => cublasOperation_t::CUBLAS_OP_N,
        };
        // The library's matrices are column-major: its product is the transpose of ours, so the
        // operands change places. It refuses a leading dimension of 0 even for a matrix without
        // rows.
        let (m, n, k, batch) = (int(gemm.m)?, int(gemm.n)?, int(gemm.k)?, int(gemm.batch)?);
        let rows = |matrix: &Matrix<'_>| int(matrix.row_stride.max(1));
        let (lda, ldb, ldc) = (rows(&gemm.a)?, rows(&gemm.b)?, rows(&gemm.c)?);
        let apart = |matrix: &Matrix<'_>| long(matrix.batch_stride);
        let (next_a, next_b, next_c) = (apart(&gemm.a)?, apart(&gemm.b)?, apart(&gemm.c)?);
        // SAFETY: the handle is alive, and the operands lie within their buffers (`Gemm::check`),
        // which the driver frees after the streams have caught up; the scales are read during the
        // call.
        done(unsafe {
            (self.functions.cublasSgemmStridedBatched)(
                self.handle,
                op(gemm.transpose_b),
                op(gemm.transpose_a),
                n,
                m,
                k,
                &raw const gemm.alpha,
                b as *const f32,
                ldb,
                next_b,
                a as *const f32,
                lda,
                next_a,
                &raw const gemm.beta,
                c as *mut f32,
                ldc,
                next_c,
                batch,
            )
        })
        .map_err(refusal(&self.shared, "cublasSgemmStridedBatched"))
    }
}

/// An error of a library call. The library's own codes do not tell a lost device from a failed
/// call, so the driver is asked; the device's context must be bound.
fn refusal(shared: &Shared, call: &'static str) -> impl Fn(Status) -> Error {
    use cublasStatus_t::*;
    let device = shared.id;
    move |status| {
        if let Err(lost @ Error::DeviceLost { .. }) = shared.synchronize() {
            return lost;
        }
        if status.0 == CUBLAS_STATUS_ALLOC_FAILED as u32 {
            let reason = format!("{call} finds no memory for its work");
            return Error::OutOfMemory { device, bytes: 0, reason };
        }
        let known = [
            CUBLAS_STATUS_NOT_INITIALIZED,
            CUBLAS_STATUS_INVALID_VALUE,
            CUBLAS_STATUS_ARCH_MISMATCH,
            CUBLAS_STATUS_MAPPING_ERROR,
            CUBLAS_STATUS_EXECUTION_FAILED,
            CUBLAS_STATUS_INTERNAL_ERROR,
            CUBLAS_STATUS_NOT_SUPPORTED,
        ];
        let code = status.name(known.map(|it| (it as u32, it)));
        Error::Driver { device, call, code }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A context that cannot be bound is lost, together with the library's memory in it.
        if self.shared.bind().is_ok() {
            // SAFETY: the handle was made once and is not used again.
            let destroyed = done(unsafe { (self.functions.cublasDestroy_v2)(self.handle) });
            if let Err(error) = destroyed.map_err(refusal(&self.shared, "cublasDestroy")) {
                tracing::debug!(%error, "the library does not take its handle back");
            }
        }
    }
}
