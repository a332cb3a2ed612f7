//! The coordinator's disk: commits take time, may find no room, and survive a crash only if they
//! were durable.

use lgp_distributed::inside;
use lgp_distributed::inside::core::Left;
use lgp_distributed::inside::image::{Apart, Change, Image};
use lgp_distributed::inside::message::TensorBlob;
use lgp_distributed::inside::tensors::describe;
use lgp_distributed::{FrameError, TaskId};
use lgp_memory::NamedTensor;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The contents of the journal, and its waiting changes.
#[derive(Default)]
pub(super) struct Disk {
    records: BTreeMap<(u64, u64), Image>,
    /// Outputs that are kept apart, and the tasks that own them.
    files: BTreeMap<[u8; 32], Vec<NamedTensor>>,
    owners: BTreeMap<u64, [u8; 32]>,
    /// Changes by ticket, in order.
    waiting: VecDeque<(u64, Change)>,
    /// A commit runs until then.
    pub(super) busy_until: Option<Duration>,
    /// The disk is full until then.
    pub(super) full_until: Duration,
    /// The epochs of all coordinators so far.
    epochs: Vec<u64>,
}

impl Disk {
    pub(super) fn submit(&mut self, ticket: u64, change: Change) {
        self.waiting.push_back((ticket, change));
    }

    pub(super) fn has_work(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ends a commit of the waiting changes. Returns the last ticket, and the tickets that found no
    /// room.
    pub(super) fn commit(&mut self, now: Duration) -> (u64, Vec<u64>) {
        let full = now < self.full_until;
        let mut failed = Vec::new();
        let mut last = 0;
        for (ticket, change) in std::mem::take(&mut self.waiting) {
            last = ticket;
            // A change that frees space always fits, and some others do.
            if full && matches!(change, Change::Put(_)) && !ticket.is_multiple_of(4) {
                failed.push(ticket);
            } else {
                self.apply(change);
            }
        }
        (last, failed)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(images) => {
                let keyed = images.into_iter().map(|image| (inside::key(image.id), image));
                self.records.extend(keyed);
            }
            Change::Remove(id) => {
                self.records.remove(&inside::key(id));
            }
        }
    }

    /// The coordinator crashes: all waiting changes are committed, or none.
    pub(super) fn crash(&mut self, now: Duration, committed: bool) {
        self.busy_until = None;
        if committed {
            self.commit(now);
        }
        self.waiting.clear();
    }

    /// Starts a coordinator; returns its epoch and the contents. `clock_ms` may have jumped.
    pub(super) fn open(&mut self, clock_ms: u64) -> (u64, Left) {
        let last = self.epochs.last().copied().unwrap_or_default();
        let epoch = (last + 1).max(clock_ms);
        self.epochs.push(epoch);
        let aparts = self.records.values().filter_map(|image| {
            Some((inside::key(image.id).1, image.outputs_apart()?.blob.sha256))
        });
        self.owners = aparts.collect();
        self.sweep();
        let mut left = Left::default();
        self.records.values().for_each(|image| left.take(image.clone()));
        left.epochs.clone_from(&self.epochs);
        (epoch, left)
    }

    /// The image of a task; `None` if its separate outputs are missing.
    pub(super) fn read(&self, id: TaskId) -> Option<Image> {
        let image = self.records.get(&inside::key(id))?.clone();
        let Some(apart) = image.outputs_apart() else { return Some(image) };
        let outputs = self.files.get(&apart.blob.sha256)?.clone();
        Some(image.with_outputs(outputs))
    }

    /// Keeps a task's outputs apart, unless the disk is full.
    pub(super) fn store(
        &mut self,
        now: Duration,
        seq: u64,
        outputs: Vec<NamedTensor>,
    ) -> Result<Option<Apart>, FrameError> {
        if now < self.full_until {
            return Ok(None);
        }
        let (tensors, bytes) = describe(&outputs)?;
        let mut hash = Sha256::new();
        outputs.iter().for_each(|output| hash.update(output.tensor.as_bytes()));
        let sha256 = hash.finalize().into();
        self.files.insert(sha256, outputs);
        self.owners.insert(seq, sha256);
        let blob = TensorBlob { sha256, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) };
        Ok(Some(Apart { blob, tensors }))
    }

    /// Removes a task's separate outputs.
    pub(super) fn release(&mut self, seq: u64) {
        if self.owners.remove(&seq).is_some() {
            self.sweep();
        }
    }

    /// Removes files without an owner.
    fn sweep(&mut self) {
        let owners = &self.owners;
        self.files.retain(|sha256, _| owners.values().any(|own| own == sha256));
    }
}
