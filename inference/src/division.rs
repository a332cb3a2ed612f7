//! Divides nodes between two sides by a minimum cut, so that nodes and crossings cost least
//! together. The sides are a device and the host, or two layouts of tensors.

use petgraph::Direction;
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// More than any sum of costs: as nanoseconds, about a fortnight.
const NEVER: u64 = 1 << 50;
/// The most that a single cost counts.
const LARGE: u64 = NEVER >> 16;

/// The costs of a node on either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeCost {
    /// The cost if the node moves; `None` if it cannot.
    pub(crate) moved: Option<u64>,
    /// The cost if the node stays.
    pub(crate) stays: u64,
}

/// A value that may cross, once for all its readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueCost {
    /// The node that makes the value; `None` for a value that is made where nodes stay.
    pub(crate) from: Option<usize>,
    /// The nodes that read the value on their own side.
    pub(crate) to: Vec<usize>,
    /// Whether the value is also read where nodes stay, apart from the nodes in `to`.
    pub(crate) stays: bool,
    /// The cost of crossing to the side where nodes move.
    pub(crate) out: u64,
    /// The cost of crossing back.
    pub(crate) back: u64,
}

/// Whether each node moves, such that the sum of all costs is least. Among equal divisions, the
/// most nodes move.
///
/// The side where nodes move is the source of a flow, the other side its sink. A node that stays
/// cuts its edge from the source, whose capacity is the cost of staying, and a node that moves its
/// edge to the sink. A value has a vertex for each direction, which must follow every reader on the
/// other side and then cuts the edge for one crossing (Stone, *Multiprocessor Scheduling with the
/// Aid of Network Flow Algorithms*, 1977, for two processors; here one crossing serves all
/// readers).
pub(crate) fn moved(nodes: &[NodeCost], values: &[ValueCost]) -> Vec<bool> {
    let mut net = DiGraph::<(), u64>::new();
    let (there, here) = (net.add_node(()), net.add_node(()));
    let vertices: Vec<NodeIndex> = nodes.iter().map(|_| net.add_node(())).collect();
    for (&vertex, cost) in vertices.iter().zip(nodes) {
        net.add_edge(there, vertex, cost.stays.min(LARGE));
        net.add_edge(vertex, here, cost.moved.map_or(NEVER, |cost| cost.min(LARGE)));
    }
    for value in values {
        let readers = value.to.iter().map(|&to| vertices[to]);
        let others = value.stays.then_some(here);
        let maker = value.from.map_or(here, |from| vertices[from]);
        let (back, out) = (net.add_node(()), net.add_node(()));
        net.add_edge(maker, back, value.back.min(LARGE));
        net.add_edge(out, maker, value.out.min(LARGE));
        for reader in readers.chain(others) {
            net.add_edge(back, reader, NEVER);
            net.add_edge(reader, out, NEVER);
        }
    }
    let (_, flow) = dinics(&net, there, here);
    let stays = reaching(&net, here, &flow);
    vertices.iter().map(|vertex| !stays[vertex.index()]).collect()
}

/// The vertices from which more could flow to `sink`: they must be on its side of a minimum cut.
fn reaching(net: &DiGraph<(), u64>, sink: NodeIndex, flow: &[u64]) -> Vec<bool> {
    let mut reached = vec![false; net.node_count()];
    reached[sink.index()] = true;
    let mut open = vec![sink];
    while let Some(at) = open.pop() {
        let room = net.edges_directed(at, Direction::Incoming);
        let room = room.filter(|edge| flow[edge.id().index()] < *edge.weight());
        let back = net.edges_directed(at, Direction::Outgoing);
        let back = back.filter(|edge| flow[edge.id().index()] > 0);
        let next = room.map(|edge| edge.source()).chain(back.map(|edge| edge.target()));
        for vertex in next.collect::<Vec<_>>() {
            if !std::mem::replace(&mut reached[vertex.index()], true) {
                open.push(vertex);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of a division, counted as a run would.
    fn total(nodes: &[NodeCost], values: &[ValueCost], moved: &[bool]) -> u64 {
        let computing = nodes
            .iter()
            .zip(moved)
            .map(|(cost, &moved)| if moved { cost.moved.unwrap_or(NEVER) } else { cost.stays });
        let moving = values.iter().map(|value| {
            let made_there = value.from.is_some_and(|from| moved[from]);
            if !made_there {
                if value.to.iter().any(|&to| moved[to]) { value.out } else { 0 }
            } else if value.stays || value.to.iter().any(|&to| !moved[to]) {
                value.back
            } else {
                0
            }
        });
        computing.chain(moving).sum()
    }

    #[test]
    fn no_division_is_cheaper() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut divided = 0;
        for _ in 0..400 {
            let count = 1 + next(8) as usize;
            let nodes: Vec<NodeCost> = (0..count)
                .map(|_| NodeCost { moved: (next(6) > 0).then(|| next(20)), stays: next(40) })
                .collect();
            let mut values = Vec::new();
            for from in std::iter::once(None).chain((0..count).map(Some)) {
                let first = from.map_or(0, |from| from + 1);
                let to: Vec<usize> = (first..count).filter(|_| next(3) == 0).collect();
                let stays = from == Some(count - 1) || next(5) == 0 && from.is_some();
                let (out, back) = (next(12), next(12));
                values.push(ValueCost { from, to, stays, out, back });
            }
            let chosen = moved(&nodes, &values);
            let all = (0..1usize << count).map(|bits| {
                let side: Vec<bool> = (0..count).map(|i| bits >> i & 1 == 1).collect();
                total(&nodes, &values, &side)
            });
            assert_eq!(Some(total(&nodes, &values, &chosen)), all.min(), "{nodes:?} {values:?}");
            divided += usize::from(chosen.contains(&true) && chosen.contains(&false));
        }
        assert!(divided > 50, "{divided} of the cases were divided");
    }

    #[test]
    fn nodes_that_cost_the_same_move() {
        let nodes = [NodeCost { moved: Some(5), stays: 5 }; 3];
        assert_eq!(moved(&nodes, &[]), [true; 3]);
        assert_eq!(moved(&[], &[]), [false; 0]);
        let never = [NodeCost { moved: None, stays: u64::MAX }];
        assert_eq!(moved(&never, &[]), [false]);
    }
}
