//! The operators of a model with the facts that they state, for tools that rewrite models.

use crate::error::Result;
use crate::model::Model;
use crate::options::SessionOptions;
use crate::{onnx, passes};
use lgp_compute::{Cost, Op, ValueInfo, cost};
use lgp_memory::Shape;
use std::sync::Arc;

/// A value of a model's graph.
#[derive(Debug, Clone)]
pub struct StructureValue {
    /// The model's name for the value; a name of its own for a value inside a node that becomes
    /// several operators.
    pub name: String,
    /// Its type, and its contents where they are constant; `None` where inference found no type.
    pub info: Option<ValueInfo>,
}

/// An operator of a model's graph.
#[derive(Debug, Clone)]
pub struct StructureOp {
    /// The index in [`Model::nodes`] of the node that this operator is, or is a part of.
    pub node: usize,
    /// The operator, with its facts.
    pub op: Arc<dyn Op>,
    /// Indices in [`Structure::values`]; `None` for an optional input that is absent.
    pub inputs: Vec<Option<usize>>,
    /// Indices in [`Structure::values`]; `None` for an output that nothing reads.
    pub outputs: Vec<Option<usize>>,
    /// The work of one run.
    pub cost: Cost,
}

/// A model as the engine reads it, before any pass: values with types, operators with facts.
#[derive(Debug, Clone)]
pub struct Structure {
    /// Every value, those that only exist inside nodes included.
    pub values: Vec<StructureValue>,
    /// Every operator, each after those that it reads from.
    pub operators: Vec<StructureOp>,
    /// The inputs, as indices in [`Structure::values`].
    pub inputs: Vec<usize>,
    /// The outputs, as indices in [`Structure::values`].
    pub outputs: Vec<usize>,
}

impl Model {
    /// The model's operators, with the types that its values have for inputs of these shapes.
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] with everything that has no implementation,
    /// [`crate::Error::Graph`] for an input without a shape.
    pub fn structure(&self, shapes: &[(&str, Shape)]) -> Result<Structure> {
        let (graph, nodes) = onnx::lower_with_nodes(self, SessionOptions::with_threads(1))?;
        let signature = passes::signature(self.inputs(), shapes)?;
        let infos = graph.concrete(&signature);
        let operators = graph.nodes.iter().zip(nodes).map(|(node, index)| {
            let of = |id: &Option<crate::graph::ValueId>| id.and_then(|id| infos[id.0].as_ref());
            let given: Vec<Option<&ValueInfo>> = node.inputs.iter().map(of).collect();
            let made: Vec<ValueInfo> = node.outputs.iter().filter_map(of).cloned().collect();
            StructureOp {
                node: index,
                op: Arc::clone(&node.op),
                inputs: node.inputs.iter().map(|id| id.map(|id| id.0)).collect(),
                outputs: node.outputs.iter().map(|id| id.map(|id| id.0)).collect(),
                cost: cost(&*node.op, &given, &made),
            }
        });
        let operators = operators.collect();
        let values = graph.values.iter().zip(&infos);
        let values = values.map(|(value, info)| StructureValue {
            name: value.name.clone(),
            info: info.clone().or_else(|| value.info.clone()),
        });
        Ok(Structure {
            values: values.collect(),
            operators,
            inputs: graph.inputs.iter().map(|id| id.0).collect(),
            outputs: graph.outputs.iter().map(|(_, id)| id.0).collect(),
        })
    }
}

impl Structure {
    /// The types of an operator's inputs.
    #[must_use]
    pub fn infos(&self, operator: &StructureOp) -> Vec<Option<&ValueInfo>> {
        let info = |&id: &usize| self.values.get(id).and_then(|value| value.info.as_ref());
        operator.inputs.iter().map(|id| id.as_ref().and_then(info)).collect()
    }

    /// The types of an operator's outputs; those of outputs that nothing reads are inferred again.
    /// Empty where the inputs' types are not known.
    #[must_use]
    pub fn output_infos(&self, operator: &StructureOp) -> Vec<ValueInfo> {
        let inputs = self.infos(operator);
        let known =
            inputs.iter().zip(&operator.inputs).all(|(info, id)| info.is_some() || id.is_none());
        if known { operator.op.infer(&inputs).unwrap_or_default() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use crate::{GraphBuilder, Result};
    use lgp_compute::AxisKind;
    use lgp_memory::{DType, Dim, Shape, SymShape, Tensor, TensorType};

    #[test]
    fn operators_state_the_axes_of_stored_weights() -> Result<()> {
        let dims = vec![Dim::Symbol("n".into()), Dim::Known(1), Dim::Known(4), Dim::Known(4)];
        let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty);
        let w = g.initializer("w", Tensor::zeros(DType::F32, [8, 1, 3, 3])?);
        let y = g.node("Conv", &[x, w], []);
        let y = g.node("Gelu", &[y], []);
        g.output("y", y, TensorType { dtype: DType::F32, shape: None });
        let model = g.with_opset(20).finish()?;
        let structure = model.structure(&[("x", Shape::from([2, 1, 4, 4]))])?;
        let conv = &structure.operators[0];
        assert_eq!((conv.node, conv.op.name()), (0, "Conv"));
        assert_eq!(conv.cost.multiply_adds, 2 * 8 * 2 * 2 * 9);
        let axes = conv.op.axes(&structure.infos(conv), &structure.output_infos(conv));
        let maps = axes.of_input(1, 0).expect("the output channels");
        assert_eq!((maps.kind, maps.in_output(0)), (AxisKind::Each, Some(1)));
        assert_eq!(structure.values[conv.inputs[1].unwrap()].name, "w");
        assert!(structure.operators[1..].iter().all(|operator| operator.node == 1));
        let out = structure.values[structure.outputs[0]].info.as_ref().unwrap();
        assert_eq!(out.ty.concrete_shape().unwrap().dims(), [2, 8, 2, 2]);
        Ok(())
    }
}
