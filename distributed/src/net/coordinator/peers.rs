//! The coordinators that take part in a cluster, as one of them sees the others.

use crate::config::CoordinatorConfig;
use crate::control::authority::{Lead, Leading, Present};
use crate::error::{Error, Result};
use crate::net::call::{Client, Parcel, PeerCall, Told};
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::mirror::Mirror;
use crate::net::identity::role::Role;
use crate::net::outside::{self, planted_here};
use crate::net::transport::coordinators::Coordinators;
use crate::task::{TaskFilter, TaskId, TaskPage, TaskRecord, TaskSpec};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long one that leads is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time to connect to another: one that is gone does not answer.
const CONNECT: Duration = Duration::from_secs(1);
/// How soon one that is not reached is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// What a coordinator shows the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Where it is reached by workers and by other coordinators.
    quic: String,
    /// Where it is reached by people and programs.
    url: Option<String>,
}

impl About {
    /// # Errors
    /// [`Error::Control`] for an address that means nothing elsewhere.
    pub(crate) fn new(config: &CoordinatorConfig, addr: SocketAddr) -> Result<Self> {
        let quic = match &config.reached_at {
            Some(place) => {
                // Without a port it is reached at the one that it listens on.
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
        // It has nothing that JSON cannot hold.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// A coordinator of a cluster, as another one knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// Its number, which is the epoch of the ids of its tasks.
    pub number: u64,
    /// Whether it leads.
    pub leads: bool,
    /// Where it is reached by workers and by other coordinators.
    pub quic: String,
    /// Where it is reached by people and programs, if it says so.
    pub url: Option<String>,
}

impl Peer {
    /// None for what is no coordinator of this version.
    pub(crate) fn of(present: &Present) -> Option<Self> {
        let About { quic, url } = serde_json::from_slice(&present.about).ok()?;
        Some(Self { number: present.number, leads: present.leads, quic, url })
    }
}

/// How the cluster stands, as far as is known here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Whether this coordinator leads.
    pub(crate) leads: bool,
    /// All that take part, the one that leads first.
    pub(crate) present: Vec<Peer>,
    /// What is wrong with what keeps the lead, or with the log.
    pub(crate) trouble: Option<String>,
}

/// The others, and the way to them.
pub(crate) struct Peers {
    pub(crate) lead: Arc<Lead>,
    pub(crate) number: u64,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) stopping: watch::Sender<bool>,
    /// It leads no more, and will not.
    retired: AtomicBool,
    election: Mutex<Option<JoinHandle<()>>>,
    /// The folder that is kept alike, if there is one.
    mirror: OnceLock<Arc<Mirror>>,
    /// Held while one is made.
    connecting: tokio::sync::Mutex<()>,
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

    /// From now on others are given files of this folder.
    pub(crate) fn mirror(&self, mirror: Arc<Mirror>) {
        // It is set once, where the coordinator starts.
        let _ = self.mirror.set(mirror);
    }

    /// Runs the election until [`Peers::stop`].
    pub(crate) fn run(&self, election: impl Future<Output = ()> + Send + 'static) {
        let running = tokio::spawn(outside::here(election));
        *self.election.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Takes part no more.
    pub(crate) async fn stop(&self) {
        self.stopping.send_replace(true);
        let running = self.election.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running {
            // A panic was reported where it happened.
            let _ = running.await;
        }
    }

    /// Leaves the lead to others from now on; the election sees to it.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    pub(crate) fn leads(&self) -> bool {
        self.standing.borrow().leads
    }

    /// What keeps the lead does not answer: what runs goes on, and it is said that nothing else is known.
    pub(crate) fn set_away(&self, why: String) {
        self.lead.set_away(Some(why.clone()));
        self.standing.send_if_modified(|standing| {
            let changed = standing.trouble.is_none();
            standing.trouble = Some(why);
            changed
        });
    }

    /// The connection to another, made if there is none.
    pub(crate) async fn reach(&self, coordinator: &Coordinator, peer: &Peer) -> Result<Client> {
        let known = || {
            let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
            clients.iter().find(|(number, _)| *number == peer.number).map(|(_, it)| it.clone())
        };
        if let Some(client) = known().filter(Client::is_open) {
            return Ok(client);
        }
        // One connection for all that wait for it.
        let _turn = self.connecting.lock().await;
        if let Some(client) = known().filter(Client::is_open) {
            return Ok(client);
        }
        let (pki, name) = (coordinator.pki().clone(), format!("coordinator-{:x}", self.number));
        let issuing = outside::blocking(move || pki.issue(Role::Admin, &name));
        let identity = issuing.await.map_err(|_| Error::Stopped)??;
        let late =
            |_| Error::Connection(format!("no answer from {} within {CONNECT:?}", peer.quic));
        let at: Coordinators = peer.quic.parse()?;
        let connecting = timeout(CONNECT, Client::connect(at, &identity));
        let client = connecting.await.map_err(late)??;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.standing.borrow().present.clone();
        let is_present = |number: u64| present.iter().any(|peer| peer.number == number);
        clients.retain(|(number, _)| *number != peer.number && is_present(*number));
        clients.push((peer.number, client.clone()));
        Ok(client)
    }

    /// The one that leads; none where that is this one, as far as it knows. Waits a while for one.
    pub(crate) async fn leader(&self, coordinator: &Coordinator) -> Result<Option<Client>> {
        self.find(coordinator, || true).await
    }

    /// As [`Peers::leader`], where old answers are wrong ones: none only while no other can lead. This one
    /// may have stood still until its lead was over.
    async fn leader_now(&self, coordinator: &Coordinator) -> Result<Option<Client>> {
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
                match self.reach(coordinator, peer).await {
                    Ok(client) => return Ok(Some(client)),
                    Err(error) => reason = error.to_string(),
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

    /// Resolves once another leads than now.
    async fn another_leads(&self) {
        let mut standing = self.standing.subscribe();
        let leader = |standing: &Standing| {
            standing.present.iter().find(|peer| peer.leads).map(|peer| peer.number)
        };
        let before = leader(&standing.borrow());
        // The sender lives in self.
        let _ = standing.wait_for(|now| leader(now).is_some_and(|now| Some(now) != before)).await;
    }

    /// The one that took a task, if it is another that takes part and does not lead.
    async fn taker(&self, coordinator: &Coordinator, id: TaskId) -> Option<Client> {
        let present = self.standing.borrow().present.clone();
        let is_taker = |it: &&Peer| it.number == id.epoch && it.number != self.number && !it.leads;
        self.reach(coordinator, present.iter().find(is_taker)?).await.ok()
    }
}

/// Whether a coordinator says that it knows nothing of a task.
pub(crate) fn knows_nothing(error: &Error) -> bool {
    matches!(error, Error::UnknownTask { .. } | Error::Expired { .. })
}

/// Whether another coordinator may answer instead.
fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::Connection(_)
            | Error::Unreachable { .. }
            | Error::Stopped
            | Error::Draining
            | Error::HandedOver
    )
}

/// What is said of a question that no leader answered in time.
fn no_leader(error: Error) -> Error {
    match is_lost(&error) {
        true => Error::NoLeader { reason: error.to_string() },
        false => error,
    }
}

/// An answer, and the outputs of a record.
pub(crate) enum Answered {
    Told(Told),
    Record(Box<TaskRecord>),
}

impl Coordinator {
    /// Whether what is known of a task here is what the cluster knows of it. Durable ones are the leader's,
    /// and an end is for good.
    pub(crate) fn may_answer(&self, id: TaskId, call: &PeerCall) -> bool {
        let Some(standing) = self.shared.read(|core, _| core.standing(id)) else { return false };
        let stays = standing.state.is_terminal() || !call.is_about_now();
        !standing.durable || self.leads() && (stays || self.leads_now())
    }

    /// What another coordinator answers about a task; none where this one is to answer.
    pub(crate) async fn elsewhere(
        &self,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Answered>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        if self.may_answer(id, &call()) {
            return Ok(None);
        }
        let of_leader = tokio::select! {
            biased;
            of_leader = self.of_leader(peers, call) => of_leader,
            // Also while none leads.
            Some(answer) = self.of_taker(peers, id, call) => return answer.map(Some),
        };
        let unknown = match &of_leader {
            Ok(None) => !self.shared.read(|core, _| core.knows(id)),
            Ok(Some(_)) => false,
            Err(error) => knows_nothing(error),
        };
        match unknown {
            true => match self.of_taker(peers, id, call).await {
                Some(answer) => answer.map(Some),
                None => of_leader,
            },
            false => of_leader,
        }
    }

    /// What the one that leads answers, or the next one where its answer is lost; none where this one is to
    /// answer.
    async fn of_leader(
        &self,
        peers: &Peers,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Answered>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let Some(client) = peers.leader_now(self).await? else { return Ok(None) };
            let asked = tokio::select! {
                biased;
                asked = client.here(call()) => asked,
                // That one is gone, which its connection shows later.
                () = peers.another_leads() => continue,
            };
            match asked {
                Err(error) if is_lost(&error) && Instant::now() < end => {
                    tokio::time::sleep(AGAIN).await;
                }
                asked => return asked.map(Some).map_err(no_leader),
            }
        }
    }

    /// What the one answers that took a task and does not lead: tasks that live in memory are known there,
    /// whoever leads. None where it knows nothing of the task, or cannot be asked.
    async fn of_taker(
        &self,
        peers: &Peers,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Option<Result<Answered>> {
        let client = peers.taker(self, id).await?;
        match client.here(call()).await {
            Err(error) if knows_nothing(&error) || is_lost(&error) => None,
            answer => Some(answer),
        }
    }

    /// A record that another coordinator has; none where this one is to answer.
    pub(crate) async fn record_elsewhere(
        &self,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<TaskRecord>> {
        match self.elsewhere(id, call).await? {
            None => Ok(None),
            Some(Answered::Record(record)) => Ok(Some(*record)),
            Some(Answered::Told(_)) => Err(Client::odd()),
        }
    }

    pub(crate) async fn told_elsewhere(
        &self,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Told>> {
        match self.elsewhere(id, call).await? {
            None => Ok(None),
            Some(Answered::Told(told)) => Ok(Some(told)),
            Some(Answered::Record(_)) => Err(Client::odd()),
        }
    }

    /// Whether only one that certainly leads may take a task: no log refuses one in memory whose key stands
    /// for another one already, and none knows what a task depends on that is not known here.
    pub(crate) fn must_lead_now(&self, spec: &TaskSpec) -> bool {
        let is_far = |id: &TaskId| !self.shared.read(|core, _| core.knows(*id));
        !spec.durable && spec.idempotency_key.is_some() || spec.depends_on.iter().any(is_far)
    }

    /// The one that leads, where tasks are such that only that one takes them: durable ones, those with a
    /// key, which stands for one task in all of the cluster, and those that depend on tasks that are not
    /// known here. None where this one is to take them.
    pub(crate) async fn leader_for(
        &self,
        specs: impl Iterator<Item = &TaskSpec> + Clone + Send,
    ) -> Result<Option<Client>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        if planted_here!(FollowerAccepts) {
            return Ok(None);
        }
        if specs.clone().any(|spec| self.must_lead_now(spec)) {
            return peers.leader_now(self).await;
        }
        match specs.clone().any(|spec| spec.durable) && !peers.leads() {
            true => peers.leader(self).await,
            false => Ok(None),
        }
    }

    /// Has the one that leads accept tasks. Those that all have keys are given to the next one where the
    /// answer was lost: it takes none twice.
    pub(crate) async fn pass_on(&self, tasks: Vec<(TaskSpec, Vec<usize>)>) -> Result<Vec<TaskId>> {
        let peers = self.peers.as_ref().ok_or(Error::NoJournal)?;
        let may_repeat = tasks.iter().all(|(spec, _)| spec.idempotency_key.is_some());
        let end = Instant::now() + PATIENCE;
        loop {
            let Some(client) = self.leader_for(tasks.iter().map(|(spec, _)| spec)).await? else {
                return self.submit_here(tasks).await;
            };
            let parcel = Parcel::of(tasks.clone())?;
            let passed = tokio::select! {
                passed = client.pass_on(parcel) => passed,
                // That one is gone, which its connection shows later.
                () = peers.another_leads(), if may_repeat => continue,
            };
            match passed {
                Err(error) if may_repeat && is_lost(&error) && Instant::now() < end => {
                    tokio::time::sleep(AGAIN).await;
                }
                passed => return passed,
            }
        }
    }

    /// What a key stands for, where another leads.
    pub(crate) async fn keyed_elsewhere(
        &self,
        key: &str,
    ) -> Result<Option<Option<(TaskId, [u8; 32])>>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        let call = || PeerCall::Keyed(key.to_owned());
        match self.of_leader(peers, call).await? {
            None => Ok(None),
            Some(Answered::Told(Told::Keyed(known))) => Ok(Some(known)),
            Some(_) => Err(Client::odd()),
        }
    }

    /// A page of the tasks of the one that leads, where that is another.
    pub(crate) async fn tasks_of_leader(&self, filter: &TaskFilter) -> Result<Option<TaskPage>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        let call = || PeerCall::Tasks(filter.clone());
        match self.of_leader(peers, call).await? {
            None => Ok(None),
            Some(Answered::Told(Told::Page(records, next))) => {
                let tasks = records.into_iter().map(|record| record.with(None)).collect();
                Ok(Some(TaskPage { tasks, next }))
            }
            Some(_) => Err(Client::odd()),
        }
    }

    /// A part of a file of the folder that is kept alike.
    pub(crate) async fn part(&self, sha256: String, offset: u64) -> Result<Option<Vec<u8>>> {
        let mirror = self.peers.as_ref().and_then(|peers| peers.mirror.get());
        let Some(mirror) = mirror.cloned() else { return Ok(None) };
        let reading = outside::blocking(move || mirror.part(&sha256, offset));
        reading.await.map_err(|_| Error::Stopped)?
    }

    /// The coordinators that take part, this one too, the one that leads first; none where there can be
    /// only one.
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        self.peers.as_ref().map_or_else(Vec::new, |peers| peers.standing.borrow().present.clone())
    }

    /// Whether it leads its cluster: only one that does accepts durable tasks, and others pass them on.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.leads())
    }

    /// Whether it leads, and no other can at this moment: then a task that is unknown here is unknown to all.
    pub(crate) fn leads_now(&self) -> bool {
        let Some(peers) = &self.peers else { return true };
        let holds = || self.leading().as_ref().is_some_and(Leading::holds_now);
        peers.leads() && (planted_here!(OldLease) || holds())
    }

    /// What keeps the lead and the log, where that is outside of this program; and what is wrong with it
    /// at present, if anything is.
    #[must_use]
    pub fn engine(&self) -> Option<(String, Option<String>)> {
        let peers = self.peers.as_ref()?;
        let engine = peers.lead.members()?.engine();
        Some((engine, peers.standing.borrow().trouble.clone()))
    }
}
