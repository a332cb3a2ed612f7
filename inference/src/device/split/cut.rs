//! Where to cut a graph, so that each part fits its device and the fewest bytes cross.

use super::super::task::{Task, task_of};
use crate::graph::{Graph, ValueId};
use lgp_compute::ValueInfo;
use lgp_compute::device::{Accelerator, Recipe};
use std::ops::Range;

/// For each number of nodes on the devices so far: the fewest bytes that cross between these
/// devices, and the first node of the last device's part.
type Row = Vec<Option<(usize, usize)>>;

/// The costs of a graph whose dimensions are known, in the order of its nodes.
#[derive(Debug, Default)]
pub(super) struct Costs {
    /// For each node, the constants that its kernels read, and their bytes.
    weights: Vec<Vec<(usize, usize)>>,
    /// Bytes of the values that live while a node runs, and of its kernels' scratch.
    alive: Vec<usize>,
    /// Bytes of the values that nodes before this one made and that this node or a later one reads.
    crossing: Vec<usize>,
}

impl Costs {
    /// The costs of a graph if each device launches its fastest kernels.
    pub(super) fn new(graph: &Graph, accelerators: &[Accelerator]) -> Self {
        let count = graph.nodes.len();
        let mut costs =
            Self { weights: Vec::new(), alive: vec![0; count], crossing: vec![0; count] };
        let producers = graph.producers();
        let mut last_read = vec![None; graph.values.len()];
        for (at, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().flatten().for_each(|id| last_read[id.0] = Some(at));
            let mut weights = Vec::new();
            if let Task::Kernels(recipes, _) = task_of(graph, node) {
                // Any of the devices may run the node.
                let chosen = accelerators.iter().filter_map(|it| it.choose(recipes.clone()));
                let recipes: Vec<Recipe> = chosen.collect();
                let scratch = recipes.iter().map(|recipe| recipe.scratch().iter().sum());
                costs.alive[at] = scratch.max().unwrap_or(0);
                let reads = |i: usize| recipes.iter().any(|recipe| recipe.reads(i));
                let read = node.inputs.iter().enumerate().filter(|(i, _)| reads(*i));
                let constant = |id: ValueId| Some((id.0, graph.constant(id)?.as_bytes().len()));
                weights.extend(read.filter_map(|(_, id)| constant((*id)?)));
            }
            costs.weights.push(weights);
        }
        let mut is_output = vec![false; graph.values.len()];
        graph.outputs.iter().for_each(|(_, id)| is_output[id.0] = true);
        for (id, value) in graph.values.iter().enumerate() {
            let Some(bytes) = value.info.as_ref().and_then(bytes) else { continue };
            let Some(read) = last_read[id].or(producers[id]) else { continue };
            let end = if is_output[id] { count } else { read + 1 };
            costs.alive[producers[id].unwrap_or(0)..end].iter_mut().for_each(|sum| *sum += bytes);
            // Inputs of the graph come from the host, so they never cross.
            if let Some(made) = producers[id] {
                costs.crossing[made + 1..=read.max(made)].iter_mut().for_each(|sum| *sum += bytes);
            }
        }
        costs
    }

    /// The nodes of each device, in their order, such that the weights and the live values of each
    /// part fit its device's budget in bytes, and the fewest bytes cross between parts. Among equal
    /// cuts, earlier devices get more nodes. A part may be empty. `None` if no cut fits.
    pub(super) fn cut(&self, budgets: &[usize]) -> Option<Vec<Range<usize>>> {
        let count = self.alive.len();
        let mut nothing: Row = vec![None; count + 1];
        nothing[0] = Some((0, 0));
        let mut rows = vec![nothing];
        for &budget in budgets {
            let row = self.next_device(rows.last()?, budget);
            rows.push(row);
        }
        let mut end = count;
        let mut parts = Vec::with_capacity(budgets.len());
        for row in rows[1..].iter().rev() {
            let (_, begin) = row[end]?;
            parts.push(begin..end);
            end = begin;
        }
        parts.reverse();
        (end == 0).then_some(parts)
    }

    /// The row of a device, from the row of the device before it.
    fn next_device(&self, before: &Row, budget: usize) -> Row {
        let count = self.alive.len();
        let mut row: Row = vec![None; count + 1];
        // For each constant, the last part that counted it.
        let mut counted: Vec<usize> = Vec::new();
        for (begin, known) in before.iter().enumerate() {
            let Some((crossed, _)) = *known else { continue };
            let mut offer = |end: usize, bytes: usize| {
                if row[end].is_none_or(|(least, _)| bytes <= least) {
                    row[end] = Some((bytes, begin));
                }
            };
            offer(begin, crossed);
            let crossed = crossed + self.crossing.get(begin).copied().unwrap_or(0);
            let (mut stored, mut alive) = (0usize, 0);
            for at in begin..count {
                for &(id, bytes) in &self.weights[at] {
                    counted.resize(counted.len().max(id + 1), usize::MAX);
                    if std::mem::replace(&mut counted[id], begin) != begin {
                        stored += bytes;
                    }
                }
                alive = self.alive[at].max(alive);
                if stored + alive > budget {
                    break;
                }
                offer(at + 1, crossed);
            }
        }
        row
    }

    /// Bytes of all weights, and the most bytes of values and scratch at one node.
    pub(super) fn whole(&self) -> (usize, usize) {
        let mut weights: Vec<(usize, usize)> = self.weights.iter().flatten().copied().collect();
        weights.sort_unstable();
        weights.dedup();
        let alive = self.alive.iter().copied().max().unwrap_or(0);
        (weights.iter().map(|(_, bytes)| bytes).sum(), alive)
    }
}

/// Bytes of a tensor with known dimensions that is no constant.
fn bytes(info: &ValueInfo) -> Option<usize> {
    let shape = info.ty.concrete_shape().filter(|_| info.constant.is_none())?;
    shape.byte_len(info.ty.dtype).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five nodes with 10 bytes of weights each, of which the last two share one; few bytes live
    /// after the second node.
    fn costs() -> Costs {
        Costs {
            weights: [0, 1, 2, 3, 3].map(|id| vec![(id, 10)]).into(),
            alive: vec![8, 8, 6, 9, 9],
            crossing: vec![0, 8, 2, 6, 9],
        }
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a part of a cut is a range")]
    fn a_cut_crosses_least_and_keeps_the_budgets() {
        for (budgets, want) in [
            // One device has room for all nodes, so the second gets none.
            (vec![49, 49], Some(vec![0..5, 5..5])),
            (vec![17, 49], Some(vec![0..0, 0..5])),
            (vec![49], Some(vec![0..5; 1])),
            (vec![48], None),
            // The cut is where the fewest bytes cross, not where the first device is full.
            (vec![39, 39], Some(vec![0..2, 2..5])),
            (vec![28, 29], Some(vec![0..2, 2..5])),
            // Only the other cut fits the second device's budget.
            (vec![38, 19], Some(vec![0..3, 3..5])),
            (vec![18, 18, 29], Some(vec![0..1, 1..2, 2..5])),
            (vec![18, 38], None),
            (vec![], None),
        ] {
            assert_eq!(costs().cut(&budgets), want, "{budgets:?}");
        }
        assert_eq!(costs().whole(), (40, 9));
        assert_eq!(Costs::default().cut(&[0, 0]), Some(vec![0..0, 0..0]));
    }
}
