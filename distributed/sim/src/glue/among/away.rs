//! Partitions between machines and a shared service.

use crate::glue::net::Node;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The machines that cannot reach the service.
#[derive(Debug, Default)]
pub(super) struct Away(BTreeMap<Node, Cut>);

#[derive(Debug, Clone, Copy)]
struct Cut {
    until: Instant,
    answers_only: bool,
}

/// The fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// The request is carried out, but its answer is lost.
    Unheard,
    Lost,
}

impl Away {
    /// Cuts a machine off from the service, or only the answers to it, for a while.
    pub(super) fn cut(&mut self, node: Node, time: Duration, answers_only: bool) {
        self.0.insert(node, Cut { until: Instant::now() + time, answers_only });
    }

    pub(super) fn heal(&mut self) {
        self.0.clear();
    }

    pub(super) fn fate(&self, node: Node) -> Fate {
        match self.0.get(&node).filter(|cut| Instant::now() < cut.until) {
            None => Fate::Done,
            Some(cut) if cut.answers_only => Fate::Unheard,
            Some(_) => Fate::Lost,
        }
    }
}
