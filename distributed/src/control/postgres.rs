//! Log and authority in one PostgreSQL database, for coordinators on several machines.
//!
//! The leader holds a lease, a row that it renews; the statement that writes a document checks the
//! lease. Each commit of the log has a number and a digest over it and all commits before it, and
//! is made only directly after its predecessor. Opening the log is a commit too, so an earlier
//! leader writes nothing more, however late its writes arrive. A commit whose answer was lost is
//! found again by its digest.

mod address;
mod authority;
mod ear;
mod heart;
mod log;
mod look;
mod members;
mod opening;
mod session;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use authority::PostgresAuthority;
pub(crate) use log::PostgresLog;
pub(crate) use look::look;

use super::tls::{Tls, remedy};
use crate::error::JournalError;
use postgres::error::SqlState;
use postgres::types::WrongType;
use session::{ANSWER, Session};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a lease lasts without renewal, and so how long a failover takes.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The version of the tables, noted in `format`.
const FORMAT: i32 = 1;
/// The oldest supported server version, in PostgreSQL's own numbering.
const SERVER_MIN: i32 = 130_000;
/// How far the clocks of a coordinator and of the server may differ: certificates and deadlines use
/// the coordinator's clock, leases the server's.
const CLOCKS_APART_S_MAX: f64 = 300.0;

/// Tables of version 1. `lease` has the row `lead`; its second key lets a statement lock the
/// leader's row without blocking the leader's renewals. `commit` has the last commits, `head` the
/// very last one.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS format (version integer NOT NULL);
    CREATE TABLE IF NOT EXISTS cluster (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), fingerprint text NOT NULL);
    CREATE TABLE IF NOT EXISTS counter (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), number bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS lease (
        name text PRIMARY KEY, epoch bigint NOT NULL, holder text,
        until timestamptz NOT NULL DEFAULT '-infinity', UNIQUE (name, epoch));
    CREATE TABLE IF NOT EXISTS member (
        holder text PRIMARY KEY, number bigint NOT NULL, about bytea NOT NULL,
        until timestamptz NOT NULL);
    CREATE TABLE IF NOT EXISTS document (
        name text PRIMARY KEY, version bigint NOT NULL, bytes bytea NOT NULL);
    CREATE TABLE IF NOT EXISTS epoch (epoch bigint PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS record (
        epoch bigint, seq bigint, bytes bytea NOT NULL, PRIMARY KEY (epoch, seq));
    CREATE TABLE IF NOT EXISTS head (
        one boolean PRIMARY KEY DEFAULT true CHECK (one), number bigint NOT NULL,
        digest bytea NOT NULL, lead bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS commit (number bigint PRIMARY KEY, digest bytea NOT NULL);
    INSERT INTO lease (name, epoch) VALUES ('lead', 0) ON CONFLICT DO NOTHING;
    INSERT INTO counter (number) VALUES (0) ON CONFLICT DO NOTHING;
    INSERT INTO head (number, digest, lead) VALUES (0, '', 0) ON CONFLICT DO NOTHING;";

/// A database, and the schema that belongs to the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    config: postgres::Config,
    /// TLS settings for an encrypted connection.
    tls: Option<Tls>,
    schema: String,
    /// How long a lease lasts without renewal.
    lease: Duration,
}

impl Database {
    /// The database at `postgres://USER@HOST/NAME`, and the schema. Files that the address names
    /// are read now.
    ///
    /// # Errors
    /// What is wrong with the address or the name.
    pub(crate) fn new(address: &str, schema: &str, lease: Duration) -> Result<Self, String> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if schema.is_empty() || schema.len() > 40 || !schema.chars().all(is_name) {
            return Err(format!(
                "{schema:?} is no name of a schema: 1 to 40 of a to z, 0 to 9 and '_'"
            ));
        }
        let (mut config, tls) = address::parse(address)?;
        let patience = Duration::from_secs(3);
        config.connect_timeout(patience).tcp_user_timeout(patience);
        // Keepalives tell a connection that only listens when the server is gone.
        config.keepalives_idle(Duration::from_secs(10));
        config.target_session_attrs(postgres::config::TargetSessionAttrs::ReadWrite);
        config.application_name("radeon-cluster");
        Ok(Self { config, tls, schema: schema.to_owned(), lease })
    }

    /// Connects, and creates the tables if they do not exist. Nothing is written if the server is
    /// too old, its clock differs, or the tables are of a later program.
    fn open(&self) -> Result<Session, Trouble> {
        let session = Session::new(self);
        let schema = self.schema.clone();
        let found = session.ask(ANSWER, move |client| {
            look_at(client)?;
            let mut txn = client.transaction()?;
            // Two coordinators that create the same tables at once would conflict.
            txn.batch_execute(&format!("SELECT pg_advisory_xact_lock(hashtext('{schema}'))"))?;
            let is_there = "SELECT to_regclass($1) IS NOT NULL";
            let is_there: bool = txn.query_one(is_there, &[&format!("{schema}.format")])?.get(0);
            if is_there && let Some(row) = txn.query_opt("SELECT version FROM format", &[])? {
                let found: i32 = row.get(0);
                if found != FORMAT {
                    return Ok(found);
                }
            }
            txn.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}; {TABLES}"))?;
            let insert = "INSERT INTO format SELECT $1 WHERE NOT EXISTS (SELECT FROM format)";
            txn.execute(insert, &[&FORMAT])?;
            txn.commit()?;
            Ok(FORMAT)
        })?;
        match found {
            FORMAT => Ok(session),
            found => Err(Trouble::TooNew(found)),
        }
    }

    /// The name in errors, without the password.
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

/// Refuses a server that is too old, or whose clock differs.
fn look_at(client: &mut postgres::Client) -> Result<(), Trouble> {
    let row = client.query_one(
        "SELECT current_setting('server_version_num')::int,
            extract(epoch FROM clock_timestamp())::float8",
        &[],
    )?;
    let (version, clock_s): (i32, f64) = (row.get(0), row.get(1));
    if version < SERVER_MIN {
        return Err(Trouble::Refused(format!(
            "the server has version {}, expected {} or later",
            version / 10_000,
            SERVER_MIN / 10_000
        )));
    }
    let own = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ahead_s = own.as_secs_f64() - clock_s;
    if ahead_s.abs() > CLOCKS_APART_S_MAX {
        let direction = if ahead_s > 0.0 { "ahead of" } else { "behind" };
        return Err(Trouble::Refused(format!(
            "this machine's clock is {:.0} s {direction} the server's, expected at most \
             {CLOCKS_APART_S_MAX:.0}: set the one that is wrong",
            ahead_s.abs()
        )));
    }
    Ok(())
}

/// A failure of a database.
#[derive(Debug, Clone)]
enum Trouble {
    /// The database did not answer completely, so the outcome of the request is unknown.
    Away(String),
    /// The database is full; the request had no effect.
    Full(String),
    /// Another coordinator has the log, or a row stayed locked for too long.
    Locked,
    /// The database refused the request, which had no effect.
    Refused(String),
    /// The log is not the one that this machine knows, or an older state of it.
    Older(String),
    /// The tables have a version that this program does not know.
    TooNew(i32),
}

impl From<postgres::Error> for Trouble {
    fn from(error: postgres::Error) -> Self {
        let text = || match error.as_db_error() {
            Some(refusal) => {
                let message = refusal.message();
                let hint = match message.contains("client certificate") {
                    true => ": name one with sslcert and sslkey",
                    false => "",
                };
                format!("{message} ({}){hint}", refusal.code().code())
            }
            None => source_of(&error),
        };
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => Self::Full(text()),
            Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Self::Locked,
            Some(code) if is_passing(code.code()) => Self::Away(text()),
            Some(_) => Self::Refused(text()),
            // A request that cannot be sent at all fails again when retried.
            None if std::error::Error::source(&error).is_some_and(|it| it.is::<WrongType>()) => {
                Self::Refused(text())
            }
            None => Self::Away(text()),
        }
    }
}

/// Whether a refusal is transient: the server stops, starts, has too many connections or too little
/// memory, became a standby, or ended a request that took long or conflicted with another.
fn is_passing(code: &str) -> bool {
    let codes = ["53200", "53300", "40001", "40P01", "57014", "25P03", "25006"];
    code.starts_with("08") || code.starts_with("57P") || codes.contains(&code)
}

/// The cause of an error that is not the database's own.
fn source_of(error: &postgres::Error) -> String {
    let source = std::error::Error::source(error);
    let text = source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    let is_plain = source.is_some_and(|it| it.to_string() == "server does not support TLS");
    let remedy = match is_plain {
        true => Some("have it encrypt (ssl = on, with a certificate), or use a socket"),
        false => remedy(error),
    };
    remedy.map_or(text.clone(), |remedy| format!("{text}: {remedy}"))
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
            Self::Older(what) => JournalError::Damaged { path, what },
            Self::Away(text) | Self::Refused(text) => JournalError::Io { path, source: io(text) },
        }
    }

    fn text(self) -> String {
        match self {
            Self::Locked => "another has it".to_owned(),
            Self::TooNew(found) => {
                format!("its tables have version {found}, expected at most {FORMAT}")
            }
            Self::Away(text) | Self::Full(text) | Self::Refused(text) | Self::Older(text) => text,
        }
    }
}
