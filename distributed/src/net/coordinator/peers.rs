//! The coordinators that take part in a cluster, as one of them sees the others.

mod peer;

pub use peer::Peer;

use crate::config::CoordinatorConfig;
use crate::control::authority::{Lead, Leading, Present};
use crate::error::{Error, Result};
use crate::net::call::Client;
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::mirror::Mirror;
use crate::net::identity::role::Role;
use crate::net::outside::{self, planted_here};
use crate::net::transport::coordinators::Coordinators;
use crate::task::TaskId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How long to wait for a leader.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Time to connect to another coordinator: one that is gone does not answer.
const CONNECT: Duration = Duration::from_secs(1);
/// How soon a coordinator that is not reached is tried again.
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// The data about itself that a coordinator shows the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// The address for workers and other coordinators.
    quic: String,
    /// The address for people and programs.
    url: Option<String>,
}

impl About {
    /// # Errors
    /// [`Error::Control`] for an address that means nothing elsewhere.
    pub(crate) fn new(config: &CoordinatorConfig, addr: SocketAddr) -> Result<Self> {
        let quic = match &config.reached_at {
            Some(place) => {
                // An address without a port gets the port that this coordinator listens on.
                let has_port = place.parse::<SocketAddr>().is_ok()
                    || place.parse::<IpAddr>().is_err() && place.contains(':');
                let whole = match (has_port, place.parse::<IpAddr>()) {
                    (true, _) => place.clone(),
                    (false, Ok(ip)) => SocketAddr::new(ip, addr.port()).to_string(),
                    (false, Err(_)) => format!("{place}:{}", addr.port()),
                };
                whole.parse::<Coordinators>()?.to_string()
            }
            None if addr.ip().is_unspecified() => {
                let reason = format!(
                    "it listens on {addr}, which tells other coordinators nothing: say where they \
                     reach it"
                );
                return Err(Error::Control { reason });
            }
            None => addr.to_string(),
        };
        Ok(Self { quic, url: config.url.clone() })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // Every field can be JSON, so this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Peer {
    /// `None` for a coordinator of another version.
    pub(crate) fn of(present: &Present) -> Option<Self> {
        let About { quic, url } = serde_json::from_slice(&present.about).ok()?;
        Some(Self { number: present.number, leads: present.leads, quic, url })
    }
}

/// The state of the cluster, as far as this coordinator knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether this coordinator leads.
    pub(crate) leads: bool,
    /// All coordinators that take part, the leader first.
    pub(crate) present: Vec<Peer>,
    /// What is wrong with the engine that keeps the lead, or with the log.
    pub(crate) trouble: Option<String>,
}

/// The other coordinators, and the connections to them.
pub(crate) struct Peers {
    pub(crate) lead: Arc<Lead>,
    pub(crate) number: u64,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) stopping: watch::Sender<bool>,
    /// This coordinator does not lead, and never will again.
    retired: AtomicBool,
    election: Mutex<Option<JoinHandle<()>>>,
    /// The mirrored folder, if there is one.
    mirror: OnceLock<Arc<Mirror>>,
    /// Held while a connection is made: the last coordinator that was not reached, when, and why.
    connecting: tokio::sync::Mutex<Option<(u64, Instant, String)>>,
    /// The connections to others, by their numbers.
    clients: Mutex<Vec<(u64, Client)>>,
}

impl Peers {
    pub(crate) fn new(lead: Arc<Lead>, number: u64) -> Arc<Self> {
        Arc::new(Self {
            lead,
            number,
            standing: watch::Sender::default(),
            stopping: watch::Sender::new(false),
            retired: AtomicBool::new(false),
            election: Mutex::default(),
            mirror: OnceLock::new(),
            connecting: tokio::sync::Mutex::default(),
            clients: Mutex::default(),
        })
    }

    /// From now on other coordinators can get files of this folder.
    pub(crate) fn mirror(&self, mirror: Arc<Mirror>) {
        // It is set once, at the start of the coordinator.
        let _ = self.mirror.set(mirror);
    }

    /// Runs the election until [`Peers::stop`].
    pub(crate) fn run(&self, election: impl Future<Output = ()> + Send + 'static) {
        let running = tokio::spawn(outside::here(election));
        *self.election.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Stops the election, and waits until it has stopped.
    pub(crate) async fn stop(&self) {
        self.stopping.send_replace(true);
        let running = self.election.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            // A panic was reported where it happened.
            let _ = running.await;
        }
    }

    /// Leaves the lead to others from now on; the election gives it up.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    pub(crate) fn leads(&self) -> bool {
        self.standing.borrow().leads
    }

    /// The engine that keeps the lead does not answer: work goes on, and the trouble is reported.
    pub(crate) fn set_away(&self, why: String) {
        self.lead.set_away(Some(why.clone()));
        self.standing.send_if_modified(|standing| {
            let changed = standing.trouble.is_none();
            standing.trouble = Some(why);
            changed
        });
    }

    /// The connection to another coordinator, made if there is none.
    pub(crate) async fn reach(&self, coordinator: &Coordinator, peer: &Peer) -> Result<Client> {
        let known = || {
            let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.iter().find(|(number, _)| *number == peer.number).map(|(_, it)| it.clone())
        };
        if let Some(client) = known().filter(Client::is_open) {
            return Ok(client);
        }
        // One attempt serves all callers that wait for it.
        let mut turn = self.connecting.lock().await;
        if let Some(client) = known().filter(Client::is_open) {
            return Ok(client);
        }
        match &*turn {
            Some((number, at, why)) if *number == peer.number && at.elapsed() < AGAIN => {
                return Err(Error::Connection(why.clone()));
            }
            _ => {}
        }
        let client = match self.connect(coordinator, peer).await {
            Ok(client) => client,
            Err(error) => {
                *turn = Some((peer.number, Instant::now(), error.to_string()));
                return Err(error);
            }
        };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.standing.borrow().present.clone();
        let is_present = |number: u64| present.iter().any(|peer| peer.number == number);
        clients.retain(|(number, _)| *number != peer.number && is_present(*number));
        clients.push((peer.number, client.clone()));
        Ok(client)
    }

    async fn connect(&self, coordinator: &Coordinator, peer: &Peer) -> Result<Client> {
        let (pki, name) = (coordinator.pki().clone(), format!("coordinator-{:x}", self.number));
        let issuing = outside::blocking(move || pki.issue(Role::Admin, &name));
        let identity = issuing.await.map_err(|_| Error::Stopped)??;
        let late =
            |_| Error::Connection(format!("no answer from {} within {CONNECT:?}", peer.quic));
        let at: Coordinators = peer.quic.parse()?;
        let connecting = timeout(CONNECT, Client::connect(at, &identity));
        connecting.await.map_err(late)?
    }

    /// The leader; `None` where this one leads, as far as it knows. Waits 10 s for a leader.
    pub(super) async fn leader(&self, coordinator: &Coordinator) -> Result<Option<Client>> {
        self.find(coordinator, || true).await
    }

    /// As [`Peers::leader`], for questions where a stale answer is wrong: `None` only while no
    /// other coordinator can lead. This one may have stood still until its lead was over.
    pub(super) async fn leader_now(&self, coordinator: &Coordinator) -> Result<Option<Client>> {
        self.find(coordinator, || coordinator.leads_now()).await
    }

    async fn find(
        &self,
        coordinator: &Coordinator,
        is_this: impl Fn() -> bool + Send,
    ) -> Result<Option<Client>> {
        let end = Instant::now() + PATIENCE;
        let mut standing = self.standing.subscribe();
        let mut reason = "none is known".to_owned();
        loop {
            let now = standing.borrow_and_update().clone();
            if now.leads && is_this() {
                return Ok(None);
            }
            let other = |peer: &&Peer| peer.leads && peer.number != self.number;
            if let Some(peer) = now.present.iter().find(other) {
                match timeout_at(end, self.reach(coordinator, peer)).await {
                    Ok(Ok(client)) => return Ok(Some(client)),
                    Ok(Err(error)) => reason = error.to_string(),
                    Err(_) => reason = format!("no answer from {}", peer.quic),
                }
            } else if let Some(trouble) = now.trouble {
                reason = trouble;
            }
            if coordinator.shared().is_stopped() {
                return Err(Error::Stopped);
            }
            if Instant::now() >= end {
                return Err(Error::NoLeader { reason });
            }
            let _ = timeout(AGAIN, standing.changed()).await;
        }
    }

    /// Resolves once another coordinator leads than now.
    pub(super) async fn another_leads(&self) {
        let mut standing = self.standing.subscribe();
        let leader = |standing: &Standing| {
            standing.present.iter().find(|peer| peer.leads).map(|peer| peer.number)
        };
        let before = leader(&standing.borrow());
        // The sender lives in `self`, so this cannot fail.
        let _ = standing.wait_for(|now| leader(now).is_some_and(|now| Some(now) != before)).await;
    }

    /// Whether any coordinator leads, as far as this one knows.
    pub(super) fn is_led(&self) -> bool {
        self.standing.borrow().present.iter().any(|peer| peer.leads)
    }

    /// The coordinator that took a task, if that is another one that takes part and does not lead.
    pub(super) fn taker(&self, id: TaskId) -> Option<Peer> {
        let is_taker = |it: &&Peer| it.number == id.epoch && it.number != self.number && !it.leads;
        self.standing.borrow().present.iter().find(is_taker).cloned()
    }
}

impl Coordinator {
    /// A part of a file of the mirrored folder.
    pub(crate) async fn part(&self, sha256: String, offset: u64) -> Result<Option<Vec<u8>>> {
        let mirror = self.peers.as_ref().and_then(|peers| peers.mirror.get());
        let Some(mirror) = mirror.cloned() else { return Ok(None) };
        let reading = outside::blocking(move || mirror.part(&sha256, offset));
        reading.await.map_err(|_| Error::Stopped)?
    }

    /// The coordinators that take part, including this one, the leader first; empty where there can
    /// be only one.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.as_ref().map_or_else(Vec::new, |peers| peers.standing.borrow().present.clone())
    }

    /// Whether this coordinator leads: only a leader accepts durable tasks, others pass them on.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.leads())
    }

    /// Whether this one leads and no other can now: all tasks unknown here are then unknown to all.
    pub(crate) fn leads_now(&self) -> bool {
        let Some(peers) = &self.peers else { return true };
        let holds = || self.leading().as_ref().is_some_and(Leading::holds_now);
        peers.leads() && (planted_here!(OldLease) || holds())
    }

    /// The engine outside of this program that keeps the lead and the log, if there is one, and
    /// what is wrong with it now, if anything.
    #[must_use]
    pub fn engine(&self) -> Option<(String, Option<String>)> {
        let peers = self.peers.as_ref()?;
        let engine = peers.lead.members()?.engine();
        Some((engine, peers.standing.borrow().trouble.clone()))
    }
}
