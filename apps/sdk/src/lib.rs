//! The curated Rust API of the platform: what applications need, and nothing else.

#![forbid(unsafe_code)]

pub use lgp_memory::{
    DType, Dim, Element, Error as TensorError, NamedTensor, Shape, SymShape, Tensor, TensorType,
    TensorView,
};

pub use lgp_distributed::{
    Coordinator, CoordinatorConfig, Error as ClusterError, ExecError, ExecErrorKind, Executor,
    ExecutorStatus, Identity, ModelRef, Percentiles, Pki, Priority, Stats, TaskCounts, TaskError,
    TaskErrorKind, TaskId, TaskRecord, TaskSpec, TaskState, WorkerConfig, WorkerCounts, WorkerId,
    WorkerInfo, WorkerState, balancing_strategies, run_worker,
};
