//! Buffers of shared memory that this side writes: a bounded number, which are reused once the
//! other side is done with them.

use crate::net::transport::wire;
use crate::worker_info::Hits;
use lgp_memory::NamedTensor;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the smallest buffer. Others are powers of two, so that tasks of like sizes share them.
const CAPACITY_MIN: usize = 64 << 10;
/// Most buffers of one process: each takes two of its file descriptors.
const BUFFERS_MAX: usize = 128;
/// Most buffers that the other side of one link has at once.
pub(super) const LENT_MAX: usize = 64;
/// Time after which an unused buffer is given back to the system.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The memory and buffers that all links of a process may take together.
pub(super) struct Budget {
    bytes_max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    bytes: usize,
    buffers: usize,
    /// Buffers that links asked for, and how many of them were reused.
    asked: u64,
    reused: u64,
}

impl Budget {
    pub(super) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { bytes_max, taken: Mutex::default() })
    }

    fn grant(self: &Arc<Self>, bytes: usize) -> Option<Grant> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let after = taken.bytes.checked_add(bytes).filter(|after| *after <= self.bytes_max)?;
        if taken.buffers >= BUFFERS_MAX {
            return None;
        }
        (taken.bytes, taken.buffers) = (after, taken.buffers + 1);
        Some(Grant { budget: Arc::clone(self), bytes })
    }

    fn count(&self, reused: bool) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.asked += 1;
        taken.reused += u64::from(reused);
    }

    /// Buffers that all links asked for, and how many of those had served before.
    pub(super) fn counts(&self) -> Hits {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        Hits { hits: taken.reused, of: taken.asked }
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().unwrap().bytes
    }
}

/// Bytes of the budget, given back when dropped.
struct Grant {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut taken = self.budget.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.bytes = taken.bytes.saturating_sub(self.bytes);
        taken.buffers = taken.buffers.saturating_sub(1);
    }
}

/// A file without a name, in memory, that vanishes with its last descriptor.
pub(super) struct Buffer {
    file: File,
    /// The other side's descriptor, which cannot write.
    reader: OwnedFd,
    grant: Grant,
}

impl Buffer {
    fn new(grant: Grant) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("lgp-tensors", flags)?);
        file.set_len(u64::try_from(grant.bytes).map_err(io::Error::other)?)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let reader = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { file, reader, grant })
    }

    pub(super) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// Writes the tensors' bytes, one after another.
    pub(super) fn write(&self, tensors: &[NamedTensor]) -> io::Result<()> {
        let mut at = 0;
        for NamedTensor { tensor, .. } in tensors {
            let bytes = tensor.packed();
            self.file.write_all_at(&bytes, at)?;
            at += u64::try_from(bytes.len()).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// The buffers of one link.
pub(super) struct Pool {
    budget: Arc<Budget>,
    idle: Vec<(Buffer, Instant)>,
    /// Buffers that the other side may read, by ticket.
    lent: BTreeMap<u64, Buffer>,
    /// Buffers asked for, and how many of them were reused.
    asked: u64,
    reused: u64,
}

impl Pool {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, idle: Vec::new(), lent: BTreeMap::new(), asked: 0, reused: 0 }
    }

    /// Whether the other side may read as many buffers as was agreed.
    pub(super) fn is_lent_out(&self) -> bool {
        self.lent.len() >= LENT_MAX
    }

    /// A buffer that is not in use; `None` where the bounds allow none.
    pub(super) fn get(&mut self, bytes: usize) -> io::Result<Option<Buffer>> {
        let Some(capacity) = bytes.checked_next_power_of_two() else { return Ok(None) };
        let capacity = capacity.max(CAPACITY_MIN);
        if self.is_lent_out() {
            return Ok(None);
        }
        let idle = self.idle.iter().rposition(|(b, _)| b.grant.bytes == capacity);
        self.asked += 1;
        self.budget.count(idle.is_some());
        if let Some(at) = idle {
            self.reused += 1;
            return Ok(Some(self.idle.swap_remove(at).0));
        }
        let grant = self.budget.grant(capacity).or_else(|| {
            self.idle.clear();
            self.budget.grant(capacity)
        });
        grant.map(Buffer::new).transpose()
    }

    /// The other side may read the buffer from now on.
    pub(super) fn lend(&mut self, ticket: u64, buffer: Buffer) {
        self.lent.insert(ticket, buffer);
    }

    /// The other side never saw the buffer, or is done with it.
    pub(super) fn keep(&mut self, buffer: Buffer) {
        self.idle.push((buffer, Instant::now()));
    }

    /// The other side is done with the buffer of a ticket; an unknown ticket changes nothing.
    pub(super) fn returned(&mut self, ticket: u64) {
        if let Some(buffer) = self.lent.remove(&ticket) {
            self.keep(buffer);
        }
    }

    /// Gives buffers back to the system that were not used for a while.
    pub(super) fn trim(&mut self) {
        self.idle.retain(|(_, since)| since.elapsed() < IDLE_MAX);
    }

    /// Buffers lent now.
    pub(super) fn lent(&self) -> usize {
        self.lent.len()
    }

    /// Buffers asked for so far, and how many of them had been used before.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.asked, self.reused)
    }

    /// Drops all buffers. Memory that the other side still reads stays until it is done.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
        self.lent.clear();
    }
}

/// Checks that a file from the other side is memory that cannot shrink: reading it then neither
/// blocks nor comes up short.
pub(super) fn check(file: &File, bytes: u64) -> crate::error::Result<()> {
    let seals = rustix::fs::fcntl_get_seals(file).map_err(wire::lost)?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err(wire::lost("shared memory that may shrink is not read"));
    }
    let given = file.metadata().map_err(wire::lost)?.len();
    if given < bytes {
        let what = format!("shared memory has {given} bytes, and {bytes} were announced");
        return Err(wire::lost(what));
    }
    Ok(())
}
