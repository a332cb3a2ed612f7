//! What this machine knows of a log that it shares, in a file of its own: by it an engine that came back
//! with older data is noticed.

use super::chain::Link;
use super::files;
use crate::error::JournalError;
use std::path::PathBuf;
use std::sync::Arc;

const BYTES_MAX: u64 = 4 << 10;
/// How many of its last commits a log knows by their digests.
pub(super) const COMMITS_KEPT: i64 = 100_000;

/// The file.
#[derive(Debug, Clone)]
pub(super) struct Remembered(pub(super) PathBuf);

impl Remembered {
    /// The last commit that is known here; none where the log was never opened here.
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

    /// A log without the file is opened without the check, so it is no matter if this fails.
    pub(super) fn write(&self, known: &Link) {
        let bytes = serde_json::to_vec(known).unwrap_or_default();
        if let Err(error) = files::write_private(&self.0, &bytes) {
            tracing::warn!(path = %self.0.display(), %error, "the last commit is not written down");
        }
    }
}

/// Why a log is not the one that is known here by a commit, or an older state of it; `found` is the
/// digest that it has for the number of that commit.
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
