//! Recognises channels that a reshape, a transpose and a reshape shuffle: these three would keep
//! the images in the model's own layout.

use super::Pass;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::ChannelShuffle;
use lgp_memory::Dim;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct ShuffleFusion;

impl Pass for ShuffleFusion {
    fn name(&self) -> &'static str {
        "shuffle-fusion"
    }

    fn run(&self, graph: &mut Graph) -> Result<()> {
        let producers = graph.producers();
        for index in 0..graph.nodes.len() {
            if let Some((x, groups)) = shuffled(graph, index, &producers) {
                let node = &mut graph.nodes[index];
                node.op = Arc::new(ChannelShuffle { axis: 1, groups });
                node.inputs = vec![Some(x)];
            }
        }
        Ok(())
    }
}

/// The images whose channels a node's output has in another order, and the number of groups.
fn shuffled(graph: &Graph, index: usize, producers: &[Option<usize>]) -> Option<(ValueId, usize)> {
    let out = graph.nodes[index].outputs.first().copied().flatten()?;
    let turned = reshaped(graph, index)?;
    let transpose = &graph.nodes[producers[turned.0]?];
    let apart = transpose.inputs.first().copied().flatten()?;
    let given = graph.infos(transpose);
    let order = transpose.op.axes(&given, &transpose.op.infer(&given).ok()?).permutation(5)?;
    let x = reshaped(graph, producers[apart.0]?)?;
    let dims = |id: ValueId| Some(graph.info(id)?.ty.shape.as_ref()?.0.as_slice());
    let ([n, c, h, w], [_, groups, each, height, width]) = (dims(x)?, dims(apart)?) else {
        return None;
    };
    let (groups, each) = (groups.known()?, each.known()?);
    let same = [height, width] == [h, w] && dims(out)? == [n, c, h, w].map(Clone::clone);
    let known = !dims(out)?.contains(&Dim::Unknown);
    let is_shuffle =
        order == [0, 2, 1, 3, 4] && transpose.op.moves() && transpose.inputs.len() == 1;
    (same && known && is_shuffle && c.known() == Some(groups * each)).then_some((x, groups))
}

/// The input of a node that only changes its shape.
fn reshaped(graph: &Graph, index: usize) -> Option<ValueId> {
    let node = &graph.nodes[index];
    let reshapes = node.op.passes_memory_on() && node.op.moves();
    node.inputs.first().copied().flatten().filter(|_| reshapes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::dead_code::DeadCodeElimination;
    use crate::passes::tests::{f32_type, graph_of};
    use crate::{Attr, GraphBuilder};
    use lgp_memory::Tensor;

    #[test]
    fn shuffles_are_one_operator() -> Result<()> {
        for (order, expected) in [([0i64, 2, 1, 3, 4], 1), ([0, 1, 2, 4, 3], 3)] {
            let mut g = GraphBuilder::new("g");
            let x = g.input("x", f32_type(&[Some(2), Some(6), Some(3), Some(3)]));
            let apart = g.initializer("apart", Tensor::from_slice([5], &[2i64, 2, 3, 3, 3])?);
            let back = g.initializer("back", Tensor::from_slice([4], &[2i64, 6, 3, 3])?);
            let y = g.node("Reshape", &[x, apart], []);
            let y = g.node("Transpose", &[y], [("perm", Attr::from(order))]);
            let y = g.node("Reshape", &[y, back], []);
            g.output("y", y, f32_type(&[None, None, None, None]));
            let mut graph = graph_of(g)?;
            graph.infer()?;
            ShuffleFusion.run(&mut graph)?;
            DeadCodeElimination.run(&mut graph)?;
            assert_eq!(graph.nodes.len(), expected, "{order:?}");
        }
        Ok(())
    }
}
