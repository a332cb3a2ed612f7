//! What an operator is: it infers types, validates its inputs and computes its outputs.

use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::threads::Threads;
use lgp_memory::{DType, Dim, Pool, Shape, Tensor, TensorType, TensorView};

/// What is known of a value while a graph is compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueInfo {
    /// Dtype and, when its rank is known, the shape.
    pub ty: TensorType,
    /// The value itself, where it does not depend on the graph's inputs.
    pub constant: Option<Tensor>,
    /// The contents of a small integer tensor that holds dimensions, such as the output of
    /// `Shape`: entries may be symbolic.
    pub dims: Option<Vec<Dim>>,
}

impl ValueInfo {
    /// A value of which only the type is known.
    #[must_use]
    pub fn of(ty: TensorType) -> Self {
        Self { ty, constant: None, dims: None }
    }
}

/// What a running operator is given besides its inputs.
#[derive(Debug)]
pub struct Context {
    threads: Threads,
    simd: Simd,
    pool: Pool,
}

impl Context {
    /// A context with memory of its own and `threads` threads, the calling one included; with one
    /// thread, kernels stay on the calling one. Where the system refuses to start a thread, the
    /// context has fewer: [`Context::threads`] tells.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::with_pool(threads, Pool::new())
    }

    /// A context that takes its memory from a pool that others may share.
    #[must_use]
    pub fn with_pool(threads: usize, pool: Pool) -> Self {
        Self { threads: Threads::new(threads), simd: Simd::detect(None), pool }
    }

    /// The same context whose kernels use no more than this level of vector instructions.
    #[must_use]
    pub fn with_isa(mut self, limit: Option<Isa>) -> Self {
        self.simd = Simd::detect(limit);
        self
    }

    /// The vector instructions that kernels use.
    #[must_use]
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// How many threads a kernel may use.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    pub(crate) fn workers(&self) -> &Threads {
        &self.threads
    }

    /// Where outputs and scratch memory come from.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Allocates an output. Its contents are initialised but unspecified: a kernel writes all.
    /// Dropping the tensor gives the memory back to the pool.
    ///
    /// # Errors
    /// Out of memory, or a shape that cannot be addressed.
    pub fn alloc(&self, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        Ok(Tensor::pooled(&self.pool, dtype, shape)?)
    }
}

/// An operator with its attributes: pure, and safe to run from several threads at once.
///
/// `Any` lets a graph pass recognise the ops that it rewrites.
pub trait Op: std::any::Any + std::fmt::Debug + Send + Sync {
    /// The operator's name, as ONNX spells it.
    fn name(&self) -> &'static str;

    /// The outputs' types from the inputs' (`None` = an optional input that is absent).
    ///
    /// Where small integer inputs carry [`ValueInfo::dims`], operators that move or combine
    /// dimensions pass them on. Constants are not folded: running an op on them is for the
    /// caller to decide.
    ///
    /// # Errors
    /// When the inputs cannot be right whatever the unknown dimensions turn out to be.
    fn infer(&self, inputs: &[Option<&ValueInfo>]) -> Result<Vec<ValueInfo>>;

    /// Computes the outputs on the CPU. Every input is validated: a wrong one is an error, not
    /// a panic.
    ///
    /// # Errors
    /// Inputs that do not fit, a dtype without a kernel, or out of memory.
    fn run(&self, ctx: &Context, inputs: &[Option<TensorView<'_>>]) -> Result<Vec<Tensor>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_reuse_what_was_dropped() {
        let context = Context::new(1);
        drop(context.alloc(DType::F32, [100]));
        let shared = Context::with_pool(0, context.pool().clone());
        let bools = shared.alloc(DType::Bool, [400]).unwrap();
        assert_eq!(shared.threads(), 1);
        assert_eq!(context.pool().stats().hits, 1);
        assert_eq!(bools.as_slice::<bool>().unwrap(), [false; 400]);
        assert!(context.alloc(DType::F32, [usize::MAX, 2]).is_err());
    }
}
