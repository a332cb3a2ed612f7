//! What is known of a model that the cluster is to have: what it asks for, and what was measured.

use crate::proto::service::Service;
use crate::task::ModelRef;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Backends whose sizes of a model are remembered: workers name them.
const BACKENDS_MAX: usize = 16;

/// What a model asks of the devices that run it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNeeds {
    /// Device memory that it takes, on any device. Where it is not said, it is what devices of the
    /// same backend were measured to need; before one has loaded it, what others were.
    pub memory_bytes: Option<u64>,
    /// The backend that it runs best on, for example `opencl`.
    pub backend: Option<String>,
    /// The family of chips that it runs best on, for example `Polaris`.
    pub family: Option<String>,
    /// Other models that may answer in its place, such as a quantised one: the strategy
    /// `adaptive` takes the one that is expected to be done first. Each is to be loaded too.
    pub variants: Vec<ModelRef>,
}

/// A model that the cluster is to have.
#[derive(Debug)]
pub(in crate::proto) struct Wanted {
    /// The one copy of its name.
    pub(in crate::proto) model: Arc<ModelRef>,
    pub(in crate::proto) needs: ModelNeeds,
    /// What may answer in its place.
    pub(in crate::proto) variants: Vec<Arc<ModelRef>>,
    pub(super) load: Service,
    /// The most memory that devices of a backend said it takes.
    pub(super) measured_bytes: BTreeMap<String, u64>,
    /// It has been ready somewhere.
    pub(super) was_ready: bool,
    /// A caller waits for it to be somewhere, for which others may have to go.
    pub(super) insists: bool,
    /// When room for it may be looked for again.
    pub(in crate::proto) next_look: Duration,
}

impl Wanted {
    /// Whether a caller waits until it is on some device.
    pub(in crate::proto) fn insists(&self) -> bool {
        self.insists
    }

    /// Milliseconds that loading it takes, as measured; 0 before the first time.
    pub(in crate::proto) fn load_ms(&self) -> f64 {
        self.load.mean_ms()
    }

    /// Whether another model may answer in its place.
    pub(in crate::proto) fn may_be(&self, other: &ModelRef) -> bool {
        self.variants.iter().any(|variant| **variant == *other)
    }

    /// Whether it has been ready on any device.
    pub(in crate::proto) fn was_ready(&self) -> bool {
        self.was_ready
    }

    /// Device memory that it takes, as far as that is known: the most of all backends.
    pub(in crate::proto) fn bytes(&self) -> Option<u64> {
        self.needs.memory_bytes.or(self.measured_bytes.values().max().copied())
    }

    /// Device memory that it takes on a backend; where none of its devices has loaded it, what it
    /// takes on others.
    pub(in crate::proto) fn bytes_on(&self, backend: &str) -> Option<u64> {
        let measured = self.measured_bytes.get(backend).copied();
        self.needs.memory_bytes.or(measured).or_else(|| self.bytes())
    }

    pub(super) fn measured(&mut self, backend: &str, bytes: u64) {
        let known = self.measured_bytes.len() < BACKENDS_MAX;
        if let Some(most) = self.measured_bytes.get_mut(backend) {
            *most = bytes.max(*most);
        } else if known {
            self.measured_bytes.insert(backend.to_owned(), bytes);
        }
    }
}
