//! The log in a stream of NATS JetStream, for coordinators on several machines.
//!
//! A commit is one message, or some that follow one another and count once the last of them is there.
//! Each is published as the one after the last that is known here, so whoever opened the log since is
//! not written over; opening it is a message, too. The state is what all messages from the first one
//! leave: whoever writes publishes again what still counts of the oldest, and purges those then, so
//! there are never many more than what they leave. Each commit has a digest over it and all before it.

mod along;
mod client;
mod connecting;
mod frame;
mod index;
mod log;
mod opening;
mod pen;
mod reader;
mod state;
mod sweep;
#[cfg(test)]
mod tests;

pub(crate) use log::JetStreamLog;
pub(crate) use opening::{check, look};

use super::endpoints::Endpoints;
use crate::error::JournalError;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a cluster's stream is.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    servers: Endpoints,
    name: String,
    /// Bytes that there may be beyond twice what counts.
    slack: u64,
    /// Bytes of values that are kept while a log is opened; others are fetched when they are handed on.
    kept_bytes: usize,
}

impl Stream {
    /// That of the cluster of this name, with the servers that answer at these endpoints.
    pub(super) fn new(servers: Endpoints, name: &str) -> Self {
        let name = format!("radeon_cluster_{name}");
        Self { servers, name, slack: 16 << 20, kept_bytes: 64 << 20 }
    }

    /// What errors call it: no user, no password.
    fn label(&self) -> PathBuf {
        format!("nats://{}/{}", self.servers.hosts.join(","), self.name).into()
    }
}

/// What goes wrong with a stream.
#[derive(Debug, Clone)]
enum Trouble {
    /// It did not answer: whether it did what was asked is not known.
    Away(String),
    /// There is no room; it did nothing.
    Full(String),
    /// Another message than the one that was named is the last; it did nothing.
    Behind,
    /// There is no such message or stream.
    Absent,
    /// Another has it.
    Taken,
    /// It refused, and did nothing.
    Refused(String),
    /// It is not what was written to it.
    Damaged(String),
    /// It is not the one that this machine knows, or an older state of it.
    Older(String),
    /// It was written by a program that is later than this one.
    TooNew(u32),
}

impl Trouble {
    fn on_log(self, stream: &Stream) -> JournalError {
        let path = stream.label();
        let io = |text: String| Arc::new(std::io::Error::other(text));
        match self {
            Self::Behind | Self::Taken => JournalError::InUse { path },
            Self::Full(text) => JournalError::Full { path, source: io(text) },
            Self::Damaged(what) | Self::Older(what) => JournalError::Damaged { path, what },
            Self::TooNew(found) => {
                JournalError::TooNew { path, found, supported: u32::from(frame::FORMAT) }
            }
            trouble => JournalError::Io { path, source: io(trouble.text()) },
        }
    }

    fn text(self) -> String {
        match self {
            Self::Behind | Self::Taken => "another coordinator leads".to_owned(),
            Self::Absent => "there is no such stream, or no such message in it".to_owned(),
            Self::TooNew(found) => {
                format!("a message has format {found}, expected at most {}", frame::FORMAT)
            }
            Self::Away(text)
            | Self::Full(text)
            | Self::Refused(text)
            | Self::Damaged(text)
            | Self::Older(text) => text,
        }
    }
}
