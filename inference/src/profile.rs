//! What a run spent its time on, node by node.

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

    pub(crate) fn node(&mut self, node: NodeProfile) {
        self.profile.nodes.push(node);
    }

    pub(crate) fn finish(mut self) -> Profile {
        self.profile.total = self.now();
        self.profile
    }
}
