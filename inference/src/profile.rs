//! What a run spent its time on, node by node.

use crate::graph::{Node, ValueId};
use lgp_compute::ValueInfo;
use lgp_memory::TensorType;
use std::time::{Duration, Instant};

/// One node of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeProfile {
    /// The node's name. Nodes that passes made carry the name of one that they stand for.
    pub name: String,
    /// Its operator, after all passes.
    pub op: &'static str,
    /// From the start of the run to the node's.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
    /// Bytes of its inputs, stored ones included.
    pub bytes_read: usize,
    /// Bytes of its outputs.
    pub bytes_written: usize,
    /// Multiplications with an addition, as the operator counts them for these shapes.
    pub multiply_adds: u64,
    /// Types of its tensor outputs.
    pub outputs: Vec<TensorType>,
}

/// A run's nodes in the order in which they ran. Graphs inside nodes count as their node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// The nodes.
    pub nodes: Vec<NodeProfile>,
    /// The whole run: the nodes, and what lies between them.
    pub total: Duration,
}

impl Profile {
    /// Time between nodes: what the engine costs beside its kernels.
    #[must_use]
    pub fn overhead(&self) -> Duration {
        self.total.saturating_sub(self.nodes.iter().map(|n| n.duration).sum())
    }

    /// Operators with the number of their nodes and the time of all, the most expensive first.
    #[must_use]
    pub fn by_operator(&self) -> Vec<(&'static str, usize, Duration)> {
        let mut sums: std::collections::BTreeMap<&str, (usize, Duration)> = Default::default();
        for node in &self.nodes {
            let (count, time) = sums.entry(node.op).or_default();
            *count += 1;
            *time += node.duration;
        }
        let mut sums: Vec<_> = sums.into_iter().map(|(op, (n, time))| (op, n, time)).collect();
        sums.sort_by_key(|(_, _, time)| std::cmp::Reverse(*time));
        sums
    }
}

/// A clock that starts with the run.
#[derive(Debug)]
pub(crate) struct Recorder {
    begin: Instant,
    profile: Profile,
    /// Whether a batch runs as a whole for it, which is not how it runs otherwise.
    pub(crate) wants_whole: bool,
}

impl Recorder {
    pub(crate) fn new(wants_whole: bool) -> Self {
        Self { begin: Instant::now(), profile: Profile::default(), wants_whole }
    }

    /// Time since the start of the run.
    pub(crate) fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Tells of a node that began at `start` and has just ended. `ty` has the types of its inputs
    /// and outputs, as far as they are tensors.
    pub(crate) fn node(
        &mut self,
        node: &Node,
        start: Duration,
        ty: impl Fn(ValueId) -> Option<TensorType>,
    ) {
        let duration = self.now().saturating_sub(start);
        let types = |ids: &[Option<ValueId>]| -> Vec<TensorType> {
            ids.iter().flatten().filter_map(|id| ty(*id)).collect()
        };
        let bytes = |types: &[TensorType]| {
            let sizes = types.iter().filter_map(|ty| ty.concrete_shape()?.byte_len(ty.dtype).ok());
            sizes.sum()
        };
        let outputs = types(&node.outputs);
        let known = |id: &Option<ValueId>| id.and_then(&ty).map(ValueInfo::of);
        let given: Vec<Option<ValueInfo>> = node.inputs.iter().map(known).collect();
        let given: Vec<Option<&ValueInfo>> = given.iter().map(Option::as_ref).collect();
        let made: Vec<ValueInfo> = outputs.iter().cloned().map(ValueInfo::of).collect();
        self.profile.nodes.push(NodeProfile {
            name: node.name.clone(),
            op: node.op.name(),
            start,
            duration,
            bytes_read: bytes(&types(&node.inputs)),
            bytes_written: bytes(&outputs),
            multiply_adds: node.op.multiply_adds(&given, &made),
            outputs,
        });
    }

    pub(crate) fn finish(mut self) -> Profile {
        self.profile.total = self.now();
        self.profile
    }
}
