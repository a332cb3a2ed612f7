//! Where connections arrive: which protocol each speaks, and whether its certificate allows it.

mod door;

use crate::net::call::{Callers, Supervisor};
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::identity::enrol::{Limits, RENEWING};
use crate::net::identity::members::ConnectedMembers;
use crate::net::identity::pki::Pki;
use crate::net::identity::token::Tokens;
use crate::net::ring::meet::Meetings;
use crate::net::transfer::models;
use crate::net::transport::shared_memory::Lender;
use std::sync::Arc;
use std::time::Duration;

/// What a coordinator offers besides running tasks.
#[derive(Clone, Default)]
pub struct Services {
    /// The tokens that let machines join; without them, none can.
    pub tokens: Option<Tokens>,
    /// The model files that workers may fetch; without it, there are none.
    pub models: Option<Arc<dyn models::BlobSource>>,
    /// Worker names with this prefix are the coordinator's own, and no machine may join under one.
    pub reserved_prefix: Option<String>,
    /// Starts and ends local workers when an administrator asks for it, if there is one.
    pub supervisor: Option<Arc<dyn Supervisor>>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Services")
            .field("tokens", &self.tokens.is_some())
            .field("models", &self.models.is_some())
            .field("reserved_prefix", &self.reserved_prefix)
            .field("supervisor", &self.supervisor.is_some())
            .finish()
    }
}

/// The state that all connections share.
pub(crate) struct Gate {
    pub(crate) coordinator: Coordinator,
    pub(crate) shared: Arc<CoreHandle>,
    pub(crate) services: Services,
    pub(crate) pki: Pki,
    pub(crate) limits: Arc<Limits>,
    pub(crate) renewals: Arc<Limits>,
    pub(crate) callers: Callers,
    present: Arc<ConnectedMembers>,
    meetings: Arc<Meetings>,
    epoch: u64,
    heartbeat: Duration,
    lender: Option<Arc<Lender>>,
}

impl Gate {
    pub(crate) fn new(
        coordinator: Coordinator,
        services: Services,
        (epoch, heartbeat): (u64, Duration),
        lender: Option<Arc<Lender>>,
    ) -> Arc<Self> {
        let (shared, present) = (coordinator.shared(), coordinator.present());
        Arc::new(Self {
            shared: Arc::clone(shared),
            present: Arc::clone(present),
            pki: coordinator.pki().clone(),
            limits: Arc::clone(coordinator.limits()),
            renewals: Limits::new(RENEWING),
            coordinator,
            services,
            callers: Callers::default(),
            meetings: Arc::default(),
            epoch,
            heartbeat,
            lender,
        })
    }
}
