//! The last known commit of a shared log, in a file on this machine. It detects an engine that came
//! back with older data.

use super::chain::Link;
use super::files;
use crate::error::JournalError;
use std::path::PathBuf;
use std::sync::Arc;

const BYTES_MAX: u64 = 4 << 10;
/// How many of the last commits a log keeps with their digests.
pub(super) const COMMITS_KEPT: i64 = 100_000;

/// The file.
#[derive(Debug, Clone)]
pub(super) struct Remembered(pub(super) PathBuf);

impl Remembered {
    /// The last known commit; `None` if the log was never opened on this machine.
    ///
    /// # Errors
    /// [`JournalError::Io`], [`JournalError::Damaged`].
    pub(super) fn read(&self) -> Result<Option<Link>, JournalError> {
        let path = || self.0.clone();
        let bytes = match files::read_bounded(&self.0, BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::Io { path: path(), source: Arc::new(error) }),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| JournalError::Damaged {
            path: path(),
            what: format!("{error}: delete it to open the log without this check"),
        })
    }

    /// A failed write is harmless: without the file the log is opened without the check.
    pub(super) fn write(&self, known: &Link) {
        let bytes = serde_json::to_vec(known).unwrap_or_default();
        if let Err(error) = files::write_private(&self.0, &bytes) {
            tracing::warn!(path = %self.0.display(), %error, "the last commit is not written down");
        }
    }
}

/// The reason why a log is not the known one, or an older state of it. `found` is the digest that
/// the log has for the number of the known commit.
pub(super) fn refuse(known: &Link, head: &Link, found: Option<&[u8]>) -> Option<String> {
    let number = known.number;
    if head.number < number {
        return Some(format!(
            "its last commit is {}, expected {number} or a later one",
            head.number
        ));
    }
    if head.number.saturating_sub(number) < COMMITS_KEPT && found != Some(&known.digest) {
        return Some(format!("its commit {number} is another than the one that is known here"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(number: i64, digest: u8) -> Link {
        Link { number, digest: vec![digest; 32] }
    }

    #[test]
    fn an_older_state_and_another_log_are_noticed() {
        let known = link(9, 2);
        let refused = |head: i64, found: Option<u8>| {
            let found = found.map(|digest| vec![digest; 32]);
            refuse(&known, &link(head, 5), found.as_deref())
        };
        assert_eq!(refused(9, Some(2)), None);
        assert_eq!(refused(12, Some(2)), None);
        assert_eq!(refused(9 + COMMITS_KEPT, None), None, "it is forgotten by now");
        for (head, found, part) in [
            (8, None, "its last commit is 8, expected 9"),
            (9, Some(3), "its commit 9 is another"),
            (12, None, "its commit 9 is another"),
        ] {
            let why = refused(head, found).expect("another");
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Remembered(folder.path().join("last"));
        assert!(file.read().expect("absent").is_none());
        file.write(&link(2, 2));
        assert_eq!(file.read().expect("ours"), Some(link(2, 2)));
        std::fs::write(&file.0, "{").expect("ours");
        assert!(matches!(file.read(), Err(JournalError::Damaged { .. })));
    }
}
