//! A lease: who holds a row until when, in which epoch. The database's clock alone counts.

use super::session::Session;
use super::{Database, Trouble};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Takes a row that is free, its time over, or one's own; $2 is the least epoch, $4 how long it lasts.
pub(super) const TAKE: &str = "
    UPDATE lease SET epoch = GREATEST(epoch + 1, $2), holder = $3,
        until = clock_timestamp() + $4 * interval '1 millisecond'
    WHERE name = $1 AND (holder IS NULL OR holder = $3 OR until < clock_timestamp())
    RETURNING epoch";
/// Renews what is held.
pub(super) const RENEW: &str = "
    UPDATE lease SET until = clock_timestamp() + $4 * interval '1 millisecond'
    WHERE name = $1 AND epoch = $2 AND holder = $3";
const FREE: &str = "
    UPDATE lease SET holder = NULL, until = '-infinity'
    WHERE name = $1 AND epoch = $2 AND holder = $3";

const IS_FREE: &str = "
    SELECT holder IS NULL OR holder = $2 OR until < clock_timestamp() FROM lease WHERE name = $1";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Waits while another holds a lease, but no longer than one lasts that nobody renews.
pub(super) fn wait(
    session: &Session,
    database: &Database,
    name: &'static str,
    holder: &str,
) -> Result<(), Trouble> {
    let end = Instant::now() + database.lease + LOOK_AGAIN;
    loop {
        let holder = holder.to_owned();
        let is_free = session.call(move |client| {
            client.query_one(IS_FREE, &[&name, &holder]).map(|row| row.get::<_, bool>(0))
        })?;
        if is_free || Instant::now() >= end {
            return Ok(());
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// A name for one that may hold leases, which no other has.
pub(super) fn holder() -> String {
    hex::encode(rand::random::<[u8; 16]>())
}

/// Milliseconds as the statements take them.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// An epoch as the database stores it.
pub(super) fn stored(epoch: u64) -> Result<i64, Trouble> {
    i64::try_from(epoch).map_err(|_| Trouble::Refused(format!("epoch {epoch} is beyond 63 bits")))
}

/// A lease that was taken: a thread renews it, and it is freed with this.
#[derive(Debug)]
pub(super) struct Held {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Held {
    /// Renews what was taken with an epoch.
    pub(super) fn keep(
        database: &Database,
        name: &'static str,
        holder: &str,
        epoch: i64,
    ) -> Result<Self, Trouble> {
        let session = Session::new(database);
        let (time, holder) = (database.lease, holder.to_owned());
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            let change = |sql: &'static str| {
                let holder = holder.clone();
                session.call(move |client| match sql {
                    FREE => client.execute(sql, &[&name, &epoch, &holder]),
                    _ => client.execute(sql, &[&name, &epoch, &holder, &ms(time)]),
                })
            };
            while stopped.recv_timeout(time / 4) == Err(RecvTimeoutError::Timeout) {
                match change(RENEW) {
                    Ok(0) => {
                        tracing::error!(name, epoch, "another has taken the lease");
                        return;
                    }
                    Ok(_) => {}
                    Err(trouble) => {
                        tracing::warn!(name, why = trouble.text(), "the lease is not renewed");
                    }
                }
            }
            // What cannot be freed ends by itself.
            let _ = change(FREE);
        };
        let thread = thread::Builder::new().name("lease".into()).spawn(run);
        let thread = thread.map_err(|error| Trouble::Refused(error.to_string()))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
