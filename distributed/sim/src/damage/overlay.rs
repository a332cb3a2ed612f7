//! A file in memory that differs little from another one.

use redb::StorageBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file that shares unchanged pages with its base.
#[derive(Debug)]
pub(super) struct Overlay {
    base: Arc<Vec<u8>>,
    state: Mutex<Changed>,
}

#[derive(Debug)]
struct Changed {
    length: usize,
    writes: u64,
    /// Pages that differ from the base.
    pages: BTreeMap<usize, Vec<u8>>,
    /// Pages of the base that were read.
    read: BTreeSet<usize>,
}

/// The size of a shared or changed page.
pub(super) const PAGE_BYTES: usize = 4096;

impl Overlay {
    pub(super) fn new(base: Arc<Vec<u8>>) -> Self {
        let (pages, read) = (BTreeMap::new(), BTreeSet::new());
        let state = Changed { length: base.len(), writes: 0, pages, read };
        Self { base, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, Changed> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writes(&self) -> u64 {
        self.lock().writes
    }

    /// The pages of the base that were read.
    pub(super) fn pages_read(&self) -> BTreeSet<usize> {
        self.lock().read.clone()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.lock().length];
        // The read stays within the file's length.
        let _ = self.read(0, &mut bytes);
        bytes
    }

    /// Calls `each` with every page that overlaps the range, the range in it, and the range in
    /// the caller's bytes.
    fn pages(
        offset: u64,
        length: usize,
        mut each: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let Ok(offset) = usize::try_from(offset) else { return };
        let mut done = 0;
        while done < length {
            let (page, start) = ((offset + done) / PAGE_BYTES, (offset + done) % PAGE_BYTES);
            let count = (PAGE_BYTES - start).min(length - done);
            each(page, start..start + count, done..done + count);
            done += count;
        }
    }

    fn base_page(&self, page: usize) -> &[u8] {
        let start = (page * PAGE_BYTES).min(self.base.len());
        self.base.get(start..(start + PAGE_BYTES).min(self.base.len())).unwrap_or_default()
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.lock().length).unwrap_or(u64::MAX))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.lock();
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(out.len()));
        if end.is_none_or(|end| end > state.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut seen = Vec::new();
        Self::pages(offset, out.len(), |page, from, to| {
            let kept = state.pages.get(&page).map(Vec::as_slice);
            if kept.is_none() {
                seen.push(page);
            }
            let kept = kept.unwrap_or_else(|| self.base_page(page));
            let kept = kept.get(from.start..from.end.min(kept.len())).unwrap_or_default();
            if let Some(to) = out.get_mut(to) {
                let (here, beyond) = to.split_at_mut(kept.len());
                here.copy_from_slice(kept);
                beyond.fill(0);
            }
        });
        state.read.extend(seen);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        state.writes += 1;
        state.length = usize::try_from(len).map_err(io::Error::other)?;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.writes += 1;
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(data.len()));
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        state.length = state.length.max(end);
        Self::pages(offset, data.len(), |page, to, from| {
            let kept = state.pages.entry(page).or_insert_with(|| {
                let mut kept = self.base_page(page).to_vec();
                kept.resize(PAGE_BYTES, 0);
                kept
            });
            if let (Some(to), Some(from)) = (kept.get_mut(to), data.get(from)) {
                to.copy_from_slice(from);
            }
        });
        Ok(())
    }
}
