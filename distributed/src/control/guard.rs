//! The first two pages of a journal's file, outside redb: which commits were acknowledged.
//!
//! redb falls back to an older commit if the newest fails verification, which is right after a
//! power loss. redb cannot tell a torn, never acknowledged commit from an acknowledged one that was
//! damaged later. So each commit is numbered, and the guard records its number durably after the
//! commit and before the acknowledgement: a journal with an older number is damaged. The two pages
//! take turns, so a torn write leaves the previous number.

use redb::StorageBackend;
use std::io;

/// Bytes before redb's part of the file.
pub(super) const HEAD_BYTES: u64 = 2 * PAGE_BYTES;
const PAGE_BYTES: u64 = 4096;
const MAGIC: [u8; 8] = *b"LGPjrnl\x1a";
const MARK_BYTES: usize = 24;

/// The contents of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The journal's format version when it was written.
    pub(super) version: u32,
    /// Number of the last acknowledged commit.
    pub(super) commits: u64,
}

/// The page of the newest mark; the next mark goes to the other page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Guard {
    page: u64,
}

impl Guard {
    /// A guard of a new file without marks.
    pub(super) const NEW: Self = Self { page: 1 };

    /// The newest mark of a file, or `None` when neither page holds one.
    pub(super) fn read(file: &dyn StorageBackend) -> io::Result<Option<(Self, Mark)>> {
        if file.len()? < HEAD_BYTES {
            return Ok(None);
        }
        let mut newest: Option<(Self, Mark)> = None;
        for page in 0..2 {
            let mut bytes = [0; MARK_BYTES];
            file.read(page * PAGE_BYTES, &mut bytes)?;
            if let Some(mark) = Mark::from_bytes(&bytes)
                && newest.is_none_or(|(_, other)| other.commits < mark.commits)
            {
                newest = Some((Self { page }, mark));
            }
        }
        Ok(newest)
    }

    /// Writes `mark` durably.
    pub(super) fn write(&mut self, file: &dyn StorageBackend, mark: Mark) -> io::Result<()> {
        let page = 1 - self.page;
        file.write(page * PAGE_BYTES, &mark.to_bytes())?;
        file.sync_data()?;
        self.page = page;
        Ok(())
    }
}

impl Mark {
    fn to_bytes(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let fields = MAGIC.into_iter().chain(self.version.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(fields.chain(self.commits.to_le_bytes())) {
            *to = from;
        }
        if let Some((body, crc)) = bytes.split_last_chunk_mut::<4>() {
            *crc = crc32fast::hash(body).to_le_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (commits, _) = rest.split_first_chunk::<8>()?;
        let mark =
            Self { version: u32::from_le_bytes(*version), commits: u64::from_le_bytes(*commits) };
        (*magic == MAGIC && mark.to_bytes() == *bytes).then_some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    #[test]
    fn marks_take_turns_and_a_damaged_one_leaves_the_one_before_it() {
        let file = InMemoryBackend::new();
        assert_eq!(Guard::read(&file).expect("in memory").map(|(_, mark)| mark), None);
        file.set_len(HEAD_BYTES).expect("in memory");
        let mut guard = Guard::NEW;
        let mark = |commits| Mark { version: 1, commits };
        for commits in 1..10 {
            guard.write(&file, mark(commits)).expect("in memory");
            let read = || Guard::read(&file).expect("in memory").map(|(_, mark)| mark);
            assert_eq!(read(), Some(mark(commits)));
            let at = guard.page * PAGE_BYTES;
            for bit in 0..MARK_BYTES * 8 {
                let offset = at + u64::try_from(bit / 8).expect("small");
                let mut byte = [0];
                file.read(offset, &mut byte).expect("in memory");
                file.write(offset, &[byte[0] ^ 1 << (bit % 8)]).expect("in memory");
                assert_eq!(read(), (commits > 1).then(|| mark(commits - 1)), "{bit}");
                file.write(offset, &byte).expect("in memory");
            }
        }
    }
}
