//! Runs of a model before it answers anybody.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run whose inputs are zeros, so that no client waits for what a first run prepares.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmUp {
    /// Shapes of inputs by name. An input that is not named has the shape that the model declares, with
    /// 1 for each length that it leaves open.
    pub shapes: BTreeMap<String, Vec<u64>>,
}
