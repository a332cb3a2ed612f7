//! NVIDIA's library of products (cuBLAS), where the host has it.

pub(super) mod functions;
pub(super) mod handle;

use super::queue::CudaQueue;
use super::shared::Shared;
use crate::blas::Blas;
use crate::error::Result;
use crate::gemm::Gemm;
use crate::queue::Queue;
use functions::Functions;
use std::sync::Arc;

/// The library on one opened device.
#[derive(Debug)]
pub(super) struct CudaBlas {
    shared: Arc<Shared>,
    functions: Functions,
}

impl CudaBlas {
    /// The library for an opened device, where the host has it.
    pub(super) fn of(shared: &Arc<Shared>) -> Option<Arc<Self>> {
        let functions = shared.libraries.blas.as_ref().ok()?.functions;
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
