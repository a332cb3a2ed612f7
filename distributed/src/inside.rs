//! The internals that the simulation's crate may use. Only builds with that crate have this module.

use crate::control::authority::Authority;
use crate::control::log::Place;
use crate::control::record::Key;
use crate::control::shared;
use crate::net::coordinator::gate::Services;
use crate::proto::image::Image;
use crate::{
    CaHash, Control, Coordinator, CoordinatorConfig, Identity, JoinToken, Pki, Priority, Result,
    Role, TaskId, TaskState, WorkerId,
};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

pub use crate::net::coordinator::core_handle::CoreHandle;
pub use crate::proto::planted::Planted;

pub mod authority {
    pub use crate::control::authority::{Authority, Members, Present};
}

pub mod balance {
    pub use crate::proto::balance::by_name;
}

pub mod call {
    pub use crate::net::call::untrusted::{is_answer, is_call, samples};
}

pub mod core {
    pub use crate::proto::core::{Core, Errand, Found, Left, recollect};
    pub use crate::proto::{HangTable, Order};
}

pub mod frame {
    pub use crate::proto::frame::{PREFIX_BYTES, Prefix, decode, encode};
}

pub mod image {
    pub use crate::proto::image::{Apart, Change, Image};
}

pub mod journal {
    pub use crate::control::embedded::{Embedded, On, fill, start};
    pub use crate::control::journal::Opened;
}

pub mod log {
    use crate::JournalError;
    pub use crate::control::log::{
        Change, Complete, Draft, Each, Log, Opened, Opener, Outcome, Place, Told,
    };
    pub use crate::control::memory::Memory;

    /// The changes of a draft, encoded.
    ///
    /// # Errors
    /// A record that has no form in a log.
    pub fn changes(draft: Draft) -> Result<Vec<Change>, JournalError> {
        (draft.write)()
    }
}

pub mod membership {
    pub use crate::proto::membership::{Join, Parting};
}

pub mod message {
    pub use crate::proto::message::{
        AttemptId, Heartbeat, Hello, Kind, Load, Loaded, OutcomeHeader, Place, Stint, TaskHeader,
        TensorBlob, TensorRange, VERSION, Verdict, Welcome,
    };
}

pub mod outside {
    pub use crate::net::outside::{Bound, GlueFault, MACHINE, Scene, on, set_scene};
}

pub mod queue {
    pub use crate::proto::queue::{Place, aged};
}

pub mod record {
    pub use crate::control::record::{Key, Record, decode, encode};
}

pub mod rpc {
    pub use crate::net::identity::pki::request;
    pub use crate::net::transport::rpc::{Ask, Certification, Enrol, Renewal, decode};
    pub use crate::net::transport::wire::lost;
}

pub mod state {
    pub use crate::proto::state::{
        Action, Completion, CoreConfig, Digest, RetentionLimits, SessionId, Timing,
    };
}

pub mod tensors {
    pub use crate::proto::tensors::{describe, plan};
}

// Types that are public here also have private methods. This module does not expose those.

/// Starts a coordinator with its log in `place`.
pub async fn start_on(
    place: Option<Box<dyn Place>>,
    config: CoordinatorConfig,
    pki: &Pki,
    services: Services,
) -> Result<Coordinator> {
    Coordinator::start_on(place, config, pki, services).await
}

/// Starts one of several coordinators, with `authority` for the election and its log in `place`.
///
/// # Errors
/// As [`Coordinator::start`].
pub async fn start_among(
    place: Arc<dyn Place>,
    config: CoordinatorConfig,
    pki: &Pki,
    authority: Box<dyn Authority>,
) -> Result<Coordinator> {
    let pki = pki.with_authority(authority)?;
    Coordinator::start_among(place, config, &pki, Services::default()).await
}

/// The log at `control`, or in the file `path`. The last known commit of a shared log is kept
/// beside `path`.
///
/// # Errors
/// As [`Control::new`].
pub fn log_in(control: Option<&Control>, path: &Path) -> Result<Box<dyn Place>> {
    shared::log(control, path)
}

/// How a task ended according to the log, if it has ended.
#[must_use]
pub fn end_of(image: &Image) -> Option<TaskState> {
    image.end.as_ref().map(|end| end.state)
}

/// The state that a coordinator's background tasks share.
#[must_use]
pub fn shared(coordinator: &Coordinator) -> &Arc<CoreHandle> {
    coordinator.shared()
}

/// Whether a request is certified.
#[must_use]
pub fn signs(pki: &Pki, role: Role, name: &WorkerId, csr: &[u8]) -> bool {
    pki.sign(role, name, csr, SystemTime::now()).is_ok()
}

/// An identity that is valid from a given time.
///
/// # Errors
/// As [`Pki::issue`].
pub fn issue_at(pki: &Pki, role: Role, name: &str, at: SystemTime) -> Result<Identity> {
    pki.issue_at(role, name, at)
}

/// A token with a given authority and secret.
#[must_use]
pub fn token(authority: CaHash, secret: [u8; 16]) -> JoinToken {
    JoinToken { authority, secret }
}

/// The task with number `seq` in an epoch.
#[must_use]
pub fn task_id(epoch: u64, seq: u64) -> TaskId {
    TaskId { epoch, seq }
}

/// The epoch of a task, and its number in the epoch.
#[must_use]
pub fn key(id: TaskId) -> Key {
    (id.epoch, id.seq)
}

/// The priority as a number; smaller goes first.
#[must_use]
pub fn level(priority: Priority) -> u32 {
    priority.level()
}
