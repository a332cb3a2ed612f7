//! Proves from the axes of operators that the rows of a batch are independent: a batch may then run
//! row by row, and tasks of one row each may run as a batch.

use crate::graph::{Graph, Node, ValueId};
use lgp_compute::{AxisKind, ValueInfo};
use lgp_memory::Dim;

/// The relation of a value to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The value is the same for every row and any number of rows.
    Same,
    /// The value's first axis is that of the rows, and each position follows from its own row
    /// alone.
    Rows,
    /// The value is a shape that contains the number of rows.
    Size,
    /// Anything else.
    Mixed,
}

/// Whether each row of all outputs follows from the same row of the inputs, whatever the number of
/// rows: the first dimension of all of them is one symbol, and no operator mixes rows.
pub(crate) fn are_independent(graph: &Graph) -> bool {
    let Some(rows) = graph.inputs.first().and_then(|&id| leading(graph, id)) else { return false };
    if graph.inputs.iter().any(|&id| leading(graph, id) != Some(rows)) {
        return false;
    }
    let mut parts = vec![Part::Mixed; graph.values.len()];
    for (part, value) in parts.iter_mut().zip(&graph.values) {
        if value.info.as_ref().is_some_and(|info| info.constant.is_some()) {
            *part = Part::Same;
        }
    }
    graph.inputs.iter().for_each(|id| parts[id.0] = Part::Rows);
    for node in &graph.nodes {
        let made = made(graph, node, rows, &parts);
        for id in node.outputs.iter().flatten() {
            if graph.constant(*id).is_none() {
                parts[id.0] = counted(graph, *id, rows).unwrap_or(made);
            }
        }
    }
    graph.outputs.iter().all(|(_, id)| parts[id.0] == Part::Rows)
}

/// The symbol of a value's first dimension.
fn leading(graph: &Graph, id: ValueId) -> Option<&str> {
    match graph.info(id)?.dim(0)? {
        Dim::Symbol(name) => Some(name),
        _ => None,
    }
}

/// For a value that holds dimensions: whether the number of rows is one of them.
fn counted(graph: &Graph, id: ValueId, rows: &str) -> Option<Part> {
    let dims = graph.info(id)?.dims.as_ref()?;
    let unknown = dims.contains(&Dim::Unknown);
    let counts = dims.iter().any(|dim| matches!(dim, Dim::Symbol(name) if **name == *rows));
    match (unknown, counts) {
        (true, _) => None,
        (false, true) => Some(Part::Size),
        (false, false) => Some(Part::Same),
    }
}

/// The relation of a node's outputs to the rows.
fn made(graph: &Graph, node: &Node, rows: &str, parts: &[Part]) -> Part {
    let read = |i: usize| node.inputs.get(i).copied().flatten().map(|id| parts[id.0]);
    let given: Vec<Option<Part>> = (0..node.inputs.len()).map(read).collect();
    if given.iter().flatten().all(|part| *part == Part::Same) {
        return Part::Same;
    }
    if given.contains(&Some(Part::Mixed)) {
        return Part::Mixed;
    }
    let infos: Vec<Option<&ValueInfo>> =
        node.inputs.iter().map(|id| id.and_then(|id| graph.info(id))).collect();
    let Ok(outputs) = node.op.infer(&infos) else { return Part::Mixed };
    let axes = node.op.axes(&infos, &outputs);
    let Some(axis) = axes.of_output(0, 0).filter(|axis| axis.kind == AxisKind::Each) else {
        return Part::Mixed;
    };
    let one = |info: Option<&ValueInfo>, own: usize| {
        info.and_then(|info| info.dim(own)).is_some_and(|dim| *dim == Dim::Known(1))
    };
    let sizes = node.op.shape_input();
    let inputs = given.iter().enumerate().all(|(i, part)| match (part, axis.in_input(i)) {
        (Some(Part::Rows), own) => own == Some(0),
        (Some(Part::Same), Some(own)) => one(infos[i], own),
        (Some(Part::Size), own) => own.is_none() && sizes == Some(i),
        _ => true,
    });
    let sized = given.contains(&Some(Part::Size));
    let is_rows = |dim: &Dim| matches!(dim, Dim::Symbol(name) if **name == *rows);
    let written = node.outputs.iter().enumerate().all(|(o, id)| {
        let Some(dims) = id.and_then(|id| graph.info(id)?.ty.shape.as_ref()) else {
            return id.is_none();
        };
        // A size that depends on the number of rows would differ for one row.
        let others = |dim: &Dim| !(is_rows(dim) || sized && *dim == Dim::Unknown);
        axis.in_output(o) == Some(0)
            && dims.0.first().is_some_and(is_rows)
            && dims.0.iter().skip(1).all(others)
    });
    if inputs && written { Part::Rows } else { Part::Mixed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Value;
    use crate::passes::tests::graph_of;
    use crate::{Attr, GraphBuilder, Result};
    use lgp_memory::{DType, SymShape, Tensor, TensorType};

    fn rows(dims: &[usize]) -> TensorType {
        let mut shape = vec![Dim::Symbol("n".into())];
        shape.extend(dims.iter().map(|&d| Dim::Known(d)));
        TensorType { dtype: DType::F32, shape: Some(SymShape(shape)) }
    }

    fn ints(g: &mut GraphBuilder, data: &[i64]) -> Value {
        let name = format!("{data:?}");
        g.initializer(name, Tensor::from_slice([data.len()], data).expect("it is small"))
    }

    type Build = fn(&mut GraphBuilder, Value) -> Value;

    /// The nodes between a batch and its output, and whether the rows stay independent.
    const CASES: &[(&str, Build, bool)] = &[
        ("relu", |g, x| g.node("Relu", &[x], []), true),
        ("softmax of rows", |g, x| g.node("Softmax", &[x], [("axis", Attr::from(-1))]), true),
        ("softmax of columns", |g, x| g.node("Softmax", &[x], [("axis", Attr::from(0))]), false),
        ("twice", |g, x| g.node("Concat", &[x, x], [("axis", Attr::from(0))]), false),
        ("side by side", |g, x| g.node("Concat", &[x, x], [("axis", Attr::from(1))]), true),
        (
            "product",
            |g, x| {
                let w = g.initializer("w", Tensor::zeros(DType::F32, [4, 3]).expect("it is small"));
                g.node("MatMul", &[x, w], [])
            },
            true,
        ),
        (
            "gram",
            |g, x| {
                let t = g.node("Transpose", &[x], []);
                g.node("MatMul", &[x, t], [])
            },
            false,
        ),
        (
            "minus the mean of all rows",
            |g, x| {
                let mean = g.node("ReduceMean", &[x], [("axes", Attr::from([0]))]);
                g.node("Sub", &[x, mean], [])
            },
            false,
        ),
        (
            "shape and back",
            |g, x| {
                let shape = g.node("Shape", &[x], []);
                let flat = ints(g, &[-1]);
                let y = g.node("Reshape", &[x, flat], []);
                let y = g.node("Reshape", &[y, shape], []);
                g.node("Relu", &[y], [])
            },
            false,
        ),
        (
            "heads",
            |g, x| {
                let four = ints(g, &[0, 2, 2]);
                let back = ints(g, &[-1, 4]);
                let y = g.node("Reshape", &[x, four], []);
                let y = g.node("Transpose", &[y], [("perm", Attr::from([0, 2, 1]))]);
                g.node("Reshape", &[y, back], [])
            },
            true,
        ),
        (
            "expanded to the batch",
            |g, x| {
                let shape = g.node("Shape", &[x], []);
                let one = g.initializer("one", Tensor::scalar(2f32).expect("it is small"));
                let y = g.node("Expand", &[one, shape], []);
                g.node("Mul", &[x, y], [])
            },
            true,
        ),
        (
            "divided by the number of rows",
            |g, x| {
                let shape = g.node("Shape", &[x], [("end", Attr::from(1))]);
                let n = g.node("Cast", &[shape], [("to", Attr::from(1))]);
                g.node("Div", &[x, n], [])
            },
            false,
        ),
        (
            "numbered",
            |g, x| {
                let scalar = |g: &mut GraphBuilder, n: i64| {
                    g.initializer(format!("{n}"), Tensor::scalar(n).expect("it is small"))
                };
                let (zero, one) = (scalar(g, 0), scalar(g, 1));
                let n = g.node("Shape", &[x], [("end", Attr::from(1))]);
                let n = g.node("Squeeze", &[n], []);
                let y = g.node("Range", &[zero, n, one], []);
                let y = g.node("Cast", &[y], [("to", Attr::from(1))]);
                let column = ints(g, &[-1, 1]);
                let y = g.node("Reshape", &[y, column], []);
                g.node("Add", &[x, y], [])
            },
            false,
        ),
    ];

    #[test]
    fn rows_are_apart_where_no_operator_mixes_them() -> Result<()> {
        for (name, build, apart) in CASES {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", rows(&[4]));
            let y = build(&mut g, x);
            g.output("y", y, TensorType { dtype: DType::F32, shape: None });
            let mut graph = graph_of(g)?;
            crate::passes::optimize(&mut graph)?;
            assert_eq!(are_independent(&graph), *apart, "{name}");
        }
        Ok(())
    }

    #[test]
    fn an_input_of_another_size_is_no_batch() -> Result<()> {
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", rows(&[4]));
        let w = g.input("w", crate::passes::tests::f32_type(&[Some(4)]));
        let y = g.node("Mul", &[x, w], []);
        g.output("y", y, rows(&[4]));
        let mut graph = graph_of(g)?;
        crate::passes::optimize(&mut graph)?;
        assert!(!are_independent(&graph));
        Ok(())
    }
}
