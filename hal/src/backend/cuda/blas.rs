//! NVIDIA's library of products (cuBLAS), where the host has it.

pub(super) mod handle;

use super::library::{self, functions, names};
use super::queue::CudaQueue;
use super::shared::Shared;
use crate::blas::Blas;
use crate::error::Result;
use crate::gemm::Gemm;
use crate::queue::Queue;
use cudarc::cublas::sys::{self, cublasHandle_t, cublasOperation_t, cudaStream_t};
use std::ffi::{c_int, c_longlong};
use std::sync::Arc;

/// The oldest architecture that CUDA 13's library has kernels for.
const ARCHITECTURE_OF_13: u32 = 75;

functions! {
    /// The functions of the library.
    Functions: cublasStatus_t {
        cublasCreate_v2(*mut cublasHandle_t);
        cublasDestroy_v2(cublasHandle_t);
        cublasSetStream_v2(cublasHandle_t, cudaStream_t);
        cublasSgemmStridedBatched(
            cublasHandle_t, cublasOperation_t, cublasOperation_t, c_int, c_int, c_int, *const f32,
            *const f32, c_int, c_longlong, *const f32, c_int, c_longlong, *const f32, *mut f32,
            c_int, c_longlong, c_int
        );
    }
}

impl Functions {
    /// The newest library for a device of `architecture` that its driver of CUDA `major` runs, where
    /// the host has one.
    pub(super) fn load(architecture: u32, major: i32) -> Option<Self> {
        let newest = if architecture < ARCHITECTURE_OF_13 { 12 } else { major };
        names("cublas", newest)
            .iter()
            .filter_map(|name| library::load(name))
            .find_map(|library| Self::of(&library).ok())
    }
}

/// The library on one opened device.
#[derive(Debug)]
pub(super) struct CudaBlas {
    shared: Arc<Shared>,
    functions: Functions,
}

impl CudaBlas {
    /// The library for an opened device, where the host has it.
    pub(super) fn of(shared: &Arc<Shared>) -> Option<Arc<Self>> {
        let functions = shared.blas?;
        Some(Arc::new(Self { shared: Arc::clone(shared), functions }))
    }
}

impl Blas for CudaBlas {
    fn prepare(&self, queue: &mut dyn Queue) -> Result<()> {
        let queue = CudaQueue::of(queue, &self.shared)?;
        self.shared.bind()?;
        queue.blas(self.functions).map(drop)
    }

    fn gemm(&self, queue: &mut dyn Queue, gemm: &Gemm<'_>) -> Result<()> {
        let queue = CudaQueue::of(queue, &self.shared)?;
        gemm.check()?;
        self.shared.bind()?;
        queue.blas(self.functions)?.gemm(gemm)
    }
}
