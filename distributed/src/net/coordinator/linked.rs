//! Outcomes that come over a session's link.

use crate::error::Result;
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::coordinator::exchange::completion;
use crate::net::transfer::tensors::Peer;
use crate::net::transport::shared_memory::{Letter, Mail, SharedMemory, is_short};
use crate::net::transport::wire::{self, Start};
use crate::proto::message::{AttemptId, Kind, OutcomeHeader, SharedBody};
use crate::proto::state::{Completion, SessionId};
use bytes::Bytes;
use quinn::Connection;
use std::sync::Arc;
use std::time::Duration;

/// Time in which a connection is seen to end whose link has: longer than its silence may be.
const CONNECTION_ENDS: Duration = Duration::from_secs(3);

/// A session whose worker is on this machine.
#[derive(Clone)]
pub(crate) struct Linked {
    pub(crate) core: Arc<CoreHandle>,
    pub(crate) session: SessionId,
    pub(crate) connection: Connection,
    pub(crate) shared_memory: Arc<SharedMemory>,
}

impl Linked {
    /// Passes outcomes on to the core until the link ends. A worker of another machine never has one.
    pub(crate) async fn collect(self) {
        let mut mail = match Mail::of(&self.shared_memory).await {
            Ok(mail) => mail,
            Err(error) => return tracing::warn!(%error, "a link is not used"),
        };
        while let Some(letter) = mail.next().await {
            match letter {
                Letter::Outcome(id, frame) => self.outcome(id, frame).await,
                Letter::Broken(id) => {
                    self.broken(id, &wire::lost("its worker has given it up"));
                }
                // No worker says that.
                Letter::Task(..) | Letter::Cancel(_) => {}
            }
        }
        // As a rule the worker has gone, of which the connection's end tells more.
        if tokio::time::timeout(CONNECTION_ENDS, self.connection.closed()).await.is_ok() {
            return;
        }
        for id in mail.unanswered() {
            self.complete(id, Completion::Unshared);
        }
    }

    async fn outcome(&self, id: AttemptId, frame: Bytes) {
        let started = Start::whole(frame).and_then(|start| {
            Ok((start.header::<OutcomeHeader>(Kind::Outcome, "outcome")?, start))
        });
        let (header, start) = match started {
            Ok((header, start)) if header.id == id => (header, start),
            Ok((header, _)) => {
                let what = format!("the answer is for {:?}, not for {id:?}", header.id);
                return self.broken(id, &wire::lost(what));
            }
            Err(error) => return self.broken(id, &error),
        };
        let short = |body: SharedBody| usize::try_from(body.bytes).is_ok_and(is_short);
        if header.shared.is_none_or(short) {
            return self.take(start, header).await;
        }
        // Copies that take a while, beside which others arrive.
        let linked = self.clone();
        tokio::spawn(async move { linked.take(start, header).await });
    }

    async fn take(&self, start: Start, header: OutcomeHeader) {
        let id = header.id;
        match self.completion(start, header).await {
            Ok(completion) => self.complete(id, completion),
            Err(error) if self.shared_memory.has_failed() => {
                tracing::info!(%error, "an attempt is done again without shared memory");
                if self.connection.close_reason().is_none() {
                    self.complete(id, Completion::Unshared);
                }
            }
            Err(error) => self.broken(id, &error),
        }
    }

    async fn completion(&self, start: Start, header: OutcomeHeader) -> Result<Completion> {
        if header.blob.is_some() {
            return Err(wire::lost("outputs that are asked for were announced over the link"));
        }
        let from = (&*self.core.collected, Peer::Worker(&self.connection));
        let (completion, _) = completion(start, header, None, &self.shared_memory, from).await?;
        Ok(completion)
    }

    fn complete(&self, id: AttemptId, completion: Completion) {
        self.core.complete(self.session, id, completion);
    }

    fn broken(&self, id: AttemptId, error: &crate::Error) {
        self.core.broken(&self.connection, self.session, id, error);
    }
}
