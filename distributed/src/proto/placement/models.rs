//! Models: what the cluster knows of each, and the state of each at a device.

use crate::batching::{Batching, ZeroInput};
use crate::executor::ExecError;
use crate::proto::scheduler::service::Service;
use crate::task::ModelRef;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Most backends whose model sizes are remembered: their names come from workers.
const BACKENDS_MAX: usize = 16;

/// What a model asks of the devices that run it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelNeeds {
    /// Bytes of device memory that it takes on any device. If unset, the bytes measured on devices
    /// of the same backend count; before one of them has loaded it, the bytes measured on others.
    pub memory_bytes: Option<u64>,
    /// The backend that it runs best on, for example `opencl`.
    pub backend: Option<String>,
    /// The family of chips that it runs best on, for example `Polaris`.
    pub family: Option<String>,
    /// How long a run of it may take; see [`TaskSpec::run_limit`](crate::TaskSpec::run_limit).
    pub run_limit: Option<Duration>,
    /// Other models that may answer in its place, such as a quantised one: the strategy `adaptive`
    /// takes the one that it expects to finish first. Each must be loaded, too.
    pub variants: Vec<ModelRef>,
    /// How its tasks are batched; by default as
    /// [`WorkerConfig::batch_max`](crate::WorkerConfig::batch_max) and
    /// [`batch_delay`](crate::WorkerConfig::batch_delay) of the worker say. With it, each device holds
    /// at most [`slots`](crate::WorkerConfig::slots) × [`Batching::max`] of its tasks, beside those of
    /// other models.
    pub batching: Option<Batching>,
    /// Inputs of the runs that each device makes after loading, before the model counts as loaded.
    pub warm_up: Vec<Vec<ZeroInput>>,
}

/// A model that the cluster should have.
#[derive(Debug)]
pub(in crate::proto) struct Wanted {
    /// The one copy of its name.
    name: Arc<ModelRef>,
    needs: ModelNeeds,
    /// Models that may answer in its place.
    variants: Vec<Arc<ModelRef>>,
    load: Service,
    /// The most memory that devices of a backend said it takes.
    measured_bytes: BTreeMap<String, u64>,
    /// Whether it has been ready on any device.
    was_ready: bool,
    /// A caller waits until it is on a device, and other models may be evicted for that.
    insists: bool,
    /// When room for it may be looked for again.
    next_look: Duration,
}

impl Wanted {
    /// A model that a caller waits for.
    pub(super) fn new(
        name: Arc<ModelRef>,
        needs: ModelNeeds,
        variants: Vec<Arc<ModelRef>>,
    ) -> Self {
        Self {
            name,
            needs,
            variants,
            load: Service::default(),
            measured_bytes: BTreeMap::new(),
            was_ready: false,
            insists: true,
            next_look: Duration::ZERO,
        }
    }

    /// A caller wants it again, with other needs; measurements stay.
    pub(super) fn again(&mut self, needs: ModelNeeds, variants: Vec<Arc<ModelRef>>) {
        self.set_needs(needs, variants);
        (self.insists, self.next_look) = (true, Duration::ZERO);
    }

    pub(super) fn set_needs(&mut self, needs: ModelNeeds, variants: Vec<Arc<ModelRef>>) {
        (self.needs, self.variants) = (needs, variants);
    }

    /// The one copy of its name.
    pub(in crate::proto) fn name(&self) -> &Arc<ModelRef> {
        &self.name
    }

    pub(in crate::proto) fn needs(&self) -> &ModelNeeds {
        &self.needs
    }

    /// How long a run of it may take, where that is said.
    pub(in crate::proto) fn run_limit(&self) -> Option<Duration> {
        self.needs.run_limit
    }

    /// Models that may answer in its place.
    pub(super) fn variants(&self) -> &[Arc<ModelRef>] {
        &self.variants
    }

    /// Whether a caller waits until it is on some device.
    pub(in crate::proto) fn insists(&self) -> bool {
        self.insists
    }

    /// It is on some device, so no caller waits for that any more.
    pub(in crate::proto) fn arrived(&mut self) {
        self.insists = false;
    }

    /// Milliseconds that loading it takes, as measured; 0 before the first time.
    pub(in crate::proto) fn load_ms(&self) -> f64 {
        self.load.mean_ms()
    }

    /// [`Wanted::load_ms`] as a duration.
    pub(in crate::proto) fn load_time(&self) -> Duration {
        Duration::try_from_secs_f64(self.load_ms() / 1e3).unwrap_or_default()
    }

    /// Records how long a load took.
    pub(super) fn measure_load(&mut self, now: Duration, took: Duration) {
        self.load.measure(now, took);
    }

    /// Whether another model may answer in its place.
    pub(in crate::proto) fn may_be(&self, other: &ModelRef) -> bool {
        self.variants.iter().any(|variant| **variant == *other)
    }

    /// Whether it has been ready on any device.
    pub(in crate::proto) fn was_ready(&self) -> bool {
        self.was_ready
    }

    pub(super) fn is_ready(&mut self) {
        self.was_ready = true;
    }

    /// Whether room for it may be looked for; if so, not again for a while.
    pub(in crate::proto) fn may_look(&mut self, now: Duration, pause: Duration) -> bool {
        let may = now >= self.next_look;
        if may {
            self.next_look = now + pause;
        }
        may
    }

    /// Bytes of device memory that it takes, as far as known: the most of all backends.
    pub(in crate::proto) fn bytes(&self) -> Option<u64> {
        self.needs.memory_bytes.or(self.measured_bytes.values().max().copied())
    }

    /// Bytes of device memory that it takes on a backend; if no device of that backend has loaded
    /// it, the bytes on others.
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

/// The state of a model at one device. In every state but `Failed`, the model takes room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::proto) enum ModelState {
    Loading {
        /// When it was last ordered.
        asked: Duration,
    },
    Ready {
        /// When it was loaded or a task of it last ended.
        used: Duration,
    },
    /// Takes no more tasks, and is unloaded after its last one: another model needs the room.
    Leaving,
    /// The worker was told to unload it, and has not confirmed that.
    Going {
        /// When it was last told.
        asked: Duration,
        /// Bytes of device memory that it takes, where known.
        bytes: Option<u64>,
    },
    /// The device has it, but the core did not place it there: no caller asked for it, or there is
    /// no room for it.
    Stray {
        /// When it was first seen, or last had a task.
        used: Duration,
    },
    Failed(ExecError),
}

/// The state of a model that a device is told to load.
pub(in crate::proto) fn ordered(now: Duration) -> ModelState {
    ModelState::Loading { asked: now }
}
