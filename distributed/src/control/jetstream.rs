//! The log in a stream of NATS JetStream, for coordinators on several machines.
//!
//! A commit is one message, or several consecutive ones that count once the last has arrived. Each
//! message is published with the expected last sequence, so a deposed leader cannot overwrite the
//! log of its successor; opening the log is a message too. The state is the result of all messages
//! from the first one on. The leader republishes the live records of the oldest messages and then
//! purges those, so the stream stays not much longer than the state. Each commit has a digest over
//! it and all commits before it.

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

/// The location of a cluster's stream.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    servers: Endpoints,
    name: String,
    /// Bytes that the stream may have beyond twice its live bytes.
    slack: u64,
    /// Bytes of values that are cached while a log is opened; other values are fetched when they
    /// are read.
    kept_bytes: usize,
}

impl Stream {
    /// The stream of the cluster `name`, on the servers at these endpoints.
    pub(super) fn new(servers: Endpoints, name: &str) -> Self {
        let name = format!("radeon_cluster_{name}");
        Self { servers, name, slack: 16 << 20, kept_bytes: 64 << 20 }
    }

    /// The name in errors, without user and password.
    fn label(&self) -> PathBuf {
        format!("nats://{}/{}", self.servers.hosts.join(","), self.name).into()
    }
}

/// A failure of a stream.
#[derive(Debug, Clone)]
enum Trouble {
    /// The stream did not answer, so the outcome of the request is unknown.
    Away(String),
    /// There is no room; the request had no effect.
    Full(String),
    /// The expected last message is not the last one; the request had no effect.
    Behind,
    /// There is no such message or stream.
    Absent,
    /// Another coordinator has the log.
    Taken,
    /// The stream refused the request, which had no effect.
    Refused(String),
    /// The contents do not match what was written.
    Damaged(String),
    /// The stream is not the one that this machine knows, or an older state of it.
    Older(String),
    /// A later program wrote the stream.
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
