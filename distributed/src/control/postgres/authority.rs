//! Leader election and documents in the database.

use super::ear::Ear;
use super::heart::{Heart, stored};
use super::session::{ANSWER, Session};
use super::{Database, Trouble};
use crate::control::authority::{Authority, Members};
use crate::error::{Error, Result};
use crate::proto::histogram::ms;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Takes the lead if it is free, expired, or already held by this coordinator; $1 is the least
/// epoch, $3 the lease's duration. Like the next two statements, it notifies listeners.
const TAKE: &str = "
    WITH next AS (UPDATE counter SET number = GREATEST(number + 1, $1) RETURNING number),
    taken AS (
        UPDATE lease SET epoch = next.number, holder = $2,
            until = clock_timestamp() + $3 * interval '1 millisecond'
        FROM next
        WHERE name = 'lead' AND (holder IS NULL OR holder = $2 OR until < clock_timestamp())
        RETURNING epoch)
    SELECT epoch, pg_notify(current_schema(), '') FROM taken";
const RESIGN: &str = "
    WITH freed AS (
        UPDATE lease SET holder = NULL, until = '-infinity'
        WHERE name = 'lead' AND epoch = $1 AND holder = $2
        RETURNING name)
    SELECT pg_notify(current_schema(), '') FROM freed";
const IS_FREE: &str = "
    SELECT holder IS NULL OR holder = $1 OR until < clock_timestamp()
    FROM lease WHERE name = 'lead'";
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Writes a document after the version that is known here. A late write of a lost connection finds
/// another version.
const WRITE: &str = "
    WITH fence AS (
        SELECT FROM lease WHERE name = 'lead' AND epoch = $1 AND holder = $2 FOR KEY SHARE),
    written AS (
        INSERT INTO document (name, version, bytes)
        SELECT $3::text, $4::bigint + 1, $5::bytea FROM fence
        ON CONFLICT (name) DO UPDATE SET version = excluded.version, bytes = excluded.bytes
        WHERE document.version = $4::bigint
        RETURNING name)
    SELECT pg_notify(current_schema(), '') FROM written";
/// Whether the lead is held.
const STANDING: &str = "
    SELECT EXISTS (SELECT FROM lease WHERE name = 'lead' AND epoch = $1 AND holder = $2)";
const READ: &str = "SELECT version, bytes FROM document WHERE name = $1";
/// How often a write without an answer is tried.
const TRIES: usize = 3;

/// An authority that coordinators on several machines share.
#[derive(Debug)]
pub(crate) struct PostgresAuthority {
    pub(super) database: Database,
    pub(super) session: Session,
    /// A unique name of this coordinator.
    pub(super) holder: String,
    pub(super) engine: String,
    pub(super) ear: Ear,
    heart: Heart,
    /// The version of each document when it was last read or written here.
    versions: Mutex<HashMap<String, i64>>,
}

impl PostgresAuthority {
    /// Connects, and creates the tables if they do not exist, for the cluster with this
    /// fingerprint.
    ///
    /// # Errors
    /// [`Error::File`], with the reason why the database cannot be used.
    pub(crate) fn open(database: Database, fingerprint: &str) -> Result<Self> {
        let failed = |trouble| failed("open", &database, trouble);
        let session = database.open().map_err(failed)?;
        let engine = session
            .ask(ANSWER, {
                let fingerprint = fingerprint.to_owned();
                move |client| introduce(client, &fingerprint)
            })
            .map_err(failed)?;
        let holder = hex::encode(rand::random::<[u8; 16]>());
        let heart = Heart::start(&database, &holder).map_err(failed)?;
        let ear = Ear::start(&database).map_err(failed)?;
        let versions = Mutex::default();
        Ok(Self { database, session, holder, engine, ear, heart, versions })
    }

    pub(super) fn failed(&self, what: &'static str) -> impl Fn(Trouble) -> Error {
        let database = self.database.clone();
        move |trouble| failed(what, &database, trouble)
    }

    fn versions(&self) -> MutexGuard<'_, HashMap<String, i64>> {
        // Every step leaves the map consistent.
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while another coordinator leads, but no longer than an unrenewed lease lasts.
    fn wait(&self) -> Result<(), Trouble> {
        let end = Instant::now() + self.database.lease + LOOK_AGAIN;
        loop {
            let holder = self.holder.clone();
            let is_free = self.session.call(move |client| {
                client.query_one(IS_FREE, &[&holder]).map(|row| row.get::<_, bool>(0))
            })?;
            if is_free || Instant::now() >= end {
                return Ok(());
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn look_up(&self, document: &str) -> Result<Option<(i64, Vec<u8>)>, Trouble> {
        let name = document.to_owned();
        self.session.call(move |client| {
            let row = client.query_opt(READ, &[&name])?;
            Ok(row.map(|row| (row.get(0), row.get(1))))
        })
    }

    /// Tries a write; true if this try made it.
    fn ask(&self, epoch: i64, version: i64, name: &str, bytes: &[u8]) -> Result<bool, Trouble> {
        let (holder, name, bytes) = (self.holder.clone(), name.to_owned(), bytes.to_owned());
        self.session.call(move |client| {
            client
                .execute(WRITE, &[&epoch, &holder, &name, &version, &bytes])
                .map(|written| written > 0)
        })
    }

    fn leads(&self, epoch: i64) -> Result<bool, Trouble> {
        let holder = self.holder.clone();
        self.session.call(move |client| {
            client.query_one(STANDING, &[&epoch, &holder]).map(|row| row.get(0))
        })
    }

    /// Writes a document after `version`, with retries.
    fn make(&self, epoch: u64, version: i64, name: &str, bytes: &[u8]) -> Result<()> {
        let failed = self.failed("write");
        let number = stored(epoch).map_err(&failed)?;
        let mut last = None;
        for _ in 0..TRIES {
            match self.ask(number, version, name, bytes) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let found = self.look_up(name).map_err(&failed)?;
                    if found.as_ref().is_some_and(|(v, b)| *v == version + 1 && b == bytes) {
                        return Ok(());
                    }
                    if !self.leads(number).map_err(&failed)? {
                        return Err(Error::Deposed { path: self.locate(name), epoch });
                    }
                    let what = "another has changed it since it was read here: start again";
                    return Err(failed(Trouble::Refused(what.to_owned())));
                }
                Err(trouble @ Trouble::Away(_)) => last = Some(trouble),
                Err(trouble) => return Err(failed(trouble)),
            }
        }
        Err(failed(last.unwrap_or(Trouble::Locked)))
    }
}

pub(super) fn failed(what: &'static str, database: &Database, trouble: Trouble) -> Error {
    Error::file(what, database.label(), std::io::Error::other(trouble.text()))
}

/// Marks the tables as this cluster's, or refuses those of another cluster; returns the engine's
/// name.
fn introduce(client: &mut postgres::Client, own: &str) -> Result<String, Trouble> {
    let insert = "INSERT INTO cluster (fingerprint) VALUES ($1) ON CONFLICT DO NOTHING";
    client.execute(insert, &[&own])?;
    let found: String = client.query_one("SELECT fingerprint FROM cluster", &[])?.get(0);
    if found != own {
        return Err(Trouble::Refused(format!(
            "it belongs to the cluster with the fingerprint {found}, not {own}: choose another name, or \
             give this machine that cluster's file pki/authority.pem"
        )));
    }
    Ok(engine(client)?)
}

/// The server's name and version, with a note if it does not sync to the disk.
pub(super) fn engine(client: &mut impl postgres::GenericClient) -> Result<String, postgres::Error> {
    let row = client.query_one(
        "SELECT current_setting('server_version'), current_setting('fsync') = 'on'",
        &[],
    )?;
    let (version, syncs): (String, bool) = (row.get(0), row.get(1));
    let version = version.split(' ').next().unwrap_or_default();
    let note = if syncs { "" } else { ", with fsync off: a power cut loses what it acknowledged" };
    Ok(format!("PostgreSQL {version}{note}"))
}

impl Authority for PostgresAuthority {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let failed = self.failed("take the lead in");
        self.wait().map_err(&failed)?;
        let (now, holder) = (stored(now_ms).map_err(&failed)?, self.holder.clone());
        let (time, until) = (ms(self.database.lease), Instant::now() + self.database.lease);
        let taken = self.session.call(move |client| {
            client.query_opt(TAKE, &[&now, &holder, &time]).map(|row| row.map(|it| it.get(0)))
        });
        let taken: Option<i64> = match taken {
            Err(Trouble::Locked) => None,
            taken => taken.map_err(&failed)?,
        };
        let taken = taken.ok_or_else(|| Error::Led { path: self.database.label() })?;
        let epoch = taken.unsigned_abs();
        self.heart.take(epoch, until);
        Ok(epoch)
    }

    fn resign(&self, epoch: u64) {
        if self.heart.lead() != Some(epoch) {
            return;
        }
        self.heart.give_up();
        let (number, holder) = (i64::try_from(epoch).unwrap_or(-1), self.holder.clone());
        // A lead that cannot be given up expires.
        let _ = self.session.call(move |client| client.execute(RESIGN, &[&number, &holder]));
    }

    fn holds(&self, epoch: u64) -> bool {
        self.heart.lead() == Some(epoch)
    }

    fn holds_now(&self, epoch: u64) -> bool {
        self.heart.leads_now(epoch)
    }

    fn members(&self) -> Option<&dyn Members> {
        Some(self)
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        let found = self.look_up(document).map_err(self.failed("read"))?;
        let version = found.as_ref().map_or(0, |(version, _)| *version);
        self.versions().insert(document.to_owned(), version);
        Ok(found.map(|(_, bytes)| bytes))
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        let known = self.versions().get(document).copied();
        let version = match known {
            Some(version) => version,
            None => {
                let found = self.look_up(document).map_err(self.failed("read"))?;
                found.map_or(0, |(version, _)| version)
            }
        };
        self.make(epoch, version, document, bytes)?;
        self.versions().insert(document.to_owned(), version + 1);
        Ok(())
    }

    fn documents(&self) -> Result<Vec<String>> {
        let sql = "SELECT name FROM document ORDER BY name COLLATE \"C\"";
        let found = self.session.call(move |client| client.query(sql, &[]));
        let found = found.map_err(self.failed("read"))?;
        Ok(found.iter().map(|row| row.get(0)).collect())
    }

    fn locate(&self, document: &str) -> PathBuf {
        self.database.label().join(document)
    }
}
