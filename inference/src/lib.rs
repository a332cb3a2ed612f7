//! ONNX in and out, graphs and their passes, sessions that run them, a repository of models.
//!
//! This layer knows graphs: the maths of a node belongs to `lgp-compute`, and the caller of a run
//! to the layers above.
#![forbid(unsafe_code)]

mod batch;
mod binding;
mod builder;
mod compiled;
mod control;
mod device;
mod division;
mod error;
mod exec;
mod facts;
mod graph;
mod inputs;
mod model;
mod onnx;
mod operators;
mod options;
mod outputs;
mod passes;
mod plan;
mod profile;
mod repository;
mod rows;
mod run_options;
mod session;
mod slices;
mod slots;
mod structure;
mod task;
mod weights;

pub use binding::Binding;
pub use builder::{GraphBuilder, Value};
pub use device::{
    DeviceMemoryReport, MeasuredPlacement, MemoryNeed, NodeRecipes, Placement, TunedModel,
    TunedNode, WeightBytes, recipes,
};
pub use error::{Error, Result};
pub use facts::check_facts;
pub use lgp_compute::{Isa, Stop, Stopped};
pub use model::{Attr, Model, ModelNode, ModelParts, Subgraph, ValueSpec};
pub use onnx::{
    Unsupported, UnsupportedNode, UnsupportedOperator, read_tensor, read_value, supported_operators,
};
pub use operators::Operators;
pub use options::{Precision, SessionOptions};
pub use passes::{PassReport, pass_reports};
pub use plan::{MemoryReport, PlacedTensor, TensorBytes};
pub use profile::{NodeProfile, Profile};
pub use repository::{Entry, Repository};
pub use run_options::RunOptions;
pub use session::Session;
pub use structure::{Structure, StructureOp, StructureValue};
pub use task::RunTask;
pub use weights::{BoundWeight, BoundWeights, KeptFloats, StoredFloats, Weights};
