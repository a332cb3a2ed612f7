//! How a log is opened: its lease is taken and all of it read in one transaction.

use super::chain::Link;
use super::lease::{RENEW, TAKE, ms, stored};
use super::log::LEASE;
use super::session::Session;
use super::{Database, Trouble};
use crate::control::log::Each;
use crate::control::record::{self, Key};
use crate::error::JournalError;
use std::sync::mpsc::{channel, sync_channel};
use std::time::Duration;

/// Records that are read at once while it is opened.
const READ_AT_ONCE: i32 = 8;
/// How long reading a log may take.
const READING: Duration = Duration::from_secs(3600);

/// What a log held when it was opened.
pub(super) struct Found {
    pub(super) epoch: i64,
    pub(super) epochs: Vec<u64>,
    pub(super) last: Link,
}

/// Takes the lease, reads everything and notes the epoch, or leaves all as it was.
pub(super) fn read_all(
    session: &Session,
    database: &Database,
    (now_ms, holder): (u64, &str),
    each: &mut Each<'_>,
) -> Result<Found, JournalError> {
    let (sender, records) = sync_channel::<(Key, Vec<u8>)>(1);
    let (verdict, judged) = channel::<bool>();
    let damaged = |what| JournalError::Damaged { path: database.label(), what };
    let now = stored(now_ms).map_err(|trouble| trouble.on_log(database))?;
    let (owner, time) = (holder.to_owned(), ms(database.lease));
    // Where `each` panics, what it holds goes, and the reader ends.
    std::thread::scope(move |scope| {
        let asked = scope.spawn(move || {
            session.ask(READING, move |client| {
                let mut txn = client.transaction()?;
                let epoch: i64 = match txn.query_opt(TAKE, &[&LEASE, &now, &owner, &time])? {
                    Some(row) => row.get(0),
                    None => return Err(Trouble::Locked),
                };
                let statement = "SELECT epoch, seq, bytes FROM record ORDER BY epoch, seq";
                let portal = txn.bind(statement, &[])?;
                loop {
                    let rows = txn.query_portal(&portal, READ_AT_ONCE)?;
                    if rows.is_empty() {
                        break;
                    }
                    for row in rows {
                        let (epoch, seq): (i64, i64) = (row.get(0), row.get(1));
                        let key = (epoch.unsigned_abs(), seq.unsigned_abs());
                        if sender.send((key, row.get(2))).is_err() {
                            return Err(Trouble::Refused("what it holds is refused".to_owned()));
                        }
                    }
                }
                drop(sender);
                if judged.recv() != Ok(true) {
                    return Err(Trouble::Refused("what it holds is refused".to_owned()));
                }
                let last = "SELECT number, digest FROM head";
                let last = txn.query_one(last, &[])?;
                let last = Link { number: last.get(0), digest: last.get(1) };
                txn.execute("INSERT INTO epoch VALUES ($1)", &[&epoch])?;
                let epochs = txn.query("SELECT epoch FROM epoch ORDER BY epoch", &[])?;
                let epochs = epochs.iter().map(|row| row.get::<_, i64>(0).unsigned_abs()).collect();
                // Reading may have taken longer than a lease.
                txn.execute(RENEW, &[&LEASE, &epoch, &owner, &time])?;
                txn.commit()?;
                Ok(Found { epoch, epochs, last })
            })
        });
        let (records, verdict) = (records, verdict);
        let judgement = records.iter().try_for_each(|(key, stored)| {
            each(key, record::decode(key, &stored).map_err(damaged)?).map_err(damaged)
        });
        // Where it is refused, what still comes is not waited for.
        drop(records);
        let _ = verdict.send(judgement.is_ok());
        let found = asked.join().unwrap_or_else(|_| Err(Trouble::Away("a panic".to_owned())));
        judgement?;
        found.map_err(|trouble| trouble.on_log(database))
    })
}
