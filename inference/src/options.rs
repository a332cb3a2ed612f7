//! How a session computes.

use lgp_compute::Isa;

/// How a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Threads that one run may use; 1 runs on the caller's thread alone.
    pub threads: usize,
    /// The widest vector instructions that kernels may use; `None` for those of the machine.
    pub isa: Option<Isa>,
    /// The precision of the session's kernels.
    pub precision: Precision,
}

impl Default for SessionOptions {
    /// One thread for each core, all instructions of the machine, exact.
    fn default() -> Self {
        Self::with_threads(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl SessionOptions {
    /// The default with a number of threads.
    #[must_use]
    pub fn with_threads(threads: usize) -> Self {
        Self { threads, isa: None, precision: Precision::Exact }
    }
}

/// How precisely a session computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// As the model is written, in f32. Kernels may add up sums in another order. Convolutions of
    /// 3×3 may use Winograd's transforms F(2×2) and F(4×4), which spread the rounding error of a
    /// pixel over its tile: a pixel a million times larger than the others was measured to put
    /// errors of 0.1 into its neighbours.
    #[default]
    Exact,
    /// Products of matrices and convolutions in bf16 with sums in f32, where the machine has
    /// instructions for it (AVX-512 BF16); elsewhere as the model is written.
    Fast,
    /// Products of matrices with constant weights in 8 bits: the weights are quantised when the
    /// model is loaded, the other operand in each run. Convolutions stay f32.
    Int8,
}
