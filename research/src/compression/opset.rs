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

#[cfg(test)]
mod tests {
    use super::*;
    use lgp_inference::{Attr, GraphBuilder};
    use lgp_memory::{DType, TensorType};

    fn raises(opset: i64, node: &str, attributes: Vec<(&str, Attr)>) -> bool {
        let shape = Shape::from([2, 3]);
        let mut g = GraphBuilder::new("g").with_opset(opset);
        let x = g.input("x", TensorType::concrete(DType::F32, &shape));
        let y = g.node(node, &[x], attributes);
        g.output("y", y, TensorType { dtype: DType::F32, shape: None });
        raised(&g.finish().unwrap(), 21, &[("x", shape)]).is_some()
    }

    #[test]
    fn a_model_is_raised_only_if_it_means_the_same() {
        assert!(raises(18, "Relu", vec![]));
        // Softmax flattens its input before opset 13; the axes of a mean are an input since 18.
        assert!(!raises(11, "Softmax", vec![("axis", 0.into())]));
        assert!(!raises(17, "ReduceMean", vec![("axes", Attr::Ints(vec![1]))]));
        assert!(!raises(21, "Relu", vec![]), "it already has the version");
    }
}
