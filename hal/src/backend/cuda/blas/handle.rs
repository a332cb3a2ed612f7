//! The library's handle, which all its calls take.

use crate::backend::cuda::buffer::CudaBuffer;
use crate::backend::cuda::shared::Shared;
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Matrix};
use cudarc::cublas::result::{self, CublasError};
use cudarc::cublas::sys::{self, cublasOperation_t, cublasStatus_t};
use cudarc::driver::CudaStream;
use std::ffi::{c_int, c_longlong};
use std::sync::Arc;

/// The library's handle for one stream.
#[derive(Debug)]
pub(in crate::backend::cuda) struct Handle {
    shared: Arc<Shared>,
    handle: sys::cublasHandle_t,
    /// The stream that the handle refers to.
    _stream: Arc<CudaStream>,
}

// SAFETY: any one thread at a time may use the handle if the device's context is the thread's
// current one. Every use binds the context first, and `Handle` is not `Sync`.
unsafe impl Send for Handle {}

impl Handle {
    /// Makes the handle; the library must be installed and the device's context bound.
    pub(in crate::backend::cuda) fn new(
        shared: Arc<Shared>,
        stream: Arc<CudaStream>,
    ) -> Result<Self> {
        let failed = |call| refusal(&shared, call);
        let handle = result::create_handle().map_err(failed("cublasCreate"))?;
        let made = Self { shared: Arc::clone(&shared), handle, _stream: Arc::clone(&stream) };
        // SAFETY: handle and stream are alive.
        unsafe { result::set_stream(handle, stream.cu_stream().cast()) }
            .map_err(failed("cublasSetStream"))?;
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
        let status = unsafe {
            sys::cublasSgemmStridedBatched(
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
        };
        status.result().map_err(refusal(&self.shared, "cublasSgemmStridedBatched"))
    }
}

/// An error of a library call.
fn refusal(shared: &Shared, call: &'static str) -> impl Fn(CublasError) -> Error {
    let device = shared.id;
    move |error| match error.0 {
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => {
            let reason = format!("{call} finds no memory for its work");
            Error::OutOfMemory { device, bytes: 0, reason }
        }
        status => Error::Driver { device, call, code: format!("{status:?}") },
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A context that cannot be bound is lost, together with the library's memory in it.
        if self.shared.bind().is_ok() {
            // SAFETY: the handle was made once and is not used again.
            let _ = unsafe { result::destroy_handle(self.handle) };
        }
    }
}
