//! How the time of an attempt at its worker was spent, for the trace of its request.

use crate::proto::message::AttemptId;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most nodes that are reported of one run.
const NODES_MAX: usize = 256;
/// The most bytes of a node's name, and of its operator's name.
const NAME_BYTES_MAX: usize = 64;
/// Runs whose traces are kept until they are collected.
const RUNS_MAX: usize = 64;

/// One node of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTime {
    /// Its operator, for example `Conv`.
    pub op: String,
    /// Its name in the model; names longer than 64 bytes are cut.
    pub name: String,
    /// Nanoseconds from the start of the run to the start of the node.
    pub start_ns: u64,
    /// Nanoseconds that it took.
    pub took_ns: u64,
}

/// An attempt of a task with [`TaskSpec::traced`](crate::TaskSpec::traced), as its worker measured it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTrace {
    /// From the arrival of the request at the worker to the start of the run: fetching inputs that
    /// did not arrive with the request, and waiting for the device.
    pub waited: Duration,
    /// The nodes of the run in the order in which they ran; for several tasks that ran as one, the
    /// nodes of the whole batch. Of more than 256 nodes, the longest are kept. Empty if the
    /// executor reports none.
    pub nodes: Vec<NodeTime>,
}

impl RunTrace {
    /// Limits the nodes to two thirds of a frame's header, and frees unused memory.
    pub(crate) fn shorten(nodes: &mut Vec<NodeTime>) {
        if nodes.len() > NODES_MAX {
            nodes.sort_by_key(|node| std::cmp::Reverse(node.took_ns));
            nodes.truncate(NODES_MAX);
            nodes.sort_by_key(|node| node.start_ns);
        }
        for text in nodes.iter_mut().flat_map(|node| [&mut node.op, &mut node.name]) {
            text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
            text.shrink_to_fit();
        }
        nodes.shrink_to_fit();
    }
}

/// The traces of the latest runs at their coordinator.
#[derive(Default)]
pub(crate) struct RunTraces(Mutex<VecDeque<(AttemptId, RunTrace)>>);

impl RunTraces {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(AttemptId, RunTrace)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the trace that a worker sent. When the table is full, the oldest trace is dropped.
    pub(crate) fn put(&self, id: AttemptId, mut trace: RunTrace) {
        RunTrace::shorten(&mut trace.nodes);
        let mut runs = self.lock();
        if runs.len() >= RUNS_MAX {
            runs.pop_front();
        }
        runs.push_back((id, trace));
    }

    /// Removes and returns the trace of an attempt.
    pub(crate) fn take(&self, id: AttemptId) -> Option<RunTrace> {
        let mut runs = self.lock();
        let at = runs.iter().position(|(of, _)| *of == id)?;
        runs.remove(at).map(|(_, trace)| trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::frame::HEADER_BYTES_MAX;

    fn node(start_ns: u64, took_ns: u64) -> NodeTime {
        NodeTime { op: "C".repeat(80), name: "é".repeat(40), start_ns, took_ns }
    }

    fn id(seq: u64) -> AttemptId {
        AttemptId { epoch: 1, seq, attempt: 1 }
    }

    #[test]
    fn the_longest_nodes_are_told_in_their_order() {
        let late = u64::MAX - 1_000;
        let took = |at| if at % 4 == 1 { u64::MAX } else { u64::MAX - 1 };
        let mut nodes = (0..1_000).map(|at| node(late + at, took(at))).collect();
        RunTrace::shorten(&mut nodes);
        let starts: Vec<u64> = nodes.iter().map(|node| node.start_ns - late).collect();
        let longest: Vec<u64> = (0..1_000).filter(|at| at % 4 == 1).collect();
        assert!(longest.iter().all(|at| starts.contains(at)), "{starts:?}");
        assert!(starts.len() == NODES_MAX && starts.is_sorted(), "{starts:?}");
        assert_eq!((&*nodes[0].op, &*nodes[0].name), (&*"C".repeat(64), &*"é".repeat(32)));
        assert!(nodes.capacity() == NODES_MAX && nodes[0].name.capacity() == NAME_BYTES_MAX);
        let trace = RunTrace { waited: Duration::MAX, nodes };
        let bytes = postcard::to_stdvec(&trace).expect("serialisable");
        assert!(bytes.len() < HEADER_BYTES_MAX * 2 / 3, "{}", bytes.len());
    }

    #[test]
    fn the_last_runs_are_remembered_once() {
        let traces = RunTraces::default();
        let many = RunTrace { waited: Duration::ZERO, nodes: vec![node(0, 1); 2 * NODES_MAX] };
        for seq in 0..=64 {
            traces.put(id(seq), many.clone());
        }
        assert_eq!(traces.take(id(0)), None);
        assert_eq!(traces.take(id(64)).map(|trace| trace.nodes.len()), Some(NODES_MAX));
        assert_eq!(traces.take(id(64)), None);
    }
}
