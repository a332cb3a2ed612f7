//! Reports the effect of each pass on a model.

use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::model::{Model, ValueSpec};
use crate::onnx;
use crate::options::SessionOptions;
use crate::plan::MemoryPlan;
use lgp_memory::{DType, Shape};
use serde::Serialize;

/// A graph's size before and after a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassReport {
    /// The pass.
    pub name: String,
    /// Nodes before it.
    pub nodes_before: usize,
    /// Nodes after it.
    pub nodes_after: usize,
    /// Bytes of the arena planned for the intermediate tensors before it.
    pub arena_bytes_before: usize,
    /// Bytes of the arena planned for them after it.
    pub arena_bytes_after: usize,
}

/// Compiles a model pass by pass, and plans its memory for inputs of the given shapes.
///
/// # Errors
/// As [`crate::Session::new`]; [`Error::Graph`] for an input without a shape, or a shape for no
/// input.
pub fn pass_reports(model: &Model, shapes: &[(&str, Shape)]) -> Result<Vec<PassReport>> {
    let signature = signature(model.inputs(), shapes)?;
    let mut graph = onnx::lower(model, SessionOptions::default())?;
    let measure = |graph: &Graph| (graph.nodes.len(), MemoryPlan::new(graph, &signature, 1).bytes);
    let mut before = measure(&graph);
    let mut reports = Vec::new();
    super::optimize_watched(&mut graph, |name, graph| {
        let after = measure(graph);
        reports.push(PassReport {
            name: name.to_owned(),
            nodes_before: before.0,
            nodes_after: after.0,
            arena_bytes_before: before.1,
            arena_bytes_after: after.1,
        });
        before = after;
    })?;
    Ok(reports)
}

/// Dtype and shape of each input, in the model's order. A shape for no input is an error.
pub(crate) fn signature(
    inputs: &[ValueSpec],
    shapes: &[(&str, Shape)],
) -> Result<Vec<(DType, Shape)>> {
    let known = |name: &str| inputs.iter().any(|spec| spec.name == name);
    if let Some((name, _)) = shapes.iter().find(|(name, _)| !known(name)) {
        return Err(Error::graph(format!("a shape is given for '{name}', which is no input")));
    }
    let one = |spec: &ValueSpec| match shapes.iter().find(|(name, _)| *name == spec.name) {
        Some((_, shape)) => Ok((spec.ty.dtype, shape.clone())),
        None => Err(Error::graph(format!("input '{}' is given no shape", spec.name))),
    };
    inputs.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;
    use crate::passes::tests::f32_type;

    #[test]
    fn reports_follow_each_other() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[None, Some(4)]));
        let a = g.node("Identity", &[x], []);
        let b = g.node("Relu", &[a], []);
        let c = g.node("Relu", &[b], []);
        g.output("y", c, f32_type(&[None, Some(4)]));
        let model = g.finish()?;
        let reports = pass_reports(&model, &[("x", Shape::from([2, 4]))])?;
        assert!(reports.windows(2).all(|w| w[0].nodes_after == w[1].nodes_before));
        assert!(reports.windows(2).all(|w| w[0].arena_bytes_after == w[1].arena_bytes_before));
        let (first, last) = (&reports[0], &reports[reports.len() - 1]);
        assert_eq!((first.nodes_before, last.nodes_after), (3, 2));
        assert_eq!(last.arena_bytes_after, 64);
        let error = pass_reports(&model, &[]).expect_err("no shape").to_string();
        assert!(error.contains("'x'"), "{error}");
        let both = [("x", Shape::from([2, 4])), ("X", Shape::from([2, 4]))];
        let error = pass_reports(&model, &both).expect_err("no such input").to_string();
        assert!(error.contains("'X'"), "{error}");
        Ok(())
    }
}
