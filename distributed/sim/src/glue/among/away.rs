//! What coordinators share, out of reach of some of them for a while.

use crate::glue::net::Node;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Who does not reach it.
#[derive(Debug, Default)]
pub(super) struct Away(BTreeMap<Node, Cut>);

#[derive(Debug, Clone, Copy)]
struct Cut {
    until: Instant,
    answers_only: bool,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// It is done, and the one who asked does not hear of it.
    Unheard,
    Lost,
}

impl Away {
    /// A machine does not reach it for a while, or does not hear its answers.
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
