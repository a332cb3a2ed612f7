//! Where convolutions multiply bf16, the images between them are bf16 too: half the memory, and
//! nothing to convert. What any reader cannot take so stays f32.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ops::{Concat, ConvNhwc, GlobalPoolNhwc, PoolKind, PoolNhwc};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct ConvBf16;

/// How a node stands to images in bf16.
enum Stance {
    /// Reads the inputs of these numbers as f32 or bf16, and may write its output as either.
    Either(Vec<usize>),
    /// Its output is what its first inputs, so many, are.
    Same(usize),
    /// Reads its input as f32 or bf16 and writes f32.
    Widens,
    /// Knows f32 alone.
    Plain,
}

impl Pass for ConvBf16 {
    fn name(&self) -> &'static str {
        "conv-bf16"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let halves = halves(graph);
        if !halves.contains(&true) {
            return Ok(());
        }
        for index in 0..graph.nodes.len() {
            let out = graph.nodes[index].outputs.first().copied().flatten();
            if let Some(conv) = graph.op::<ConvNhwc>(index).filter(|op| op.multiplies_bf16())
                && out.is_some_and(|id| halves[id.0])
            {
                let op = Arc::new(conv.clone().with_bf16_output());
                let node = &mut graph.nodes[index];
                *node = Node { op, ..node.clone() };
            }
            graph.infer_node(index)?;
        }
        Ok(())
    }
}

/// Which values become bf16: all that can be written and read so.
fn halves(graph: &Graph) -> Vec<bool> {
    let stances: Vec<Stance> = (0..graph.nodes.len()).map(|index| stance(graph, index)).collect();
    // From inputs, constants and nodes that write f32 nothing else can be read.
    let mut halves = vec![false; graph.values.len()];
    for (node, stance) in graph.nodes.iter().zip(&stances) {
        if matches!(stance, Stance::Either(_) | Stance::Same(_))
            && let Some(Some(out)) = node.outputs.first()
        {
            halves[out.0] = true;
        }
    }
    for (_, id) in &graph.outputs {
        halves[id.0] = false;
    }
    loop {
        let before = halves.clone();
        // A refusal travels along a chain in one go, whichever way it goes.
        let nodes = graph.nodes.iter().zip(&stances);
        for (node, stance) in nodes.clone().chain(nodes.rev()) {
            refuse(node, stance, &mut halves);
        }
        if halves == before {
            return halves;
        }
    }
}

/// Takes back what a node cannot read or write.
fn refuse(node: &Node, stance: &Stance, halves: &mut [bool]) {
    let taken = |i: usize| match stance {
        Stance::Either(inputs) => inputs.contains(&i),
        Stance::Same(count) => i < *count,
        Stance::Widens => i == 0,
        Stance::Plain => false,
    };
    for (i, id) in node.inputs.iter().enumerate() {
        if let Some(id) = id.filter(|_| !taken(i)) {
            halves[id.0] = false;
        }
    }
    if let Stance::Same(count) = stance {
        let inputs = node.inputs.iter().take(*count);
        let tied: Vec<ValueId> = inputs.chain(node.outputs.first()).copied().flatten().collect();
        if tied.iter().any(|id| !halves[id.0]) {
            tied.iter().for_each(|id| halves[id.0] = false);
        }
    }
}

fn stance(graph: &Graph, index: usize) -> Stance {
    if let Some(conv) = graph.op::<ConvNhwc>(index) {
        return if conv.is_depthwise() {
            Stance::Same(1)
        } else if !conv.multiplies_bf16() {
            Stance::Plain
        } else if conv.geometry().channels.is_multiple_of(2) {
            Stance::Either(vec![0, 3])
        } else {
            Stance::Either(vec![3])
        };
    }
    if graph.op::<PoolNhwc>(index).is_some_and(|pool| pool.kind == PoolKind::Max) {
        return Stance::Same(1);
    }
    if graph.op::<Concat>(index).is_some() {
        return Stance::Same(graph.nodes[index].inputs.len());
    }
    if graph.op::<GlobalPoolNhwc>(index).is_some() {
        return Stance::Widens;
    }
    Stance::Plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Value;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::session::Precision;
    use crate::{GraphBuilder, SessionOptions};
    use lgp_memory::{DType, Tensor, TensorType};

    /// What the operators on channels-last images write after `build`, optimised; `None` without
    /// the instructions.
    fn dtypes(
        build: impl FnOnce(&mut GraphBuilder, Value) -> Value,
    ) -> Result<Option<Vec<(&'static str, DType)>>> {
        let options = SessionOptions { precision: Precision::Fast, ..SessionOptions::default() };
        if !lgp_compute::Simd::detect(options.isa).bf16() {
            println!("skipped: avx512bf16: this machine does not have it");
            return Ok(None);
        }
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", f32_type(&[Some(1), Some(3), Some(32), Some(32)]));
        let y = build(&mut g, x);
        let y = g.node("Sin", &[y], []);
        g.output("y", y, TensorType { dtype: DType::F32, shape: None });
        let mut graph = graph_of(g)?;
        graph.options = options;
        crate::passes::optimize(&mut graph)?;
        let made = graph.nodes.iter().filter_map(|node| {
            let out = node.outputs.first().copied().flatten()?;
            Some((node.op.name(), graph.info(out)?.ty.dtype))
        });
        Ok(Some(made.filter(|(name, _)| name.ends_with("Nhwc")).collect()))
    }

    fn conv(g: &mut GraphBuilder, x: Value, channels: usize) -> Value {
        let zeros = Tensor::zeros(DType::F32, [16, channels, 3, 3]).unwrap();
        let w = g.initializer(format!("w{channels}"), zeros);
        g.node("Conv", &[x, w], [])
    }

    fn pool(g: &mut GraphBuilder, x: Value) -> Value {
        g.node("MaxPool", &[x], [("kernel_shape", vec![2i64, 2].into())])
    }

    const CONV: &str = "ConvNhwc";
    const POOL: &str = "MaxPoolNhwc";

    /// Two convolutions, a pool between them, and a reader of f32 after the second.
    #[test]
    fn images_between_convolutions_are_bf16() -> Result<()> {
        let dtypes = dtypes(|g, x| {
            let y = conv(g, x, 3);
            let y = pool(g, y);
            conv(g, y, 16)
        })?;
        let Some(dtypes) = dtypes else { return Ok(()) };
        assert_eq!(dtypes, [(CONV, DType::BF16), (POOL, DType::BF16), (CONV, DType::F32)]);
        Ok(())
    }

    #[test]
    fn a_late_reader_of_f32_takes_back_a_chain() -> Result<()> {
        let dtypes = dtypes(|g, x| {
            let mut y = conv(g, x, 3);
            y = conv(g, y, 16);
            for _ in 0..3 {
                y = pool(g, y);
            }
            y
        })?;
        let Some(dtypes) = dtypes else { return Ok(()) };
        let pools = [(POOL, DType::F32); 3];
        assert_eq!(dtypes, [&[(CONV, DType::BF16), (CONV, DType::F32)][..], &pools].concat());
        Ok(())
    }
}
