//! Records of durable tasks, in the database.

use super::heart::stored;
use super::opening::read_all;
use super::session::Session;
use super::{Database, Trouble};
use crate::control::chain::Link;
use crate::control::keeper::{Keeper, Reader};
use crate::control::log::{Change, Complete, Each, Log, Opened, Opener, Place, Told};
use crate::control::record::{self, Key};
use crate::control::remembered::{COMMITS_KEPT, Remembered};
use crate::control::writer::{BATCH_BYTES, Writer};
use crate::error::JournalError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a commit is retried while the database does not answer.
const PATIENCE: Duration = Duration::from_secs(90);
const AGAIN: Duration = Duration::from_millis(200);
/// How often the last commit is stored on this machine.
const REMEMBER: Duration = Duration::from_secs(1);
/// Makes one commit if the head is its predecessor, in one statement, which is one transaction. The
/// result has a row if the commit was made.
const COMMIT: &str = "
    WITH next AS (
        UPDATE head SET number = $2::bigint, digest = $3::bytea
        WHERE number = $2::bigint - 1 AND digest = $1
        RETURNING number, digest),
    made AS (INSERT INTO commit SELECT number, digest FROM next),
    forgotten AS (DELETE FROM commit USING next WHERE commit.number = next.number - $9),
    put AS (
        INSERT INTO record
        SELECT new.* FROM unnest($4::bigint[], $5::bigint[], $6::bytea[]) new, next
        ON CONFLICT (epoch, seq) DO UPDATE SET bytes = excluded.bytes),
    removed AS (
        DELETE FROM record USING unnest($7::bigint[], $8::bigint[]) old (epoch, seq), next
        WHERE record.epoch = old.epoch AND record.seq = old.seq)
    SELECT number FROM next";

/// A log that coordinators on several machines can open. The coordinator with the latest lead owns
/// it.
#[derive(Debug, Clone)]
pub(crate) struct PostgresLog {
    database: Database,
    remembered: Remembered,
}

impl PostgresLog {
    /// `remembered` is the file with this machine's last known commit.
    pub(crate) fn new(database: Database, remembered: PathBuf) -> Self {
        Self { database, remembered: Remembered(remembered) }
    }
}

impl Place for PostgresLog {
    fn open(&self, opener: Opener, each: &mut Each<'_>) -> Result<Opened, JournalError> {
        let database = &self.database;
        let on_log = |trouble: Trouble| trouble.on_log(database);
        let session = database.open().map_err(on_log)?;
        let found = read_all(&session, database, (opener, &self.remembered), each)?;
        self.remembered.write(&found.opened);
        let reader = Arc::new(database.open().map_err(on_log)?);
        let keeper = PostgresKeeper {
            last: found.opened,
            remembered: self.remembered.clone(),
            remembered_at: Instant::now(),
            lead: stored(opener.lead).map_err(on_log)?,
            path: database.label(),
            database: database.clone(),
            session,
            reader,
            broken: None,
        };
        let start = move |told: Told| -> Result<Arc<dyn Log>, JournalError> {
            Ok(Arc::new(Writer::start(keeper, BATCH_BYTES, told)?))
        };
        Ok(Opened { epoch: opener.epoch, epochs: found.epochs, start: Box::new(start) })
    }
}

/// Writes the log until another coordinator opens it.
struct PostgresKeeper {
    database: Database,
    path: PathBuf,
    session: Session,
    /// A connection of its own, so that reads do not wait for commits.
    reader: Arc<Session>,
    lead: i64,
    last: Link,
    remembered: Remembered,
    remembered_at: Instant,
    broken: Option<JournalError>,
}

impl Drop for PostgresKeeper {
    fn drop(&mut self) {
        self.remembered.write(&self.last);
    }
}

/// The arguments of a commit: the net change of each record.
#[derive(Debug, Clone, Default)]
struct Columns {
    put: (Vec<i64>, Vec<i64>, Vec<Vec<u8>>),
    removed: (Vec<i64>, Vec<i64>),
}

impl Columns {
    fn of<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Result<Self, Trouble> {
        let mut left: BTreeMap<Key, Option<&[u8]>> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(record) => {
                    left.insert((record.epoch, record.seq), Some(&record.bytes));
                }
                Change::Remove { epoch, seq } => {
                    left.insert((*epoch, *seq), None);
                }
            }
        }
        let mut columns = Self::default();
        for (key, value) in left {
            let (epoch, seq) = (stored(key.0)?, stored(key.1)?);
            match value {
                Some(value) => {
                    let mut bytes = Vec::new();
                    record::encode(key, value, &mut bytes);
                    columns.put.0.push(epoch);
                    columns.put.1.push(seq);
                    columns.put.2.push(bytes);
                }
                None => {
                    columns.removed.0.push(epoch);
                    columns.removed.1.push(seq);
                }
            }
        }
        Ok(columns)
    }
}

impl PostgresKeeper {
    /// Tries a commit; false if it is no longer the next one.
    fn ask(&self, next: &Link, columns: &Arc<Columns>) -> Result<bool, Trouble> {
        let (last, next) = (self.last.digest.clone(), next.clone());
        let columns = Arc::clone(columns);
        self.session.call(move |client| {
            let Columns { put, removed } = &*columns;
            let commit = client.prepared(COMMIT)?;
            let made = client.query_opt(
                &commit,
                &[
                    &last,
                    &next.number,
                    &next.digest,
                    &put.0,
                    &put.1,
                    &put.2,
                    &removed.0,
                    &removed.1,
                    &COMMITS_KEPT,
                ],
            )?;
            Ok(made.is_some())
        })
    }

    /// Whether a commit that is no longer the next one was made before; the reason if it was not.
    fn was_made(&self, next: &Link) -> Result<Result<(), String>, Trouble> {
        let number = next.number;
        let (found, lead) = self.session.call(move |client| {
            let row = client.query_one("SELECT lead FROM head", &[])?;
            // Other commits may have been made after it.
            let find = "SELECT digest FROM commit WHERE number = $1";
            let found = client.query_opt(find, &[&number])?;
            Ok((found.map(|row| row.get::<_, Vec<u8>>(0)), row.get::<_, i64>(0)))
        })?;
        if found.as_ref() == Some(&next.digest) {
            return Ok(Ok(()));
        }
        let what = match lead > self.lead {
            true => "another coordinator leads",
            false => "it does not hold the last commit: it is a copy, or was restored",
        };
        Ok(Err(what.to_owned()))
    }

    /// Makes a commit, with retries.
    fn make(&self, next: &Link, columns: &Arc<Columns>) -> Result<(), JournalError> {
        let broken = |what: String| JournalError::Broken { path: self.path.clone(), what };
        let end = Instant::now() + PATIENCE;
        let mut in_doubt = false;
        loop {
            let asked = match self.ask(next, columns) {
                Ok(true) => return Ok(()),
                Ok(false) => match self.was_made(next) {
                    Ok(made) => return made.map_err(broken),
                    Err(trouble) => Err(trouble),
                },
                Err(trouble) => Err(trouble),
            };
            let why = match asked {
                Ok(()) => return Ok(()),
                Err(trouble @ (Trouble::Away(_) | Trouble::Locked)) => trouble.text(),
                // An earlier try may still be in flight.
                Err(trouble) if in_doubt => trouble.text(),
                Err(trouble @ Trouble::Full(_)) => return Err(trouble.on_log(&self.database)),
                Err(trouble) => return Err(broken(trouble.text())),
            };
            if Instant::now() >= end {
                return Err(broken(why));
            }
            tracing::warn!(why, "a commit is asked for again");
            in_doubt = true;
            std::thread::sleep(AGAIN);
        }
    }
}

impl Keeper for PostgresKeeper {
    type Reader = PostgresReader;

    fn path(&self) -> &Path {
        &self.path
    }

    fn reader(&self) -> PostgresReader {
        PostgresReader { database: self.database.clone(), session: Arc::clone(&self.reader) }
    }

    fn append<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change> + Clone,
    ) -> Result<(), JournalError> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let no_form = |trouble: Trouble| JournalError::Record { what: trouble.text() };
        let columns = Arc::new(Columns::of(changes.clone()).map_err(no_form)?);
        let next = self.last.next(changes);
        match self.make(&next, &columns) {
            Ok(()) => {
                self.last = next;
                if self.remembered_at.elapsed() >= REMEMBER {
                    self.remembered.write(&self.last);
                    self.remembered_at = Instant::now();
                }
            }
            Err(error) => {
                if matches!(error, JournalError::Broken { .. }) {
                    self.broken = Some(error.clone());
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Reads records while other records are written.
struct PostgresReader {
    database: Database,
    session: Arc<Session>,
}

impl Reader for PostgresReader {
    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, JournalError> {
        let on_log = |trouble: Trouble| trouble.on_log(&self.database);
        let (epoch, seq) = (stored(key.0).map_err(on_log)?, stored(key.1).map_err(on_log)?);
        let found = self.session.call(move |client| {
            let sql = "SELECT bytes FROM record WHERE epoch = $1 AND seq = $2";
            let row = client.query_opt(sql, &[&epoch, &seq])?;
            Ok(row.map(|row| row.get::<_, Vec<u8>>(0)))
        });
        let Some(stored) = found.map_err(on_log)? else { return Ok(None) };
        let damaged = |what| JournalError::Damaged { path: self.database.label(), what };
        Ok(Some(record::decode(key, &stored).map_err(damaged)?.to_vec()))
    }

    fn backup(&self, _to: &Path, _complete: Complete<'_>) -> Result<(), JournalError> {
        let text = "back the database up with its own tools, such as pg_dump".to_owned();
        Err(Trouble::Refused(text).on_log(&self.database))
    }

    fn size_bytes(&self) -> Result<u64, JournalError> {
        let size = self.session.call(|client| {
            let sql = "SELECT pg_total_relation_size('record')";
            client.query_one(sql, &[]).map(|row| row.get::<_, i64>(0))
        });
        Ok(size.map_err(|trouble| trouble.on_log(&self.database))?.unsigned_abs())
    }
}
