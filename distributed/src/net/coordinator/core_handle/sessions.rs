//! Workers' sessions, and the connections that they have.

use super::{CoreHandle, State};
use crate::error::{Error, Result};
use crate::net::outside::planted_here;
use crate::net::transport::close::Close;
use crate::net::transport::shared_memory::SharedMemory;
use crate::proto::frame;
use crate::proto::membership::{Join, Parting};
use crate::proto::message::{AttemptId, Kind, Stint};
use crate::proto::state::{Completion, SessionId};
use crate::worker_info::Traffic;
use quinn::Connection;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// A connection as the core's actions need it.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    /// Frames for the control stream.
    pub(crate) control: mpsc::UnboundedSender<Vec<u8>>,
    pub(super) shared_memory: Arc<SharedMemory>,
    pub(super) attempts: HashMap<AttemptId, AbortHandle>,
    /// Why this side closed its connection, if it did.
    closed: Option<Close>,
}

impl Session {
    pub(crate) fn new(
        connection: Connection,
        control: mpsc::UnboundedSender<Vec<u8>>,
        shared_memory: Arc<SharedMemory>,
    ) -> Self {
        Self { connection, control, shared_memory, attempts: HashMap::new(), closed: None }
    }

    pub(super) fn tell(&self, kind: Kind, header: &impl Serialize) {
        match frame::encode(kind, header, 0, 0) {
            // A closed channel belongs to a connection that is about to be reported as lost.
            Ok(bytes) => drop(self.control.send(bytes)),
            Err(error) => tracing::error!(%error, "control message not sent"),
        }
    }
}

impl CoreHandle {
    /// Registers a connection; its tasks begin at once. Returns its session, and the stint that it
    /// goes on with or begins; or why the connection must be closed instead.
    pub(crate) fn join(
        self: &Arc<Self>,
        join: Join,
        session: Session,
    ) -> Result<(SessionId, Stint), Close> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Close::Stopping);
        }
        let (id, stint) = state.core.join(self.now(), join).ok_or(Close::Superseded)?;
        state.sessions.insert(id, session);
        self.carry_out(&mut state);
        Ok((id, stint))
    }

    /// A connection ended. Returns why, if this side closed it.
    pub(crate) fn leave(
        self: &Arc<Self>,
        session: SessionId,
        connection: &Connection,
        parting: Parting,
    ) -> Option<Close> {
        let mut state = self.lock();
        let own = state.sessions.get(&session);
        if own.is_none_or(|own| own.connection.stable_id() != connection.stable_id()) {
            return None;
        }
        if planted_here!(KeepSessions) {
            return None;
        }
        let now = self.now();
        state.core.disconnected(now, session, parting);
        self.carry_out(&mut state);
        state.sessions.remove(&session)?.closed
    }

    /// The session that a connection belongs to.
    pub(crate) fn session_of(&self, connection: &Connection) -> Option<SessionId> {
        let id = connection.stable_id();
        let state = self.lock();
        let own = state.sessions.iter().find(|(_, own)| own.connection.stable_id() == id);
        own.map(|(number, _)| *number)
    }

    /// An attempt ended with an answer.
    pub(crate) fn complete(
        self: &Arc<Self>,
        session: SessionId,
        id: AttemptId,
        completion: Completion,
    ) {
        let mut state = self.lock();
        if let Some(session) = state.sessions.get_mut(&session)
            && !planted_here!(KeepAttempts)
        {
            session.attempts.remove(&id);
        }
        let now = self.now();
        state.core.complete(now, session, id, completion);
        self.carry_out(&mut state);
    }

    /// An attempt's stream broke. If the whole connection did, its session reports that itself.
    pub(crate) fn broken(
        self: &Arc<Self>,
        connection: &Connection,
        session: SessionId,
        id: AttemptId,
        error: &Error,
    ) {
        if connection.close_reason().is_none() {
            let reason = format!("the exchange with its worker broke: {error}");
            self.complete(session, id, Completion::Broken { reason });
        }
    }

    /// Traffic over the connections that there are.
    pub(crate) fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for session in self.lock().sessions.values() {
            let stats = session.connection.stats();
            sum.sent_bytes += stats.udp_tx.bytes;
            sum.sent_datagrams += stats.udp_tx.datagrams;
            sum.received_bytes += stats.udp_rx.bytes;
            sum.received_datagrams += stats.udp_rx.datagrams;
        }
        sum
    }
}

impl State {
    /// Tells a worker something, if it is connected.
    pub(super) fn tell(&self, session: SessionId, kind: Kind, header: &impl Serialize) {
        if let Some(session) = self.sessions.get(&session) {
            session.tell(kind, header);
        }
    }

    /// Closes a worker's connection, if it has one.
    pub(super) fn close(&mut self, session: SessionId, why: Close) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.closed.get_or_insert(why);
            session.connection.close(why.code(), why.reason().as_bytes());
        }
    }
}
