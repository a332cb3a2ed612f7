//! NVIDIA's library of products (cuBLAS), where the host has it.

pub(super) mod handle;

use super::queue::CudaQueue;
use super::shared::Shared;
use crate::blas::Blas;
use crate::error::Result;
use crate::gemm::Gemm;
use crate::queue::Queue;
use cudarc::cublas::sys;
use std::sync::Arc;

/// The library calls of this module; the bindings panic on a call that the library lacks.
const CALLS: [&str; 4] =
    ["cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSgemmStridedBatched"];

/// Whether the library is installed.
pub(super) fn is_present() -> bool {
    // SAFETY: the search for the library runs its initialisers, as loading it does; the symbols are
    // only looked up, not called.
    unsafe {
        sys::is_culib_present()
            && CALLS
                .into_iter()
                .all(|name| sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()).is_ok())
    }
}

/// The library on one opened device.
#[derive(Debug)]
pub(super) struct CudaBlas {
    shared: Arc<Shared>,
}

impl CudaBlas {
    /// The library for an opened device, where the host has it.
    pub(super) fn of(shared: &Arc<Shared>) -> Option<Arc<Self>> {
        shared.caps.gemm.then(|| Arc::new(Self { shared: Arc::clone(shared) }))
    }
}

impl Blas for CudaBlas {
    fn gemm(&self, queue: &mut dyn Queue, gemm: &Gemm<'_>) -> Result<()> {
        let queue = CudaQueue::of(queue, &self.shared)?;
        gemm.check()?;
        self.shared.bind()?;
        queue.blas()?.gemm(gemm)
    }
}
