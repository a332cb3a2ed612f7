//! A coordinator that was restarted goes on with the tasks in the journal.

use super::Core;
use crate::proto::image::Image;
use crate::proto::ledger::{RECORD_BYTES, Stub};
use crate::proto::names::Names;
use crate::proto::state::Digest;
use crate::proto::tasks::{Request, Task, What};
use crate::task::TaskRecord;
use std::sync::Arc;
use std::time::Duration;

/// Tasks that earlier coordinators left in the journal. Little of ended tasks is kept in memory.
#[derive(Default)]
pub struct Left {
    /// The epochs in which they ran.
    pub epochs: Vec<u64>,
    /// Tasks that have not ended.
    pub(crate) open: Vec<Image>,
    ended: Vec<(Stub, Digest)>,
    names: Names,
}

impl Left {
    /// Adds a task.
    pub fn take(&mut self, image: Image) {
        if self.epochs.last() != Some(&image.id.epoch) {
            self.epochs.push(image.id.epoch);
        }
        let Some(end) = &image.end else { return self.open.push(image) };
        let key = image.spec.idempotency_key.as_deref();
        let result = end.bytes().saturating_add(key.map_or(0, str::len));
        let stub = Stub {
            id: image.id,
            model: self.names.share(&image.spec.model),
            key: key.map(Arc::from),
            finished_ms: Stub::whole_ms(end.finished),
            bytes: u64::try_from(result).unwrap_or(u64::MAX).saturating_add(RECORD_BYTES),
            pins: 0,
            state: end.state,
            durable: true,
            gone: image.gone,
        };
        self.ended.push((stub, image.digest));
    }
}

/// The record of an ended task, as the journal has it; `None` where its result is gone. Outputs
/// outside the journal must be put back before.
pub fn recollect(image: Image) -> Option<TaskRecord> {
    if image.gone {
        return None;
    }
    let task = Task::past(image)?;
    let finished = task.finished().unwrap_or_default();
    Some(task.record(finished))
}

/// The decisions about an ended task, as the journal has it.
pub(crate) fn retell(image: Image) -> Option<Vec<(f64, String)>> {
    if image.gone {
        return None;
    }
    Some(super::explain::story(&Task::past(image)?))
}

impl Core {
    /// Goes on with the tasks that earlier coordinators left in the journal; attempts are made
    /// under `epoch`. This coordinator may have tasks already that no journal has.
    pub fn restore(&mut self, now: Duration, left: Left, epoch: u64) {
        if planted!(self, ForgetJournal) {
            return;
        }
        let Left { epochs, mut open, mut ended, names } = left;
        let counted = self.counts();
        self.ledger.remember(epochs);
        self.placement.merge_names(names);
        // Ended tasks come first: open ones may depend on them.
        ended.sort_unstable_by_key(|(stub, _)| stub.id.seq);
        open.sort_unstable_by_key(|image| image.id.seq);
        for (stub, digest) in ended {
            self.tasks.pass(stub.id.seq);
            if let Some(key) = &stub.key {
                self.tasks.set_key(Arc::clone(key), stub.id, digest);
            }
            if !stub.gone {
                self.tasks.count_past(stub.state);
            }
            self.ledger.records_mut().keep(stub);
        }
        let mut failed = Vec::new();
        for image in open {
            let Image { id, submitted, spec, digest, apart, .. } = image;
            let here = spec.inputs.iter().map(|input| input.tensor.packed_len()).sum();
            let apart = apart.map(|apart| usize::try_from(apart.blob.bytes).unwrap_or(usize::MAX));
            let model = self.placement.shared_name(&spec.model);
            let request = Request::new(submitted, spec, digest, apart.unwrap_or(here), here);
            let mut task = Task::under(epoch, id, request, model);
            task.note(now, What::Restored);
            // Its dependencies were submitted first, and stay while it waits.
            if let Some(dependency) = self.depend(&mut task) {
                failed.push((id.seq, dependency));
            }
            self.insert(task, true);
            self.enqueue(id.seq);
        }
        self.tasks.begin();
        self.statistics.knew(counted, self.counts());
        for (seq, dependency) in failed {
            self.fail_dependant(now, seq, dependency);
        }
        if self.config.first_seq.is_none() {
            self.statistics.forget_times();
        }
        // No caller waits for earlier ends.
        self.actions.forget_ends();
        self.schedule(now);
    }
}
