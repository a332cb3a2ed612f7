//! Parses the texts of values that errors carry. The types stand apart, because their parsers
//! answer with errors.

use crate::error::{Error, Result};
use crate::net::identity::pki::CaHash;
use crate::net::identity::role::Role;
use crate::task::{TaskId, TaskState};
use std::str::FromStr;

/// The error for a text that does not parse, of which it carries the beginning.
fn wrong(what: &'static str, text: &str, expected: &'static str) -> Error {
    Error::Parse { what, given: text.chars().take(64).collect(), expected }
}

impl FromStr for TaskId {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (epoch, seq) = text.split_once('-')?;
            let hex = |s: &str| u64::from_str_radix(s, 16).ok();
            Some(Self { epoch: hex(epoch)?, seq: hex(seq)? })
        };
        parse().ok_or_else(|| wrong("task id", text, "EPOCH-NUMBER in hexadecimal"))
    }
}

impl TryFrom<String> for TaskId {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for TaskState {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];
        let expected = "queued, running, succeeded, failed or cancelled";
        let found = all.into_iter().find(|state| state.name() == text);
        found.ok_or_else(|| wrong("task state", text, expected))
    }
}

impl FromStr for Role {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|role| role.name() == text);
        found.ok_or_else(|| wrong("role", text, "worker, client or admin"))
    }
}

impl FromStr for CaHash {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let mut hash = [0; 32];
        let decoded = hex::decode_to_slice(text, &mut hash).map(|()| Self(hash));
        let expected = "64 hexadecimal digits";
        decoded.map_err(|_| wrong("hash of a certificate authority", text, expected))
    }
}
