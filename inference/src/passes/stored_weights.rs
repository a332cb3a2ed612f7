//! Keeps the weights of products in their stored form of fewer bits, for kernels that widen weights
//! as they load them.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::rewrite::Decoder;
use lgp_compute::{Op, ValueInfo};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct StoredWeights {
    /// Whether the kernels are those of devices, which also read weights of f16 and bf16.
    pub(crate) on_device: bool,
}

impl Pass for StoredWeights {
    fn name(&self) -> &'static str {
        "stored-weights"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        (0..graph.nodes.len()).try_for_each(|index| graph.infer_node(index))?;
        let producers = graph.producers();
        for index in 0..graph.nodes.len() {
            let inputs = 0..graph.nodes[index].inputs.len();
            let found = inputs.rev().find_map(|i| self.stored(graph, index, i, &producers));
            if let Some((op, inputs)) = found {
                (graph.nodes[index].op, graph.nodes[index].inputs) = (op, inputs);
            }
        }
        Ok(())
    }
}

/// An operator and its inputs.
type Stored = (Arc<dyn Op>, Vec<Option<ValueId>>);

impl StoredWeights {
    /// The operator that reads an input in its stored form, and its inputs: the decoder's constants
    /// take the place of the decoded input.
    fn stored(
        &self,
        graph: &Graph,
        index: usize,
        input: usize,
        producers: &[Option<usize>],
    ) -> Option<Stored> {
        let node = &graph.nodes[index];
        let id = node.inputs.get(input).copied().flatten()?;
        let decoder = &graph.nodes[producers[id.0]?];
        let decodes = decoder.op.decodes()?;
        if !self.on_device && decodes == Decoder::Widens {
            return None;
        }
        let mut stored = decoder.inputs.iter().flatten();
        if !stored.all(|id| graph.constant(*id).is_some()) {
            return None;
        }
        let mut inputs = node.inputs.clone();
        inputs.splice(input..=input, decoder.inputs.iter().copied());
        let given: Vec<Option<&ValueInfo>> =
            inputs.iter().map(|id| id.and_then(|id| graph.info(id))).collect();
        let op = node.op.reading_stored(input, &decodes, &given)?;
        Some((op, inputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::{f32_type, graph_of};
    use lgp_memory::{DType, Tensor};

    /// The name of a product's operator after the pass, for the weight `w`, dequantised by a scale
    /// of `scales` elements along `axis`.
    fn becomes(w: Tensor, scales: usize, axis: i64, on_device: bool) -> Result<&'static str> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let half = w.dtype() == DType::F16;
        let w = g.initializer("w", w);
        let scale = vec![0.5f32; scales];
        let scale = match scales {
            1 => g.initializer("scale", Tensor::scalar(0.5f32)?),
            _ => g.initializer("scale", Tensor::from_slice([scales], &scale)?),
        };
        let w = match half {
            true => g.node("Cast", &[w], [("to", 1.into())]),
            false => g.node("DequantizeLinear", &[w, scale], [("axis", axis.into())]),
        };
        let y = g.node("MatMul", &[x, w], []);
        g.output("y", y, f32_type(&[None, None]));
        let mut graph = graph_of(g)?;
        StoredWeights { on_device }.run(&mut graph)?;
        Ok(graph.nodes.last().map_or("", |node| node.op.name()))
    }

    #[test]
    fn weights_stay_as_they_are_where_scales_belong_to_columns() -> Result<()> {
        for (dtype, scales, axis, on_device, on_cpu) in [
            (DType::I8, 3, 1, "MatMulStored", "MatMulStored"),
            (DType::I8, 4, 0, "MatMul", "MatMul"),
            (DType::U8, 1, 1, "MatMulStored", "MatMulStored"),
            (DType::F16, 1, 1, "MatMulStored", "MatMul"),
            (DType::I16, 1, 1, "MatMul", "MatMul"),
        ] {
            for (expected, is_device) in [(on_device, true), (on_cpu, false)] {
                let w = Tensor::zeros(dtype, [4, 3])?;
                assert_eq!(becomes(w, scales, axis, is_device)?, expected, "{dtype}");
            }
        }
        Ok(())
    }
}
