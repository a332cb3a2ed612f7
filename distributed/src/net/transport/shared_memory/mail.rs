//! Attempts and their outcomes as they come over a link.

use super::SharedMemory;
use super::link::Link;
use super::message::Message;
use crate::proto::message::AttemptId;
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// What has come of an attempt, or for one.
#[derive(Debug)]
pub(crate) enum Letter {
    /// An attempt, with its frame.
    Task(AttemptId, Bytes),
    /// Nobody waits for it any more.
    Cancel(AttemptId),
    /// Its outcome, with the frame.
    Outcome(AttemptId, Bytes),
    /// The worker has given it up.
    Broken(AttemptId),
}

impl Letter {
    /// The letter of a message, if it is one.
    pub(super) fn of(message: Message, frame: &[u8]) -> Option<Self> {
        Some(match message {
            Message::Task { id } => Self::Task(id, Bytes::copy_from_slice(frame)),
            Message::Cancel { id } => Self::Cancel(id),
            Message::Outcome { id } => Self::Outcome(id, Bytes::copy_from_slice(frame)),
            Message::Broken { id } => Self::Broken(id),
            Message::Body { .. } | Message::Done { .. } | Message::Go => return None,
        })
    }
}

/// One side's letters. What a link says besides is taken in on the way.
pub(crate) struct Mail {
    link: Arc<Link>,
    socket: AsyncFd<OwnedFd>,
    letters: mpsc::UnboundedReceiver<Letter>,
}

impl Mail {
    /// The letters of a session, once it has a link; they can be had once.
    ///
    /// # Errors
    /// Where the runtime cannot watch the socket.
    #[expect(
        deprecated,
        reason = "its heir is unsafe for types whose descriptor may change, and an OwnedFd keeps its own"
    )]
    pub(crate) async fn of(shared_memory: &SharedMemory) -> io::Result<Self> {
        let link = shared_memory.linked().await;
        let (socket, letters) = link.watched()?;
        // Who also watched for room would be woken by each message that the other side reads.
        let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
        Ok(Self { link, socket, letters })
    }

    /// The next letter; none once the link has ended and all were read.
    pub(crate) async fn next(&mut self) -> Option<Letter> {
        loop {
            if let Ok(letter) = self.letters.try_recv() {
                return Some(letter);
            }
            if self.link.is_dead() {
                return None;
            }
            tokio::select! {
                // Whoever lends or takes reads the socket too.
                letter = self.letters.recv() => return letter,
                ready = self.socket.readable() => {
                    let Ok(mut ready) = ready else { return None };
                    self.link.look();
                    ready.clear_ready();
                }
            }
        }
    }

    /// Attempts that went over the link and were not answered.
    pub(crate) fn unanswered(&self) -> Vec<AttemptId> {
        self.link.unanswered()
    }
}
