//! Fixtures for tests of deployments: a repository with one small model.

use lgp_distributed::ModelRef;
use lgp_inference::{GraphBuilder, Repository};
use lgp_memory::{DType, Dim, SymShape, TensorType};

/// A model `y = relu(x)` of f32 `[n]` in its own repository; its file also lies in the folder.
pub(crate) fn repository() -> (tempfile::TempDir, Repository, ModelRef) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Symbol("n".into())])) };
    let mut builder = GraphBuilder::new("relu");
    let x = builder.input("x", ty.clone());
    let y = builder.node("Relu", &[x], []);
    builder.output("y", y, ty);
    let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
    let file = folder.path().join("relu.onnx");
    std::fs::write(&file, bytes).expect("ours");
    let repository = Repository::open(folder.path().join("models")).expect("ours");
    let entry = repository.add("relu", &file).expect("a good model");
    let model = ModelRef { name: entry.name, version: entry.version, sha256: entry.sha256 };
    (folder, repository, model)
}
