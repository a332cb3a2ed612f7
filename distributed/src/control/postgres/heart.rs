//! What a coordinator holds in the database, and the thread that renews it. The database's clock alone
//! counts for others; by its own a coordinator knows how long its lead holds at least.

use super::session::Session;
use super::{Database, Trouble};
use crate::proto::histogram::ms;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Renews both; whether the lead was still held.
const RENEW: &str = "
    WITH present AS (
        UPDATE member SET until = clock_timestamp() + $3 * interval '1 millisecond'
        WHERE holder = $1),
    lead AS (
        UPDATE lease SET until = clock_timestamp() + $3 * interval '1 millisecond'
        WHERE name = 'lead' AND epoch = $2 AND holder = $1
        RETURNING epoch)
    SELECT EXISTS (SELECT FROM lead)";
/// Gives both up, and tells the others.
const FREE: &str = "
    WITH gone AS (DELETE FROM member WHERE holder = $1),
    freed AS (
        UPDATE lease SET holder = NULL, until = '-infinity' WHERE name = 'lead' AND holder = $1)
    SELECT pg_notify(current_schema(), '')";

/// What a coordinator holds.
#[derive(Debug)]
struct Held {
    /// The epoch of its lead.
    lead: u64,
    /// Until when that holds at least, counted from before the question that took or renewed it.
    until: Instant,
}

/// Renews what a coordinator holds. It is given up when this is dropped.
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
            // What cannot be given up ends by itself.
            let _ = session.call(move |client| client.execute(FREE, &[&holder]));
        };
        let thread = thread::Builder::new().name("lease".into()).spawn(run);
        let thread = thread.map_err(|error| Trouble::Refused(error.to_string()))?;
        Ok(Self { held, stop: Some(stop), thread: Some(thread) })
    }

    /// The lead was taken, and lasts until then at least.
    pub(super) fn take(&self, epoch: u64, until: Instant) {
        *lock(&self.held) = Some(Held { lead: epoch, until });
    }

    /// The lead was given up.
    pub(super) fn give_up(&self) {
        *lock(&self.held) = None;
    }

    /// Whether its lease cannot be over.
    pub(super) fn leads_now(&self, epoch: u64) -> bool {
        let holds = |held: &Held| held.lead == epoch && Instant::now() < held.until;
        lock(&self.held).as_ref().is_some_and(holds)
    }

    /// The epoch of the lead that is held.
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
            // It may have been taken anew, or given up, meanwhile.
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
    // Every step leaves it whole.
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
