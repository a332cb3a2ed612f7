//! Which nodes are cheaper on the host when what crosses the link is counted: a minimum cut.

use petgraph::Direction;
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// What no sum of times reaches, in nanoseconds: a fortnight.
const NEVER: u64 = 1 << 50;
/// What a single time is at most.
const LONG: u64 = NEVER >> 16;

/// What a node takes, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeCost {
    /// `None` where the device cannot compute it.
    pub(super) device: Option<u64>,
    pub(super) host: u64,
}

/// A value that may cross the link, and what that takes in nanoseconds, once in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueCost {
    /// The node that makes it; `None` for what the caller gives, which is on the host.
    pub(super) from: Option<usize>,
    /// The nodes that read it.
    pub(super) to: Vec<usize>,
    /// Whether the caller gets it, on the host.
    pub(super) is_output: bool,
    pub(super) upload: u64,
    pub(super) download: u64,
}

/// For each node whether it belongs on the host, such that all together take least; of divisions
/// that take the same, one with more nodes on the device.
///
/// The device is the source of a flow and the host its sink. A node on the host cuts its edge from
/// the device, whose capacity is its time there, and the other way round. A value that is made on
/// one side has a vertex that must follow each reader on the other side, and then cuts the edge
/// that stands for one transfer (as Stone, *Multiprocessor Scheduling with the Aid of Network Flow
/// Algorithms*, 1977, has it for two processors, with one transfer for all readers).
pub(super) fn on_host(nodes: &[NodeCost], values: &[ValueCost]) -> Vec<bool> {
    let mut net = DiGraph::<(), u64>::new();
    let (device, host) = (net.add_node(()), net.add_node(()));
    let vertices: Vec<NodeIndex> = nodes.iter().map(|_| net.add_node(())).collect();
    for (&vertex, cost) in vertices.iter().zip(nodes) {
        net.add_edge(device, vertex, cost.host.min(LONG));
        net.add_edge(vertex, host, cost.device.map_or(NEVER, |time| time.min(LONG)));
    }
    for value in values {
        let readers = value.to.iter().map(|&to| vertices[to]);
        let caller = value.is_output.then_some(host);
        let maker = value.from.map_or(host, |from| vertices[from]);
        let (downloaded, uploaded) = (net.add_node(()), net.add_node(()));
        net.add_edge(maker, downloaded, value.download.min(LONG));
        net.add_edge(uploaded, maker, value.upload.min(LONG));
        for reader in readers.chain(caller) {
            net.add_edge(downloaded, reader, NEVER);
            net.add_edge(reader, uploaded, NEVER);
        }
    }
    let (_, flow) = dinics(&net, device, host);
    let side = reaching(&net, host, &flow);
    vertices.iter().map(|vertex| side[vertex.index()]).collect()
}

/// The vertices from which more could flow to `sink`: what must be on its side of a minimum cut.
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

    /// What a division takes, counted as a run does.
    fn total(nodes: &[NodeCost], values: &[ValueCost], on_host: &[bool]) -> u64 {
        let computing = nodes
            .iter()
            .zip(on_host)
            .map(|(cost, &host)| if host { cost.host } else { cost.device.unwrap_or(NEVER) });
        let moving = values.iter().map(|value| {
            let made_on_host = value.from.is_none_or(|from| on_host[from]);
            if made_on_host {
                if value.to.iter().any(|&to| !on_host[to]) { value.upload } else { 0 }
            } else if value.is_output || value.to.iter().any(|&to| on_host[to]) {
                value.download
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
                .map(|_| NodeCost { device: (next(6) > 0).then(|| next(20)), host: next(40) })
                .collect();
            let mut values = Vec::new();
            for from in std::iter::once(None).chain((0..count).map(Some)) {
                let first = from.map_or(0, |from| from + 1);
                let to: Vec<usize> = (first..count).filter(|_| next(3) == 0).collect();
                let is_output = from == Some(count - 1) || next(5) == 0 && from.is_some();
                let (upload, download) = (next(12), next(12));
                values.push(ValueCost { from, to, is_output, upload, download });
            }
            let chosen = on_host(&nodes, &values);
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
    fn what_takes_the_same_stays_on_the_device() {
        let nodes = [NodeCost { device: Some(5), host: 5 }; 3];
        assert_eq!(on_host(&nodes, &[]), [false; 3]);
        assert_eq!(on_host(&[], &[]), [false; 0]);
        let never = [NodeCost { device: None, host: u64::MAX }];
        assert_eq!(on_host(&never, &[]), [true]);
    }
}
