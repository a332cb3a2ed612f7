//! A newer operator set for a model that means the same in it.

use lgp_inference::{Model, Structure};
use lgp_memory::Shape;

/// The model with a newer version of ONNX's operator set; `None` where the engine would read any
/// of its nodes differently, or where the model already has that version.
pub(crate) fn raised(model: &Model, version: i64, shapes: &[(&str, Shape)]) -> Option<Model> {
    if model.opset() >= version {
        return None;
    }
    let mut parts = model.clone().into_parts();
    parts.opsets.insert(String::new(), version);
    let newer = parts.finish().ok()?;
    let read = |model: &Model| model.structure(shapes).ok().map(|structure| meaning(&structure));
    let (before, after) = (read(model)?, read(&newer)?);
    (before == after).then_some(newer)
}

/// The operators with their attributes, and what reads what.
fn meaning(structure: &Structure) -> Vec<String> {
    let operators = structure.operators.iter();
    operators.map(|it| format!("{:?} {:?} {:?}", it.op, it.inputs, it.outputs)).collect()
}
