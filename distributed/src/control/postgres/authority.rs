//! Who leads, and documents, in the database.

use super::lease::{self, Held, TAKE, holder, ms, stored};
use super::session::Session;
use super::{Database, Trouble};
use crate::control::authority::Authority;
use crate::error::{Error, Result};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

const LEASE: &str = "lead";

const WRITE: &str = "
    WITH fence AS (
        SELECT FROM lease WHERE name = 'lead' AND epoch = $1 AND holder = $2 FOR SHARE)
    INSERT INTO document SELECT $3::text, $4::bytea FROM fence
    ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes";

/// An authority that coordinators on several machines share.
#[derive(Debug)]
pub(crate) struct PostgresAuthority {
    database: Database,
    session: Session,
    holder: String,
    held: Mutex<Option<(u64, Held)>>,
}

impl PostgresAuthority {
    /// Connects, and makes the tables if there are none.
    ///
    /// # Errors
    /// [`Error::File`], which says why the database cannot be used.
    pub(crate) fn open(database: Database) -> Result<Self> {
        let session = database.open().map_err(|trouble| failed("open", &database, trouble))?;
        Ok(Self { database, session, holder: holder(), held: Mutex::new(None) })
    }

    fn held(&self) -> MutexGuard<'_, Option<(u64, Held)>> {
        // It is replaced as a whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, what: &'static str) -> impl Fn(Trouble) -> Error {
        let database = self.database.clone();
        move |trouble| failed(what, &database, trouble)
    }
}

fn failed(what: &'static str, database: &Database, trouble: Trouble) -> Error {
    Error::file(what, database.label(), std::io::Error::other(trouble.text()))
}

impl Authority for PostgresAuthority {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let mut held = self.held();
        let failed = self.failed("take the lead in");
        lease::wait(&self.session, &self.database, LEASE, &self.holder).map_err(&failed)?;
        let (now, holder, time) =
            (stored(now_ms).map_err(&failed)?, self.holder.clone(), ms(self.database.lease));
        let taken = self.session.call(move |client| {
            client
                .query_opt(TAKE, &[&LEASE, &now, &holder, &time])
                .map(|row| row.map(|it| it.get(0)))
        });
        let taken: Option<i64> = match taken {
            Err(Trouble::Locked) => None,
            taken => taken.map_err(&failed)?,
        };
        let taken = taken.ok_or_else(|| Error::Led { path: self.database.label() })?;
        let kept = Held::keep(&self.database, LEASE, &self.holder, taken).map_err(&failed)?;
        let epoch = u64::try_from(taken).unwrap_or_default();
        *held = Some((epoch, kept));
        Ok(epoch)
    }

    fn resign(&self, epoch: u64) {
        let mut held = self.held();
        if held.as_ref().is_some_and(|(own, _)| *own == epoch) {
            *held = None;
        }
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        let name = document.to_owned();
        let found = self.session.call(move |client| {
            let sql = "SELECT bytes FROM document WHERE name = $1";
            client.query_opt(sql, &[&name]).map(|row| row.map(|it| it.get(0)))
        });
        found.map_err(self.failed("read"))
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        let failed = self.failed("write");
        let (number, holder) = (stored(epoch).map_err(&failed)?, self.holder.clone());
        let (name, bytes) = (document.to_owned(), bytes.to_owned());
        let written = self
            .session
            .call(move |client| client.execute(WRITE, &[&number, &holder, &name, &bytes]));
        match written.map_err(&failed)? {
            0 => Err(Error::Deposed { path: self.locate(document), epoch }),
            _ => Ok(()),
        }
    }

    fn locate(&self, document: &str) -> PathBuf {
        self.database.label().join(document)
    }
}
