//! Makes tensors bf16 between operators that multiply bf16: they take half the memory, and nothing
//! is converted. A tensor stays f32 if one of its readers takes only f32.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, Node, ValueId};
use lgp_compute::ValueInfo;
use lgp_memory::DType;

#[derive(Debug)]
pub(crate) struct Bf16Values;

/// The dtypes that a node reads and writes.
struct Stance {
    /// The inputs, by number, that may be f32 or bf16.
    reads: Vec<usize>,
    writes: Writes,
}

#[derive(Clone, Copy, PartialEq)]
enum Writes {
    /// The output may be f32 or bf16.
    Either,
    /// The output has the dtype of the inputs, which must all have the same.
    Same,
    /// The output has another dtype, whatever the inputs have.
    Other,
}

impl Pass for Bf16Values {
    fn name(&self) -> &'static str {
        "bf16-values"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let halves = halves(graph);
        if !halves.contains(&true) {
            return Ok(());
        }
        for index in 0..graph.nodes.len() {
            let out = graph.nodes[index].outputs.first().copied().flatten();
            if let Some(op) = graph.nodes[index].op.narrowed()
                && out.is_some_and(|id| halves[id.0])
            {
                graph.nodes[index].op = op;
            }
            graph.infer_node(index)?;
        }
        Ok(())
    }
}

/// The values that become bf16: all that nodes can write and read so.
fn halves(graph: &Graph) -> Vec<bool> {
    let stances: Vec<Stance> = graph.nodes.iter().map(|node| stance(graph, node)).collect();
    // Inputs, constants and outputs of nodes that write f32 keep their dtype.
    let mut halves = vec![false; graph.values.len()];
    for (node, stance) in graph.nodes.iter().zip(&stances) {
        if stance.writes != Writes::Other
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
        // Going both ways carries a refusal along a whole chain at once.
        let nodes = graph.nodes.iter().zip(&stances);
        for (node, stance) in nodes.clone().chain(nodes.rev()) {
            refuse(node, stance, &mut halves);
        }
        if halves == before {
            return halves;
        }
    }
}

/// Withdraws the values that a node cannot read or write as bf16.
fn refuse(node: &Node, stance: &Stance, halves: &mut [bool]) {
    for (i, id) in node.inputs.iter().enumerate() {
        if let Some(id) = id.filter(|_| !stance.reads.contains(&i)) {
            halves[id.0] = false;
        }
    }
    if stance.writes == Writes::Same {
        let inputs = stance.reads.iter().filter_map(|&i| node.inputs.get(i).copied().flatten());
        let tied: Vec<ValueId> = inputs.chain(node.outputs.iter().copied().flatten()).collect();
        if tied.iter().any(|id| !halves[id.0]) {
            tied.iter().for_each(|id| halves[id.0] = false);
        }
    }
}

/// The stance of a node, from the types that its operator infers if its f32 inputs are bf16.
fn stance(graph: &Graph, node: &Node) -> Stance {
    let given = graph.infos(node);
    let is_float = |info: &&ValueInfo| info.ty.dtype == DType::F32 && info.constant.is_none();
    let floats: Vec<usize> =
        (0..given.len()).filter(|&i| given[i].as_ref().is_some_and(is_float)).collect();
    let dtype = |halves: &[usize]| {
        let narrow: Vec<Option<ValueInfo>> = given
            .iter()
            .enumerate()
            .map(|(i, info)| {
                let mut info = (*info)?.clone();
                if halves.contains(&i) {
                    info.ty.dtype = DType::BF16;
                }
                Some(info)
            })
            .collect();
        let narrow: Vec<Option<&ValueInfo>> = narrow.iter().map(Option::as_ref).collect();
        node.op.infer(&narrow).ok()?.first().map(|out| out.ty.dtype)
    };
    // A copy as f32 would gain nothing.
    let none = Stance { reads: Vec::new(), writes: Writes::Other };
    if node.op.widens_halves() || node.op.takes_data() || floats.is_empty() {
        let writes = if node.op.narrowed().is_some() { Writes::Either } else { Writes::Other };
        return Stance { writes, ..none };
    }
    let reads = match dtype(&floats) {
        Some(_) => floats,
        None => floats.into_iter().filter(|&i| dtype(&[i]).is_some()).collect(),
    };
    let writes = match dtype(&reads) {
        _ if node.op.narrowed().is_some() => Writes::Either,
        Some(DType::BF16) if !reads.is_empty() => Writes::Same,
        _ => Writes::Other,
    };
    Stance { reads, writes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::Value;
    use crate::options::Precision;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{GraphBuilder, SessionOptions};
    use lgp_memory::{Tensor, TensorType};

    /// The dtypes that the operators on channels-last images write after `build` and all passes;
    /// `None` if the machine lacks the instructions.
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

    /// Two convolutions, a pool between them, and a reader that takes only f32 after the second.
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
