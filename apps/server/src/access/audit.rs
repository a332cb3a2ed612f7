//! The audit logs, files of JSON lines: one of administrative calls, and one of calls refused for a missing right.
//! They are separate so that many refusals cannot rotate administrators' calls away.

use super::keys::{KeyInfo, KeyRole};
use crate::error::{Error, Result};
use axum::http::StatusCode;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// From this size on the file is rotated to `NAME.1`, which replaces the earlier one.
const BYTES_MAX: u64 = 16 << 20;
/// Longest logged path of a request, in bytes.
const PATH_BYTES_MAX: usize = 512;

/// The log of administrative calls, and that of refusals.
#[derive(Debug)]
pub(super) struct Audit {
    calls: Log,
    refusals: Log,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: Mutex<File>,
}

/// A logged call.
#[derive(Debug, Serialize)]
pub(super) struct Call<'a> {
    pub(super) key: &'a str,
    pub(super) peer: &'a str,
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// The status of the answer; for a gRPC call, the equivalent HTTP status.
    pub(super) status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) made: Option<&'a Made>,
}

/// The key that a call made. The response carries it into the call's log line.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Made {
    id: String,
    role: KeyRole,
}

impl From<&KeyInfo> for Made {
    fn from(info: &KeyInfo) -> Self {
        Self { id: info.id.clone(), role: info.role }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    at_ms: u128,
    #[serde(flatten)]
    call: Call<'a>,
}

impl Audit {
    /// Opens the log of calls at a path, and the log of refusals beside it: for `audit.log`, `audit.refused.log`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let calls = Log::open(path.to_owned())?;
        Ok(Self { calls, refusals: Log::open(path.with_extension("refused.log"))? })
    }

    /// Adds a line. If it cannot be written, the server's log reports it.
    pub(super) fn add(&self, call: Call<'_>) {
        match is_refusal(call.status) {
            true => self.refusals.add(call),
            false => self.calls.add(call),
        }
    }
}

/// Whether a status says that a right was missing.
pub(super) fn is_refusal(status: u16) -> bool {
    [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].iter().any(|refused| *refused == status)
}

impl Log {
    fn open(path: PathBuf) -> Result<Self> {
        match open(&path) {
            Ok(file) => Ok(Self { path, file: Mutex::new(file) }),
            Err(source) => Err(Error::File { what: "write", path, source }),
        }
    }

    fn add(&self, call: Call<'_>) {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let end = call.path.floor_char_boundary(PATH_BYTES_MAX);
        let call = Call { path: &call.path[..end], ..call };
        let Ok(mut text) = serde_json::to_vec(&Line { at_ms, call }) else { return };
        text.push(b'\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.write(&mut file, &text) {
            let line = String::from_utf8_lossy(&text);
            tracing::error!(%error, line = line.trim_end(), "the audit log cannot be written");
        }
    }

    fn write(&self, file: &mut File, text: &[u8]) -> std::io::Result<()> {
        if file.metadata()?.len() >= BYTES_MAX {
            let mut aside = self.path.clone().into_os_string();
            aside.push(".1");
            std::fs::rename(&self.path, aside)?;
            *file = open(&self.path)?;
        }
        file.write_all(text)
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_a_line_and_a_long_log_is_put_aside() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("audit.log");
        let audit = Audit::open(&path).expect("ours");
        let long = format!("/ä\n{}", "ä".repeat(400));
        let of = |status| {
            let (key, peer, method, path) = ("k", "p", "POST", &*long);
            Call { key, peer, method, path, status, made: None }
        };
        let call = || of(200);
        audit.add(call());
        let text = std::fs::read_to_string(&path).expect("ours");
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&line["key"], &line["status"]), (&"k".into(), &200.into()));
        assert!(line["path"].as_str().expect("text").len() <= PATH_BYTES_MAX);

        File::options().write(true).open(&path).expect("ours").set_len(BYTES_MAX).expect("sparse");
        audit.add(call());
        assert_eq!(path.with_file_name("audit.log.1").metadata().expect("aside").len(), BYTES_MAX);
        assert_eq!(std::fs::read_to_string(&path).expect("ours").lines().count(), 1);

        // Refusals never rotate administrators' calls away.
        let refused = path.with_file_name("audit.refused.log");
        for status in [401, 403] {
            let file = File::options().write(true).open(&refused).expect("ours");
            file.set_len(BYTES_MAX).expect("sparse");
            audit.add(of(status));
            assert_eq!(std::fs::read_to_string(&refused).expect("ours").lines().count(), 1);
        }
        assert_eq!(std::fs::read_to_string(&path).expect("ours").lines().count(), 1);
        let aside = path.with_file_name("audit.log.1").metadata().expect("aside");
        assert_eq!(aside.len(), BYTES_MAX);
    }
}
