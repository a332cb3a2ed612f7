//! The two connections of a rank, which live and end together: each passes on why the other ended.

use super::error::RingError;
use crate::net::transport::close::Close;
use quinn::Connection;
use std::sync::{Arc, OnceLock};

/// A rank's connections to its neighbours.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) rank: u32,
    /// The neighbours' ranks and connections: this rank receives from `before`, and sends to `next`.
    pub(super) before: (u32, Connection),
    pub(super) next: (u32, Connection),
    /// The error that ended the ring, set once.
    fault: OnceLock<RingError>,
}

impl Links {
    pub(super) fn new(rank: u32, before: (u32, Connection), next: (u32, Connection)) -> Arc<Self> {
        let links = Arc::new(Self { rank, before, next, fault: OnceLock::new() });
        // It runs while the caller computes, too: other ranks must not wait to hear of a failure.
        tokio::spawn(Arc::clone(&links).watch());
        links
    }

    /// What ended the ring.
    pub(super) fn fault(&self) -> Option<&RingError> {
        self.fault.get()
    }

    /// Ends the ring and tells the neighbours, unless it has ended. Returns the error that ended it.
    pub(super) fn fail(&self, error: RingError) -> RingError {
        let first = self.fault.get_or_init(|| error).clone();
        self.close(Close::RingBroken, &first.told(self.rank));
        first
    }

    /// The end of the connection to a neighbour, as an error of the ring.
    pub(super) fn lost(&self, rank: u32, error: &quinn::ConnectionError) -> RingError {
        self.fail(RingError::of(rank, error))
    }

    /// Closes both connections. The first reason for each stays.
    pub(super) fn close(&self, close: Close, reason: &[u8]) {
        for (_, connection) in [&self.before, &self.next] {
            connection.close(close.code(), reason);
        }
    }

    async fn watch(self: Arc<Self>) {
        let end = async |(rank, connection): &(u32, Connection)| {
            let error = connection.closed().await;
            // A rank that leaves in order has taken part in all that needed it, as far as is known.
            // A connection that was closed here has a reason already.
            let in_order = Close::given_by_peer(&error) == Some(Close::Farewell);
            if !in_order && error != quinn::ConnectionError::LocallyClosed {
                self.lost(*rank, &error);
            }
        };
        tokio::join!(end(&self.before), end(&self.next));
    }
}
