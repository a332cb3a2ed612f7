//! Log and authority in one PostgreSQL database, for coordinators on several machines.
//!
//! Whoever leads holds a lease, a row that it renews, and every write asks in the same statement
//! whether the lease is still that one: who was deposed writes nothing, however late its writes come.
//! Each commit of the log has a number and a digest over it and all before it, by which a commit whose
//! answer was lost is found again.

mod authority;
mod chain;
mod lease;
mod log;
mod opening;
mod session;
#[cfg(test)]
mod tests;

pub(crate) use authority::PostgresAuthority;
pub(crate) use log::PostgresLog;

use crate::error::JournalError;
use postgres::error::SqlState;
use postgres::types::WrongType;
use session::Session;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a lease lasts that is not renewed, and so how long it takes until another leads.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The version of the tables, noted in `format`.
const FORMAT: i32 = 1;

/// Tables of version 1. `lease` has the rows `lead` and `log`.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS format (version integer NOT NULL);
    CREATE TABLE IF NOT EXISTS lease (
        name text PRIMARY KEY, epoch bigint NOT NULL, holder text,
        until timestamptz NOT NULL DEFAULT '-infinity', UNIQUE (name, epoch));
    CREATE TABLE IF NOT EXISTS document (name text PRIMARY KEY, bytes bytea NOT NULL);
    CREATE TABLE IF NOT EXISTS epoch (epoch bigint PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS record (
        epoch bigint, seq bigint, bytes bytea NOT NULL, PRIMARY KEY (epoch, seq));
    CREATE TABLE IF NOT EXISTS head (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), number bigint NOT NULL,
        digest bytea NOT NULL);
    INSERT INTO lease (name, epoch) VALUES ('lead', 0), ('log', 0) ON CONFLICT DO NOTHING;
    INSERT INTO head (number, digest) VALUES (0, '') ON CONFLICT DO NOTHING;";

/// A database, and the schema in it that is a cluster's own.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    config: postgres::Config,
    schema: String,
    /// How long a lease lasts that is not renewed.
    lease: Duration,
}

impl Database {
    /// The database at `postgres://USER@HOST/NAME`, and the schema of this name.
    ///
    /// # Errors
    /// What is wrong with the address or the name.
    pub(crate) fn new(address: &str, schema: &str, lease: Duration) -> Result<Self, String> {
        let mut config: postgres::Config =
            address.parse().map_err(|error| format!("it is no address of a database: {error}"))?;
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 40 || !schema.chars().all(is_name) {
            return Err(format!(
                "{schema:?} is no name of a schema: 1 to 40 of a to z, 0 to 9 and '_'"
            ));
        }
        let addresses = config.get_hostaddrs().iter().filter(|addr| !addr.is_loopback());
        let hosts = config.get_hosts().iter().filter_map(remote);
        if let Some(host) = hosts.chain(addresses.map(ToString::to_string)).next() {
            return Err(format!(
                "{host} is reached over the network, where whoever is on it reads along: use a socket \
                 or an address of this machine, such as the end of a tunnel"
            ));
        }
        let patience = Duration::from_secs(3);
        config.connect_timeout(patience).tcp_user_timeout(patience);
        config.target_session_attrs(postgres::config::TargetSessionAttrs::ReadWrite);
        config.application_name("radeon-cluster");
        Ok(Self { config, schema: schema.to_owned(), lease })
    }

    /// Connects, and makes the tables if there are none.
    fn open(&self) -> Result<Session, Trouble> {
        let session = Session::new(self);
        let schema = self.schema.clone();
        let found = session.call(move |client| {
            let mut txn = client.transaction()?;
            // Two that make the same tables at once get in each other's way.
            txn.batch_execute(&format!(
                "SELECT pg_advisory_xact_lock(hashtext('{schema}'));
                 CREATE SCHEMA IF NOT EXISTS {schema}; {TABLES}"
            ))?;
            let insert = "INSERT INTO format SELECT $1 WHERE NOT EXISTS (SELECT FROM format)";
            txn.execute(insert, &[&FORMAT])?;
            let found: i32 = txn.query_one("SELECT version FROM format", &[])?.get(0);
            txn.commit()?;
            Ok(found)
        })?;
        match found {
            FORMAT => Ok(session),
            found => Err(Trouble::TooNew(found)),
        }
    }

    /// What errors call it: no password.
    fn label(&self) -> PathBuf {
        use postgres::config::Host;
        let host = self.config.get_hosts().first().map_or("localhost".into(), |host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let name = self.config.get_dbname().unwrap_or("postgres");
        format!("postgres://{host}/{name}, schema {}", self.schema).into()
    }
}

/// The name of a host that is not this machine.
fn remote(host: &postgres::config::Host) -> Option<String> {
    match host {
        postgres::config::Host::Tcp(name) => {
            let is_own = name.parse().is_ok_and(|addr: std::net::IpAddr| addr.is_loopback());
            (!is_own && name != "localhost").then(|| name.clone())
        }
        postgres::config::Host::Unix(_) => None,
    }
}

/// What goes wrong with a database.
#[derive(Debug, Clone)]
enum Trouble {
    /// It did not answer, or not to the end: whether it did what was asked is not known.
    Away(String),
    /// It is full; it did nothing.
    Full(String),
    /// A row is locked for longer than is waited for.
    Locked,
    /// It refused, and did nothing.
    Refused(String),
    /// Its tables are of a version that this program does not know.
    TooNew(i32),
}

impl From<postgres::Error> for Trouble {
    fn from(error: postgres::Error) -> Self {
        let text = || match error.as_db_error() {
            Some(refusal) => format!("{} ({})", refusal.message(), refusal.code().code()),
            None => source_of(&error),
        };
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => Self::Full(text()),
            Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Self::Locked,
            Some(code) if is_passing(code.code()) => Self::Away(text()),
            Some(_) => Self::Refused(text()),
            // What cannot be sent at all is no better a second time.
            None if std::error::Error::source(&error).is_some_and(|it| it.is::<WrongType>()) => {
                Self::Refused(text())
            }
            None => Self::Away(text()),
        }
    }
}

/// Whether a refusal is one that the same request may not meet again: the server stops, starts, has too
/// many connections or too little memory, became a copy, or ended what took long or was in another's way.
fn is_passing(code: &str) -> bool {
    let codes = ["53200", "53300", "40001", "40P01", "57014", "25P03", "25006"];
    code.starts_with("08") || code.starts_with("57P") || codes.contains(&code)
}

/// What an error that is not the database's own comes from.
fn source_of(error: &postgres::Error) -> String {
    let source = std::error::Error::source(error);
    source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

impl Trouble {
    fn on_log(self, database: &Database) -> JournalError {
        let path = database.label();
        let io = |text: String| Arc::new(std::io::Error::other(text));
        match self {
            Self::Locked => JournalError::InUse { path },
            Self::Full(text) => JournalError::Full { path, source: io(text) },
            Self::TooNew(found) => JournalError::TooNew {
                path,
                found: found.unsigned_abs(),
                supported: FORMAT.unsigned_abs(),
            },
            Self::Away(text) | Self::Refused(text) => JournalError::Io { path, source: io(text) },
        }
    }

    fn text(self) -> String {
        match self {
            Self::Locked => "a row of it is locked".to_owned(),
            Self::TooNew(found) => {
                format!("its tables have version {found}, expected at most {FORMAT}")
            }
            Self::Away(text) | Self::Full(text) | Self::Refused(text) => text,
        }
    }
}
