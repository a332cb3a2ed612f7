//! The time that a run spends on each node.

use crate::graph::{Node, ValueId};
use lgp_compute::ValueInfo;
use lgp_memory::TensorType;
use std::time::{Duration, Instant};

/// One node of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeProfile {
    /// The node's name. A node that a pass made has the name of a node that it stands for.
    pub name: String,
    /// The node's operator after all passes.
    pub op: &'static str,
    /// Time from the start of the run to the start of the node.
    pub start: Duration,
    /// Time of the node.
    pub duration: Duration,
    /// Bytes of the node's inputs, stored ones included.
    pub bytes_read: usize,
    /// Bytes of the node's outputs.
    pub bytes_written: usize,
    /// Multiplications with an addition, as the operator counts them for these shapes.
    pub multiply_adds: u64,
    /// Types of the node's tensor outputs.
    pub outputs: Vec<TensorType>,
}

/// The nodes of a run in the order in which they ran. A graph inside a node counts as that node.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profile {
    /// The nodes.
    pub nodes: Vec<NodeProfile>,
    /// Time of the whole run: the nodes, and the time between them.
    pub total: Duration,
}

impl Profile {
    /// Time between nodes: the engine's cost besides its kernels.
    #[must_use]
    pub fn overhead(&self) -> Duration {
        self.total.saturating_sub(self.nodes.iter().map(|n| n.duration).sum())
    }

    /// Each operator with the number and the total time of its nodes, the most expensive first.
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

/// The clock of a run, which starts with it.
#[derive(Debug)]
pub(crate) struct Recorder {
    begin: Instant,
    profile: Profile,
    /// Whether a batch runs as a whole for this recorder, even if its images would run one by one.
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

    /// Records a node that began at `start` and has just ended. `ty` gives the types of its inputs
    /// and outputs that are tensors.
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
