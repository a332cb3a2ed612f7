//! An authority in simulated time. As in a database, the lead is a lease that its holder renews. A
//! coordinator that cannot reach the authority keeps its last knowledge.

use super::away::{Away, Fate};
use crate::glue::net::Node;
use crate::glue::scene::Scene;
use lgp_distributed::Error;
use lgp_distributed::inside::authority::{Authority, Members, Present};
use lgp_distributed::inside::outside::{GlueFault, on};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// How long a lead lasts without renewal.
pub(super) const LEASE: Duration = Duration::from_secs(2);

type Result<T> = std::result::Result<T, Error>;

/// The state that all coordinators share.
#[derive(Clone)]
pub(super) struct Register {
    scene: Arc<Scene>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    away: Away,
    views: u64,
    /// The latest number that was issued.
    latest: u64,
    lease: Option<Lease>,
    /// The members by their views.
    members: BTreeMap<u64, Member>,
    documents: HashMap<String, Vec<u8>>,
    /// The epochs of all leads, in order.
    leads: Vec<u64>,
}

struct Lease {
    epoch: u64,
    /// `None` after the lead was given up.
    holder: Option<(u64, Node)>,
    until: Instant,
}

struct Member {
    number: u64,
    about: Vec<u8>,
    until: Instant,
}

impl State {
    fn next(&mut self, now_ms: u64) -> u64 {
        self.latest = now_ms.max(self.latest + 1);
        self.latest
    }

    /// The holder of the lead, if its lease has not ended.
    fn holder(&self) -> Option<(u64, Node)> {
        let lease = self.lease.as_ref()?;
        lease.holder.filter(|_| Instant::now() < lease.until)
    }

    fn is_led(&self, epoch: u64, view: u64) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|it| it.epoch == epoch && it.holder.is_some_and(|(by, _)| by == view))
    }

    fn resign(&mut self, epoch: u64, view: u64) {
        if self.is_led(epoch, view) {
            self.lease.iter_mut().for_each(|lease| lease.holder = None);
        }
    }
}

impl Register {
    pub(super) fn new(scene: &Arc<Scene>) -> Self {
        Self { scene: Arc::clone(scene), state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cut(&self, node: Node, time: Duration, answers_only: bool) {
        self.lock().away.cut(node, time, answers_only);
    }

    pub(super) fn heal(&self) {
        self.lock().away.heal();
    }

    /// The machine of the leader.
    pub(super) fn leader(&self) -> Option<Node> {
        self.lock().holder().map(|(_, node)| node)
    }

    /// The epochs of all leads.
    pub(super) fn leads(&self) -> Vec<u64> {
        self.lock().leads.clone()
    }

    /// A coordinator's view of the authority, and the flag that ends it with the coordinator's
    /// process.
    pub(super) fn view(&self, node: Node) -> (Box<dyn Authority>, Arc<AtomicBool>) {
        let mut state = self.lock();
        state.views += 1;
        let number = state.views;
        drop(state);
        let dead = Arc::new(AtomicBool::new(false));
        let (held, register) = (Mutex::default(), self.clone());
        let inner = Arc::new(Inner { register, node, number, dead: Arc::clone(&dead), held });
        let heart = tokio::spawn(on(node, beat(Arc::clone(&inner)))).abort_handle();
        (Box::new(View { inner, heart }), dead)
    }
}

/// Renews what a coordinator holds.
async fn beat(inner: Arc<Inner>) {
    loop {
        sleep(LEASE / 4).await;
        let (held, until) = (inner.lead(), Instant::now() + LEASE);
        let renewed = inner.call("renew", |state| {
            state.members.get_mut(&inner.number).into_iter().for_each(|one| one.until = until);
            let holds = held.is_some_and(|epoch| state.is_led(epoch, inner.number));
            if holds {
                state.lease.iter_mut().for_each(|lease| lease.until = until);
            }
            holds
        });
        let mut now = inner.held();
        match renewed {
            Ok(true) => now.iter_mut().for_each(|lead| lead.1 = until),
            Ok(false) if held.is_some() => drop(now.take_if(|(now, _)| Some(*now) == held)),
            _ => {}
        }
    }
}

/// A coordinator's knowledge of the authority.
struct Inner {
    register: Register,
    node: Node,
    number: u64,
    dead: Arc<AtomicBool>,
    /// The epoch of its lead, and until when the lead lasts at least.
    held: Mutex<Option<(u64, Instant)>>,
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Option<(u64, Instant)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lead(&self) -> Option<u64> {
        self.held().map(|(epoch, _)| epoch)
    }

    /// Sends a request to the authority.
    fn call<R>(&self, what: &'static str, ask: impl FnOnce(&mut State) -> R) -> Result<R> {
        let mut state = self.register.lock();
        let fate = match self.dead.load(Ordering::SeqCst) {
            true => Fate::Lost,
            false => state.away.fate(self.node),
        };
        let away = || Error::File { what, path: path(), source: std::io::Error::other("away") };
        match fate {
            Fate::Done => Ok(ask(&mut state)),
            Fate::Unheard => {
                ask(&mut state);
                Err(away())
            }
            Fate::Lost => Err(away()),
        }
    }
}

fn path() -> PathBuf {
    "simulated".into()
}

struct View {
    inner: Arc<Inner>,
    heart: AbortHandle,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("node", &self.inner.node).finish_non_exhaustive()
    }
}

impl Authority for View {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let Inner { number, node, register, .. } = &*self.inner;
        let again = register.scene.fault == Some(GlueFault::EpochAgain);
        let until = Instant::now() + LEASE;
        let taken = self.inner.call("lead", |state| {
            if state.holder().is_some_and(|(by, _)| by != *number) {
                return Err(Error::Led { path: path() });
            }
            let next = state.next(now_ms);
            let epoch = state.leads.last().copied().filter(|_| again).unwrap_or(next);
            state.lease = Some(Lease { epoch, holder: Some((*number, *node)), until });
            state.leads.push(epoch);
            register.scene.note(|| format!("machine {node} has the lead {epoch}"));
            Ok(epoch)
        })??;
        *self.inner.held() = Some((taken, until));
        Ok(taken)
    }

    fn resign(&self, epoch: u64) {
        if self.inner.held().take_if(|(held, _)| *held == epoch).is_some() {
            // A lead that cannot be given up ends by itself.
            let _ = self.inner.call("resign", |state| state.resign(epoch, self.inner.number));
        }
    }

    fn holds(&self, epoch: u64) -> bool {
        self.inner.lead() == Some(epoch)
    }

    fn holds_now(&self, epoch: u64) -> bool {
        self.inner.held().is_some_and(|(held, until)| held == epoch && Instant::now() < until)
    }

    fn members(&self) -> Option<&dyn Members> {
        Some(self)
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        self.inner.call("read", |state| state.documents.get(document).cloned())
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        let written = self.inner.call("write", |state| {
            let leads = state.is_led(epoch, self.inner.number);
            if leads {
                state.documents.insert(document.to_owned(), bytes.to_vec());
            }
            leads
        })?;
        match written {
            true => Ok(()),
            false => Err(Error::Deposed { path: self.locate(document), epoch }),
        }
    }

    fn documents(&self) -> Result<Vec<String>> {
        self.inner.call("list", |state| {
            let mut names: Vec<String> = state.documents.keys().cloned().collect();
            names.sort();
            names
        })
    }

    fn locate(&self, document: &str) -> PathBuf {
        path().join(document)
    }
}

impl Members for View {
    fn enter(&self, now_ms: u64, about: &[u8]) -> Result<u64> {
        self.inner.call("enter", |state| {
            let (number, until) = (state.next(now_ms), Instant::now() + LEASE);
            let member = Member { number, about: about.to_vec(), until };
            state.members.insert(self.inner.number, member);
            number
        })
    }

    fn present(&self) -> Result<Vec<Present>> {
        self.inner.call("look", |state| {
            let (now, holder) = (Instant::now(), state.holder().map(|(view, _)| view));
            let present = state.members.iter().filter(|(_, member)| now < member.until);
            let one = |(view, member): (&u64, &Member)| Present {
                number: member.number,
                leads: holder == Some(*view),
                about: member.about.clone(),
            };
            let mut present: Vec<Present> = present.map(one).collect();
            present.sort_by_key(|one| (!one.leads, one.number));
            present
        })
    }

    fn engine(&self) -> String {
        "a simulated authority".to_owned()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.heart.abort();
        let (number, held) = (self.inner.number, self.inner.held().take());
        // A lead that cannot be given up ends by itself.
        let _ = self.inner.call("leave", |state| {
            state.members.remove(&number);
            held.into_iter().for_each(|(epoch, _)| state.resign(epoch, number));
        });
    }
}
