//! A coordinator's lease in the database, and the thread that renews it. For other coordinators
//! only the database's clock counts; by its own clock a coordinator knows how long its lead lasts
//! at least.

use super::session::Session;
use super::{Database, Trouble};
use crate::proto::histogram::ms;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Renews membership and lead; returns whether the lead was still held.
const RENEW: &str = "
    WITH present AS (
        UPDATE member SET until = clock_timestamp() + $3 * interval '1 millisecond'
        WHERE holder = $1),
    lead AS (
        UPDATE lease SET until = clock_timestamp() + $3 * interval '1 millisecond'
        WHERE name = 'lead' AND epoch = $2 AND holder = $1
        RETURNING epoch)
    SELECT EXISTS (SELECT FROM lead)";
/// Gives up both, and notifies the others.
const FREE: &str = "
    WITH gone AS (DELETE FROM member WHERE holder = $1),
    freed AS (
        UPDATE lease SET holder = NULL, until = '-infinity' WHERE name = 'lead' AND holder = $1)
    SELECT pg_notify(current_schema(), '')";

/// What a coordinator holds in the database.
#[derive(Debug)]
struct Held {
    /// The epoch of the coordinator's lead.
    lead: u64,
    /// The lead lasts at least until then, counted from before the request that took or renewed it.
    until: Instant,
}

/// Renews what a coordinator holds. Dropping this gives it up.
#[derive(Debug)]
pub(super) struct Heart {
    held: Arc<Mutex<Option<Held>>>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A number as the database stores it.
pub(super) fn stored(number: u64) -> Result<i64, Trouble> {
    i64::try_from(number).map_err(|_| Trouble::Refused(format!("{number} is beyond 63 bits")))
}

impl Heart {
    pub(super) fn start(database: &Database, holder: &str) -> Result<Self, Trouble> {
        let held = Arc::new(Mutex::default());
        let session = Session::new(database);
        let (time, holder, shared) = (database.lease, holder.to_owned(), Arc::clone(&held));
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            while stopped.recv_timeout(time / 4) == Err(RecvTimeoutError::Timeout) {
                renew(&session, &shared, &holder, time);
            }
            // Rows that cannot be given up expire.
            let _ = session.call(move |client| client.execute(FREE, &[&holder]));
        };
        let thread = thread::Builder::new().name("lease".into()).spawn(run);
        let thread = thread.map_err(|error| Trouble::Refused(error.to_string()))?;
        Ok(Self { held, stop: Some(stop), thread: Some(thread) })
    }

    /// Records that the lead was taken, and lasts at least until `until`.
    pub(super) fn take(&self, epoch: u64, until: Instant) {
        *lock(&self.held) = Some(Held { lead: epoch, until });
    }

    /// Records that the lead was given up.
    pub(super) fn give_up(&self) {
        *lock(&self.held) = None;
    }

    /// Whether the lead's lease cannot have ended yet.
    pub(super) fn leads_now(&self, epoch: u64) -> bool {
        let holds = |held: &Held| held.lead == epoch && Instant::now() < held.until;
        lock(&self.held).as_ref().is_some_and(holds)
    }

    /// The epoch of the lead, if it is held.
    pub(super) fn lead(&self) -> Option<u64> {
        lock(&self.held).as_ref().map(|held| held.lead)
    }
}

fn renew(session: &Session, held: &Mutex<Option<Held>>, holder: &str, time: Duration) {
    let lead = lock(held).as_ref().map(|held| held.lead);
    let epoch = lead.map_or(-1, |epoch| i64::try_from(epoch).unwrap_or(-1));
    let (holder, until) = (holder.to_owned(), Instant::now() + time);
    let renewed = session.call(move |client| {
        let row = client.query_one(RENEW, &[&holder, &epoch, &ms(time)])?;
        Ok(row.get::<_, bool>(0))
    });
    match renewed {
        Ok(false) if lead.is_some() => {
            // The lead may have been taken anew, or given up, meanwhile.
            if lock(held).take_if(|held| Some(held.lead) == lead).is_some() {
                tracing::error!(epoch, "another coordinator has taken the lead");
            }
        }
        Ok(_) => {
            if let Some(held) = lock(held).as_mut().filter(|held| Some(held.lead) == lead) {
                held.until = until;
            }
        }
        Err(trouble) => tracing::warn!(why = trouble.text(), "the lease is not renewed"),
    }
}

fn lock(held: &Mutex<Option<Held>>) -> MutexGuard<'_, Option<Held>> {
    // Every step leaves the value consistent.
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
