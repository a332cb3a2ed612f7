//! The identity of a commit of a shared log: its number, and a digest over it and all commits
//! before it.

use super::log::{Change, Opener};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The last commit of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) number: i64,
    pub(super) digest: Vec<u8>,
}

impl Link {
    /// The commit of `changes` that follows this one.
    pub(super) fn next<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Self {
        let number = self.number + 1;
        let mut hash = Sha256::new();
        hash.update(&self.digest);
        hash.update(number.to_le_bytes());
        for change in changes {
            let (kind, epoch, seq, bytes) = match change {
                Change::Put(record) => (1u8, record.epoch, record.seq, record.bytes.as_slice()),
                Change::Remove { epoch, seq } => (2, *epoch, *seq, [].as_slice()),
            };
            hash.update([kind]);
            hash.update(epoch.to_le_bytes());
            hash.update(seq.to_le_bytes());
            // The length prefix keeps a value from being read as the change after it.
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(bytes);
        }
        Self { number, digest: hash.finalize().to_vec() }
    }

    /// The commit by which a coordinator opens the log after this one.
    pub(super) fn opened(&self, by: Opener) -> Self {
        let number = self.number + 1;
        let mut hash = Sha256::new();
        hash.update(&self.digest);
        hash.update(number.to_le_bytes());
        hash.update([3]);
        hash.update(by.lead.to_le_bytes());
        hash.update(by.epoch.to_le_bytes());
        Self { number, digest: hash.finalize().to_vec() }
    }

    /// The commit by which a coordinator fences other writers while it reads the log.
    pub(super) fn claimed(&self, lead: u64) -> Self {
        let number = self.number + 1;
        let mut hash = Sha256::new();
        hash.update(&self.digest);
        hash.update(number.to_le_bytes());
        hash.update([4]);
        hash.update(lead.to_le_bytes());
        Self { number, digest: hash.finalize().to_vec() }
    }
}
