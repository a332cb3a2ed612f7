//! An attempt at a device.

use crate::proto::placement::standing::Standing;
use crate::task::ModelRef;
use std::sync::Arc;
use std::time::Duration;

/// An attempt that takes a slot.
#[derive(Debug, Clone)]
pub(in crate::proto) struct Held {
    /// The time of its dispatch or, later, of the last heartbeat that named it.
    pub(in crate::proto) confirmed: Duration,
    pub(in crate::proto) model: Arc<ModelRef>,
    pub(in crate::proto) standing: Standing,
}
