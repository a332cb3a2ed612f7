//! One connection on its own thread: the client blocks on its own runtime, which a thread of
//! another runtime must not do. A thread that hangs is abandoned.

use super::{Database, Trouble};
use postgres::{Client, NoTls, Statement};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// Work for a connection, or for the error if there is none. Returns false if the connection is
/// unusable afterwards.
type Call = Box<dyn FnOnce(Result<&mut Connection, Trouble>) -> bool + Send>;

/// How long to wait for an answer; the server ends statements sooner.
pub(super) const ANSWER: Duration = Duration::from_secs(40);

/// A client with its prepared statements.
pub(super) struct Connection {
    client: Client,
    prepared: HashMap<&'static str, Statement>,
}

impl Connection {
    /// Prepares a statement once. Otherwise each use costs a round trip and the server's planning.
    pub(super) fn prepared(&mut self, sql: &'static str) -> Result<Statement, postgres::Error> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql)?;
        self.prepared.insert(sql, statement.clone());
        Ok(statement)
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// A connection that is made again after it was lost.
#[derive(Debug)]
pub(super) struct Session {
    database: Database,
    calls: Mutex<Option<mpsc::Sender<Call>>>,
}

impl Session {
    /// A session that connects on first use.
    pub(super) fn new(database: &Database) -> Self {
        Self { database: database.clone(), calls: Mutex::new(None) }
    }

    /// Runs `work` with the connection, and waits for it.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, postgres::Error> + Send + 'static,
    ) -> Result<T, Trouble> {
        self.ask(ANSWER, move |client| Ok(work(client)?))
    }

    /// Like [`Session::call`], for work with its own errors and time limit.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&mut Connection) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let (answer, answered) = mpsc::channel();
        let call: Call = Box::new(move |client| {
            let done = client.and_then(work);
            let is_good = !matches!(done, Err(Trouble::Away(_)));
            // The caller may have given up.
            let _ = answer.send(done);
            is_good
        });
        self.hand_over(call)?;
        let answered = answered.recv_timeout(limit);
        answered.unwrap_or_else(|_| {
            // Later calls must not wait behind this one.
            *self.lock() = None;
            Err(Trouble::Away("it does not answer".to_owned()))
        })
    }

    fn hand_over(&self, call: Call) -> Result<(), Trouble> {
        let mut calls = self.lock();
        let call = match calls.as_ref() {
            Some(thread) => match thread.send(call) {
                Ok(()) => return Ok(()),
                Err(mpsc::SendError(call)) => call,
            },
            None => call,
        };
        let (sender, receiver) = mpsc::channel();
        let database = self.database.clone();
        thread::Builder::new()
            .name("postgres".into())
            .spawn(move || serve(&database, receiver))
            .map_err(|error| Trouble::Refused(format!("no thread for its connection: {error}")))?;
        let _ = sender.send(call);
        *calls = Some(sender);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<mpsc::Sender<Call>>> {
        // The value is only replaced as a whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs calls until the session is dropped.
fn serve(database: &Database, calls: mpsc::Receiver<Call>) {
    let mut kept: Option<Connection> = None;
    for call in calls {
        if kept.as_ref().is_none_or(|kept| kept.is_closed()) {
            kept = match connect(database) {
                Ok(client) => Some(Connection { client, prepared: HashMap::new() }),
                Err(trouble) => {
                    call(Err(trouble));
                    continue;
                }
            };
        }
        if let Some(connection) = &mut kept
            && !call(Ok(connection))
        {
            kept = None;
        }
    }
}

pub(super) fn connect(database: &Database) -> Result<Client, Trouble> {
    let mut client = match &database.tls {
        Some(tls) => database.config.connect(tls.clone())?,
        None => database.config.connect(NoTls)?,
    };
    // Answered commits must be durable on the server, and a statement that waited for a lock must
    // see what was written meanwhile.
    client.batch_execute(&format!(
        "SET search_path TO {}; SET synchronous_commit TO on;
         SET default_transaction_isolation TO 'read committed';
         SET lock_timeout = '2s'; SET statement_timeout = '30s';
         SET idle_in_transaction_session_timeout = '60s'",
        database.schema
    ))?;
    Ok(client)
}
