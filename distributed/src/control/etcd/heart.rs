//! A coordinator's lease in etcd, and the thread that renews it. For other coordinators only etcd's
//! clock counts; by its own clock a coordinator knows how long its lease lasts at least.

use super::client::{Client, put, range};
use super::{Keys, LEASE, Trouble};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an endpoint may take to renew a lease; other endpoints must be tried before it ends.
const RENEWAL: Duration = Duration::from_millis(400);

/// What a coordinator holds in etcd.
#[derive(Debug)]
struct Held {
    lease: i64,
    /// The lease lasts at least until then, counted from before the request that granted or renewed
    /// it.
    until: Instant,
    /// The epoch of the coordinator's lead.
    lead: Option<u64>,
    /// The value of the coordinator's member key.
    member: Option<Vec<u8>>,
}

/// State shared between the thread and its callers.
#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    keys: Keys,
    holder: String,
    held: Mutex<Held>,
    /// Two concurrent renewals could replace the lease twice.
    renewing: Mutex<()>,
}

/// Renews what a coordinator holds. Dropping this gives it up.
#[derive(Debug)]
pub(super) struct Heart {
    shared: Arc<Shared>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The value of the leader's key.
pub(super) fn lead_of(epoch: u64, holder: &str) -> Vec<u8> {
    format!("{epoch} {holder}").into_bytes()
}

impl Heart {
    pub(super) fn start(client: &Arc<Client>, keys: &Keys, holder: &str) -> Result<Self, Trouble> {
        let until = Instant::now() + LEASE;
        let lease = client.grant(LEASE)?;
        let held = Mutex::new(Held { lease, until, lead: None, member: None });
        let (client, holder) = (Arc::clone(client), holder.to_owned());
        let shared =
            Shared { client, keys: keys.clone(), holder, held, renewing: Mutex::default() };
        let shared = Arc::new(shared);
        let (stop, stopped) = mpsc::channel::<()>();
        let inside = Arc::clone(&shared);
        let run = move || {
            while stopped.recv_timeout(LEASE / 4) == Err(RecvTimeoutError::Timeout) {
                inside.beat();
            }
            let lease = inside.held().lease;
            // A lease that cannot be revoked ends by itself.
            let _ = inside.client.revoke(lease);
        };
        let thread = thread::Builder::new().name("lease".into()).spawn(run);
        let thread = thread.map_err(|error| Trouble::Refused(error.to_string()))?;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// The lease to which keys are bound.
    pub(super) fn lease(&self) -> i64 {
        self.shared.held().lease
    }

    /// Renews at once, because the lease was found to have ended.
    pub(super) fn renew(&self) {
        self.shared.beat();
    }

    /// Records that the lead was taken with this lease.
    pub(super) fn take(&self, epoch: u64, lease: i64) {
        let mut held = self.shared.held();
        held.lead = Some(epoch);
        if held.lease != lease {
            // The lease ended meanwhile and the lead with it; the next renewal detects that.
            held.until = Instant::now();
        }
    }

    /// Records that the lead was given up.
    pub(super) fn give_up(&self) {
        self.shared.held().lead = None;
    }

    /// The epoch of the lead, if it is held.
    pub(super) fn lead(&self) -> Option<u64> {
        self.shared.held().lead
    }

    /// Whether the lead's lease cannot have ended yet.
    pub(super) fn leads_now(&self, epoch: u64) -> bool {
        let held = self.shared.held();
        held.lead == Some(epoch) && Instant::now() < held.until
    }

    /// Records the value of the member key.
    pub(super) fn set_member(&self, value: Vec<u8>) {
        self.shared.held().member = Some(value);
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        // Every step leaves the state consistent.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let _one = self.renewing.lock().unwrap_or_else(PoisonError::into_inner);
        let (lease, lead) = {
            let held = self.held();
            (held.lease, held.lead)
        };
        let until = Instant::now() + LEASE;
        let renewed = match self.client.keep_alive(lease, RENEWAL) {
            Ok(()) => lead.map_or(Ok(()), |epoch| self.look(epoch)).map(|()| {
                let mut held = self.held();
                // A lead taken meanwhile may be bound to another lease.
                if held.lead == lead {
                    held.until = until;
                }
            }),
            Err(Trouble::Ended) => self.begin_again(),
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = renewed {
            tracing::warn!(why = trouble.text(), "the lease is not renewed");
        }
    }

    /// Checks that the lead's key still exists: an administrator may have deleted it.
    fn look(&self, epoch: u64) -> Result<(), Trouble> {
        let [found] = self.client.look([range(self.keys.key("lead"))])?;
        if found.iter().all(|kv| kv.value != lead_of(epoch, &self.holder)) {
            self.lose(epoch);
        }
        Ok(())
    }

    fn lose(&self, epoch: u64) {
        // The lead may have been taken anew, or given up, meanwhile.
        if self.held().lead.take_if(|now| *now == epoch).is_some() {
            tracing::error!(epoch, "the lead is lost");
        }
    }

    /// Registers under a new lease without the lead: everything bound to the old lease is gone.
    fn begin_again(&self) -> Result<(), Trouble> {
        let (lead, member) = {
            let held = self.held();
            (held.lead, held.member.clone())
        };
        if let Some(epoch) = lead {
            self.lose(epoch);
        }
        let until = Instant::now() + LEASE;
        let lease = self.client.grant(LEASE)?;
        if let Some(value) = member {
            let put = put(self.keys.member(&self.holder), &value, lease);
            self.client.transact(Vec::new(), vec![put], Vec::new())?;
        }
        let mut held = self.held();
        // A lead taken meanwhile was bound to the lease that has ended.
        (held.lease, held.until, held.lead) = (lease, until, None);
        Ok(())
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
impl Heart {
    /// Simulates a network partition for as long as the guard is held.
    pub(super) fn pause(&self) -> MutexGuard<'_, ()> {
        self.shared.renewing.lock().expect("sound")
    }
}
