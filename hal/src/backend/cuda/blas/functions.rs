//! The library's functions.

use crate::backend::cuda::library::{self, functions, names};
use cudarc::cublas::sys::{self, cublasHandle_t, cublasOperation_t, cudaStream_t};
use std::ffi::{c_int, c_longlong};

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
    /// The newest library for a device of `architecture` that its driver of CUDA `major` runs,
    /// where the host has one.
    pub(in crate::backend::cuda) fn load(architecture: u32, major: i32) -> Option<Self> {
        let newest = if architecture < ARCHITECTURE_OF_13 { 12 } else { major };
        names("cublas", newest)
            .iter()
            .filter_map(|name| library::load(name))
            .find_map(|library| Self::of(&library).ok())
    }
}
