//! The core, step by step: what the simulation leaves to chance.

mod attempts;
mod batching;
mod hangs;
mod recall;
mod records;
mod residency;
mod resume;
mod workers;

use crate::error::Error;
use crate::executor::{DeviceStatus, ExecError, ExecutorStatus};
use crate::proto::Order;
use crate::proto::balance::by_name;
use crate::proto::core::{Core, Found};
use crate::proto::image::Change;
use crate::proto::membership::Join;
use crate::proto::message::{AttemptId, Heartbeat, Stint};
use crate::proto::models::ModelNeeds;
use crate::proto::placement::Worker;
use crate::proto::state::{
    Action, Completion, CoreConfig, Digest, RetentionLimits, SessionId, Timing,
};
use crate::task::{ModelRef, TaskErrorKind, TaskFilter, TaskId, TaskRecord, TaskSpec, TaskState};
use crate::worker_info::WorkerState;
use lgp_memory::{DType, NamedTensor, Tensor};
use std::sync::Arc;
use std::time::Duration;

pub(super) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(in crate::proto) fn config() -> CoreConfig {
    CoreConfig {
        epoch: 9,
        first_seq: None,
        balancing: by_name("least_loaded").expect("in the table"),
        queue_tasks_max: 3,
        queue_bytes_max: 1_000,
        retention: RetentionLimits {
            retained_tasks_max: 10,
            retained_bytes_max: 1_000,
            keys_kept_for: ms(60_000),
            results_kept_for: ms(600_000),
            results_bytes_max: 1 << 20,
            results_max: 50,
            outputs_inline_max: 1 << 20,
        },
        durable: true,
        thrift: 0.0,
        run_limit: None,
        timing: Timing::default(),
    }
}

pub(super) fn core() -> Core {
    Core::new(ms(0), config(), 1)
}

pub(super) fn spec() -> TaskSpec {
    let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
    TaskSpec::new(model, Vec::new())
}

pub(super) fn submit(core: &mut Core, now: Duration, spec: TaskSpec) -> TaskId {
    core.submit(now, order(spec, 10)).expect("there is room")
}

pub(super) fn order(spec: TaskSpec, input_bytes: usize) -> Order {
    let (digest, queued_bytes) = (Digest::default(), input_bytes);
    Order { spec: Arc::new(spec), input_bytes, queued_bytes, digest, within: Vec::new() }
}

/// A process starts and connects.
pub(super) fn join(core: &mut Core, now: Duration, name: &str, slots: u32) -> SessionId {
    let incarnation = core.next_session();
    connect(core, now, (name, incarnation), slots).0
}

/// Returns the session, and whether it goes on from an earlier one.
fn connect(
    core: &mut Core,
    now: Duration,
    (name, incarnation): (&str, u64),
    slots: u32,
) -> (SessionId, bool) {
    let mut join = joining((name, incarnation), slots);
    join.stint = core.placement.fleet().latest(&join.id).map(Worker::stint);
    let (session, stint) = core.join(now, join).expect("none is later");
    (session, stint.session != session)
}

/// How a worker joins that was never welcomed.
fn joining((name, incarnation): (&str, u64), slots: u32) -> Join {
    Join {
        id: name.parse().expect("a name"),
        incarnation,
        pid: None,
        slots,
        threads: slots,
        status: ExecutorStatus::default(),
        input_bytes_max: u64::MAX,
        machine: "m".into(),
        version: String::new(),
        stint: None,
    }
}

/// Empties the actions; returns the dispatches among them.
fn dispatched(core: &mut Core) -> Vec<(SessionId, AttemptId)> {
    std::iter::from_fn(|| core.next_action(ms(0)))
        .filter_map(|action| match action {
            Action::Dispatch { session, id, .. } => Some((session, id)),
            _ => None,
        })
        .collect()
}

pub(super) fn done() -> Completion {
    Completion::Done { outputs: Vec::new(), model: ms(2), batch: 1, joined: false }
}

fn beat(held: &[AttemptId]) -> Heartbeat {
    let held: Vec<(AttemptId, bool)> = held.iter().map(|id| (*id, true)).collect();
    Heartbeat::all(&held, ExecutorStatus::default()).remove(0)
}

/// Carries out the journal's actions; returns the changes.
fn journal(core: &mut Core, now: Duration) -> Vec<Change> {
    let mut changes = Vec::new();
    while let Some(action) = core.next_action(now) {
        if let Action::Record { ticket, change } = action {
            changes.push(change);
            core.recorded(now, ticket);
        }
    }
    changes
}
