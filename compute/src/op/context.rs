//! The context of a running operator: threads, memory, and the request to stop.

use crate::error::Result;
use crate::isa::{Isa, Simd};
use crate::planned::Planned;
use crate::stop::{Stop, Stopped};
use crate::threads::Threads;
use lgp_memory::{Arena, DType, Pool, Shape, Tensor};
use std::sync::Arc;

/// The threads, the memory and the request to stop that a running operator gets besides its inputs.
/// Clones share threads and memory.
#[derive(Debug, Clone)]
pub struct Context {
    threads: Arc<Threads>,
    simd: Simd,
    pool: Pool,
    stop: Option<Stop>,
    planned: Option<Arc<Planned>>,
}

impl Context {
    /// A context with memory of its own and `threads` threads, the calling thread included. With
    /// one thread, kernels run on the calling thread. Where the system refuses to start a thread,
    /// the context has fewer threads, which [`Context::threads`] counts.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self::with_pool(threads, Pool::new())
    }

    /// A context that takes its memory from a pool, which other contexts may share.
    #[must_use]
    pub fn with_pool(threads: usize, pool: Pool) -> Self {
        let threads = Arc::new(Threads::new(threads));
        Self { threads, simd: Simd::detect(None), pool, stop: None, planned: None }
    }

    /// The same context for a run that `stop` can end.
    #[must_use]
    pub fn with_stop(mut self, stop: Stop) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Whether the context has a request to stop.
    #[must_use]
    pub fn may_stop(&self) -> bool {
        self.stop.is_some()
    }

    /// Succeeds while the run may continue. Sessions check between operators.
    ///
    /// # Errors
    /// Why the run must end.
    pub fn check(&self) -> Result<(), Stopped> {
        self.stop.as_ref().map_or(Ok(()), Stop::check)
    }

    /// The same context with kernels that use at most this level of vector instructions.
    #[must_use]
    pub fn with_isa(mut self, limit: Option<Isa>) -> Self {
        self.simd = Simd::detect(limit);
        self
    }

    /// The same context on the calling thread alone, for a kernel or graph that runs beside others.
    #[must_use]
    pub fn on_one_thread(&self) -> Self {
        Self { threads: Arc::new(Threads::new(1)), ..self.clone() }
    }

    /// The vector instructions that kernels use.
    #[must_use]
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// The same context for one run whose outputs have planned places in an arena.
    #[must_use]
    pub fn on_arena(&self, arena: Arena) -> Self {
        Self { planned: Some(Arc::new(Planned::new(arena))), ..self.clone() }
    }

    /// Sets the planned length and offset in the arena of each output of the next operator. An
    /// output without a free range of its length comes from the pool.
    pub fn expect_outputs(&self, outputs: &[(usize, usize)]) {
        if let Some(planned) = &self.planned {
            planned.expect(outputs);
        }
    }

    /// How many threads a kernel may use.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    pub(crate) fn workers(&self) -> &Threads {
        &self.threads
    }

    /// The pool of outputs and scratch memory.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Allocates an output with initialised but unspecified contents: a kernel writes all elements.
    /// Dropping the tensor gives the memory back to the pool.
    ///
    /// # Errors
    /// Out of memory, or a shape that cannot be addressed.
    pub fn alloc(&self, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        // Old bytes in the arena would be read as numbers of strings without a table.
        if let Some(planned) = self.planned.as_ref().filter(|_| dtype != DType::Str)
            && let Some(mut buffer) = planned.take(shape.byte_len(dtype)?)
        {
            if dtype.is_checked() {
                // Not every byte is a valid element, so old bytes must not be read as elements.
                buffer.fill(0);
            }
            return Ok(Tensor::from_buffer(dtype, shape, buffer)?);
        }
        Ok(Tensor::pooled(&self.pool, dtype, shape)?)
    }

    /// Allocates scratch memory as [`Context::alloc`] does, but always from the pool: scratch
    /// memory must not take the place that was planned for an output of the same size.
    ///
    /// # Errors
    /// Out of memory, or a shape that cannot be addressed.
    pub fn scratch(&self, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor> {
        Ok(Tensor::scratch(&self.pool, dtype, shape)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_go_where_they_were_planned() {
        let plain = Context::new(1);
        let arena = Arena::new(plain.pool(), 512).unwrap();
        let context = plain.on_arena(arena.clone());
        context.expect_outputs(&[(256, 0), (64, 256), (256, 0)]);
        let a = context.alloc(DType::F32, [64]).unwrap();
        assert!(arena.take(0, 64).is_none(), "it is in the arena");
        let before = plain.pool().stats().allocations;
        let small = context.alloc(DType::F32, [3]).unwrap();
        assert_eq!(plain.pool().stats().allocations, before + 1, "nothing of 12 bytes is planned");
        let scratch = context.scratch(DType::F32, [64]).unwrap();
        assert_eq!(plain.pool().stats().allocations, before + 2, "it is no output");
        let conflict = context.alloc(DType::F32, [64]).unwrap();
        assert_eq!(plain.pool().stats().allocations, before + 3, "its place is taken");
        arena.take(256, 64).unwrap().fill(9);
        let bools = context.alloc(DType::Bool, [64]).unwrap();
        assert_eq!(bools.as_slice::<bool>().unwrap(), [false; 64]);
        assert_eq!(plain.pool().stats().allocations, before + 3);
        drop((a, small, scratch, conflict, bools));
        context.expect_outputs(&[]);
        assert!(arena.take(0, 512).is_some());
    }

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
