//! Which nodes move to channels-last: connected regions whose convolutions gain more than the
//! transposes at their borders cost.

use super::{Input, anchor, follow};
use crate::graph::{Graph, ValueId};
use lgp_compute::ops::Transpose;
use lgp_memory::Dim;

/// Products that a convolution must do for each element that a transpose at the border moves. A
/// transpose moves an element in the time of some ten to twenty products; less than that cannot
/// pay even if the convolution came for free.
const PRODUCTS_AN_ELEMENT: usize = 16;
/// What unknown spatial dimensions are taken for.
const SIDE: usize = 32;

/// For each node, whether it moves.
pub(super) fn choose(graph: &Graph) -> Vec<bool> {
    let count = graph.nodes.len();
    let producers = graph.producers();
    // The values that each node would read channels-last, and whether it would write such.
    let mut reads: Vec<Vec<ValueId>> = vec![Vec::new(); count];
    let mut writes = vec![false; count];
    let mut chosen = vec![false; count];
    let mut regions = Regions((0..count).collect());
    for (index, node) in graph.nodes.iter().enumerate() {
        if anchor::is_anchor(graph, node) {
            chosen[index] = true;
            writes[index] = true;
            reads[index].extend(node.inputs.first().copied().flatten());
        } else if let Some(form) = follow::follower(graph, node) {
            let values = form.steps.iter().flat_map(|step| &step.inputs);
            reads[index].extend(values.filter_map(|input| match input {
                Input::ChannelsLast(id) => Some(*id),
                _ => None,
            }));
            writes[index] = form.channels_last.contains(&true);
            chosen[index] = reads[index]
                .iter()
                .any(|id| producers[id.0].is_some_and(|p| chosen[p] && writes[p]));
        }
        if chosen[index] {
            for id in &reads[index] {
                if let Some(p) = producers[id.0].filter(|&p| chosen[p] && writes[p]) {
                    regions.join(p, index);
                }
            }
        }
    }
    keep_what_pays(graph, &producers, &reads, &writes, &mut regions, &mut chosen);
    chosen
}

fn keep_what_pays(
    graph: &Graph,
    producers: &[Option<usize>],
    reads: &[Vec<ValueId>],
    writes: &[bool],
    regions: &mut Regions,
    chosen: &mut [bool],
) {
    let mut gain = vec![0usize; chosen.len()];
    let mut cost = vec![0usize; chosen.len()];
    let mut entered = std::collections::HashSet::new();
    let mut left = vec![false; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        if chosen[index] {
            let region = regions.of(index);
            let made = node.outputs.first().copied().flatten().map_or(0, |id| size(graph, id).0);
            let products = anchor::depth(graph, node).saturating_mul(made);
            gain[region] = gain[region].saturating_add(products);
            for id in &reads[index] {
                let inside = producers[id.0].is_some_and(|p| chosen[p] && writes[p]);
                let cancels = producers[id.0].is_some_and(|p| graph.op::<Transpose>(p).is_some());
                if !inside && !cancels && entered.insert((region, *id)) {
                    cost[region] = cost[region].saturating_add(size(graph, *id).1);
                }
            }
        }
        let free = graph.op::<Transpose>(index).is_some();
        for id in
            node.inputs.iter().flatten().filter(|id| !reads[index].contains(id) || !chosen[index])
        {
            left[id.0] |= !free;
        }
    }
    graph.outputs.iter().for_each(|(_, id)| left[id.0] = true);
    for (value, _) in left.iter().enumerate().filter(|(_, left)| **left) {
        if let Some(p) = producers[value].filter(|&p| chosen[p] && writes[p]) {
            let region = regions.of(p);
            cost[region] = cost[region].saturating_add(size(graph, ValueId(value)).1);
        }
    }
    for (index, chosen) in chosen.iter_mut().enumerate() {
        let region = regions.of(index);
        *chosen &= gain[region] >= cost[region].saturating_mul(PRODUCTS_AN_ELEMENT);
    }
}

/// About how many elements a value has, and how many of them a transpose moves: none where one
/// pixel or one channel is all there is.
fn size(graph: &Graph, id: ValueId) -> (usize, usize) {
    let Some(shape) = graph.info(id).and_then(|info| info.ty.shape.as_ref()) else { return (0, 0) };
    let dims: Vec<usize> = shape
        .0
        .iter()
        .enumerate()
        .map(|(axis, dim)| match dim {
            Dim::Known(n) => *n,
            _ if axis == 0 => 1,
            _ => SIDE,
        })
        .collect();
    let all = dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    match *dims.as_slice() {
        [_, 1, _, _] | [_, _, 1, 1] => (all, 0),
        _ => (all, all),
    }
}

/// Sets of nodes, by union-find.
struct Regions(Vec<usize>);

impl Regions {
    fn of(&mut self, node: usize) -> usize {
        let mut root = node;
        while self.0[root] != root {
            self.0[root] = self.0[self.0[root]];
            root = self.0[root];
        }
        root
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.of(a), self.of(b));
        self.0[b] = a;
    }
}
