//! The state of lowering: the mappings carry it, and `lower.rs` adds the methods that lower graphs.

use super::unsupported::Unsupported;
use crate::graph::ValueId;
use crate::operators::Operators;
use std::collections::{BTreeMap, HashMap};

/// The values that a node can name.
pub(crate) type Names = HashMap<String, ValueId>;

/// The state that all graphs of a model share while they are lowered.
#[derive(Debug)]
pub(crate) struct Lowering {
    pub(super) opsets: BTreeMap<String, i64>,
    pub(super) operators: Operators,
    pub(super) unsupported: Unsupported,
    /// How deep the bodies nest that were lowered since this was last set to 0.
    pub(super) depth: usize,
}
