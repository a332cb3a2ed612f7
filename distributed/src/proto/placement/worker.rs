//! A worker as the core keeps it.

use super::energy::Energy;
use super::hot::SeatId;
use super::seat::Kept;
use crate::executor::{DeviceStatus, UnusedDevice};
use crate::proto::membership::Join;
use crate::proto::message::{AttemptId, Stint};
use crate::proto::scheduler::Breaker;
use crate::proto::state::SessionId;
use crate::task::ModelRef;
use crate::worker_info::{Transport, WorkerId, WorkerState};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
pub(in crate::proto) struct Worker {
    id: WorkerId,
    session: SessionId,
    stint: Stint,
    /// Tells processes of one name apart: a later one has a larger number.
    incarnation: u64,
    pid: Option<u32>,
    /// Bytes that the inputs of one task may have.
    input_bytes_max: u64,
    machine: String,
    /// The version of its program.
    version: String,
    pub(super) state: WorkerState,
    pub(super) last_seen: Duration,
    completed: u64,
    /// A seat per device, in the order of the devices; empty once the worker is lost.
    pub(super) seats: Vec<SeatId>,
    /// What a lost worker held.
    pub(super) kept: Vec<Kept>,
    /// Breakers that have counted a failure, by model.
    breakers: BTreeMap<ModelRef, Breaker>,
    /// What it last said of its devices.
    status: Vec<DeviceStatus>,
    /// Devices of its machine that it does not use, as it last reported them.
    unused: Vec<UnusedDevice>,
    /// The energy of each device that it uses.
    energy: Vec<Energy>,
    transport: Transport,
}

impl Worker {
    pub(super) fn new(
        (session, stint): (SessionId, Stint),
        now: Duration,
        join: &Join,
        status: Vec<DeviceStatus>,
    ) -> Self {
        Self {
            id: join.id.clone(),
            session,
            stint,
            incarnation: join.incarnation,
            pid: join.pid,
            input_bytes_max: join.input_bytes_max,
            machine: join.machine.clone(),
            version: join.version.clone(),
            state: WorkerState::Ready,
            last_seen: now,
            completed: 0,
            seats: Vec::new(),
            kept: Vec::new(),
            breakers: BTreeMap::new(),
            energy: status.iter().map(|_| Energy::default()).collect(),
            status,
            unused: Vec::new(),
            transport: Transport::default(),
        }
    }

    pub(in crate::proto) fn id(&self) -> &WorkerId {
        &self.id
    }

    pub(in crate::proto) fn session(&self) -> SessionId {
        self.session
    }

    /// The stint of its session.
    pub(in crate::proto) fn stint(&self) -> Stint {
        self.stint
    }

    pub(in crate::proto) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(in crate::proto) fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The machine that it runs on.
    pub(in crate::proto) fn machine(&self) -> &str {
        &self.machine
    }

    /// The version of its program.
    pub(in crate::proto) fn version(&self) -> &str {
        &self.version
    }

    pub(in crate::proto) fn state(&self) -> WorkerState {
        self.state
    }

    pub(in crate::proto) fn is_ready(&self) -> bool {
        self.state == WorkerState::Ready
    }

    pub(in crate::proto) fn is_lost(&self) -> bool {
        self.state == WorkerState::Lost
    }

    /// When it was last heard of.
    pub(in crate::proto) fn last_seen(&self) -> Duration {
        self.last_seen
    }

    /// The most bytes of inputs that it takes.
    pub(in crate::proto) fn input_bytes_max(&self) -> u64 {
        self.input_bytes_max
    }

    /// Whether it takes inputs of so many bytes.
    pub(in crate::proto) fn takes(&self, input_bytes: usize) -> bool {
        u64::try_from(input_bytes).is_ok_and(|bytes| bytes <= self.input_bytes_max)
    }

    /// Attempts that it has answered.
    pub(in crate::proto) fn completed(&self) -> u64 {
        self.completed
    }

    pub(in crate::proto) fn count_completed(&mut self) {
        self.completed += 1;
    }

    pub(in crate::proto) fn seats(&self) -> &[SeatId] {
        &self.seats
    }

    /// What it last said of its devices.
    pub(in crate::proto) fn status(&self) -> &[DeviceStatus] {
        &self.status
    }

    /// What it last said of devices that it does not use.
    pub(in crate::proto) fn unused(&self) -> &[UnusedDevice] {
        &self.unused
    }

    pub(in crate::proto) fn set_unused(&mut self, unused: Vec<UnusedDevice>) {
        self.unused = unused;
    }

    pub(in crate::proto) fn set_status(&mut self, now: Duration, status: &[DeviceStatus]) {
        for (energy, device) in self.energy.iter_mut().zip(status) {
            energy.read(now, device.power_w);
        }
        self.status.clear();
        self.status.extend_from_slice(status);
    }

    /// Joules that a device has used since the worker connected.
    pub(in crate::proto) fn energy_j(&self, device: usize) -> Option<f64> {
        self.energy.get(device)?.joules()
    }

    pub(in crate::proto) fn transport(&self) -> Transport {
        self.transport
    }

    /// How tensors travel to it now.
    pub(in crate::proto) fn set_transport(&mut self, transport: Transport) {
        self.transport = transport;
    }

    /// Whether its breaker lets tasks of a model pass.
    pub(in crate::proto) fn passes(&self, model: &ModelRef) -> bool {
        self.breakers.get(model).is_none_or(|breaker| breaker.passes())
    }

    /// Models whose tasks it does not get for now, each with its breaker.
    pub(in crate::proto) fn open_breakers(&self) -> impl Iterator<Item = (&ModelRef, Breaker)> {
        let breakers = self.breakers.iter().map(|(model, breaker)| (model, *breaker));
        breakers.filter(|(_, breaker)| !breaker.passes())
    }

    /// Counts a failure with a model; if that opens the breaker, returns until when.
    pub(super) fn failed(&mut self, now: Duration, model: &ModelRef) -> Option<Duration> {
        self.breakers.entry(model.clone()).or_default().fail(now)
    }

    /// Counts a success with a model. True when its tasks may pass again.
    pub(super) fn worked(&mut self, model: &ModelRef) -> bool {
        let removed = self.breakers.remove(model);
        removed.is_some_and(|breaker| !matches!(breaker, Breaker::Closed { .. }))
    }

    /// An attempt was sent. True when no other may follow it for now.
    pub(super) fn passed(&mut self, id: AttemptId, model: &ModelRef) -> bool {
        self.breakers.get_mut(model).is_some_and(|breaker| breaker.passed(id))
    }

    /// Time passed. True when a probe may pass from now on.
    pub(super) fn wake(&mut self, now: Duration, model: &ModelRef) -> bool {
        self.breakers.get_mut(model).is_some_and(|breaker| breaker.wake(now))
    }

    /// An attempt ended without a verdict. True when another probe may be sent.
    pub(super) fn abandon(&mut self, id: AttemptId, model: &ModelRef) -> bool {
        self.breakers.get_mut(model).is_some_and(|breaker| breaker.abandon(id))
    }

    /// Forgets its breaker for a model.
    pub(super) fn forget_breaker(&mut self, model: &ModelRef) {
        self.breakers.remove(model);
    }
}
