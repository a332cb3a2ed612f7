//! What a coordinator holds in the database, and the thread that renews it. The database's clock alone
//! counts.

use super::session::Session;
use super::{Database, Trouble};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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
#[derive(Debug, Default)]
struct Held {
    /// The epoch of its lead.
    lead: Option<u64>,
}

/// Renews what a coordinator holds. It is given up when this is dropped.
#[derive(Debug)]
pub(super) struct Heart {
    held: Arc<Mutex<Held>>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Milliseconds as the statements take them.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A number as the database stores it.
pub(super) fn stored(number: u64) -> Result<i64, Trouble> {
    i64::try_from(number).map_err(|_| Trouble::Refused(format!("{number} is beyond 63 bits")))
}

impl Heart {
    pub(super) fn start(database: &Database, holder: &str) -> Result<Self, Trouble> {
        let held = Arc::new(Mutex::new(Held::default()));
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

    /// The lead was taken, or given up.
    pub(super) fn set_lead(&self, epoch: Option<u64>) {
        lock(&self.held).lead = epoch;
    }

    /// The epoch of the lead that is held.
    pub(super) fn lead(&self) -> Option<u64> {
        lock(&self.held).lead
    }
}

fn renew(session: &Session, held: &Mutex<Held>, holder: &str, time: Duration) {
    let lead = lock(held).lead;
    let epoch = lead.map_or(-1, |epoch| i64::try_from(epoch).unwrap_or(-1));
    let holder = holder.to_owned();
    let renewed = session.call(move |client| {
        let row = client.query_one(RENEW, &[&holder, &epoch, &ms(time)])?;
        Ok(row.get::<_, bool>(0))
    });
    match renewed {
        Ok(false) if lead.is_some() => {
            // It may have been taken anew, or given up, meanwhile.
            if lock(held).lead.take_if(|now| Some(*now) == lead).is_some() {
                tracing::error!(epoch, "another coordinator has taken the lead");
            }
        }
        Ok(_) => {}
        Err(trouble) => tracing::warn!(why = trouble.text(), "the lease is not renewed"),
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    // It is replaced as a whole.
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
