//! The journal as the core's handle sees it: changes go there, and their results come back.

use super::{CoreHandle, State};
use crate::control::log::Log;
use crate::error::{JournalError, Result};
use crate::net::coordinator::backlog;
use crate::net::coordinator::journal::{self, Prepared};
use crate::net::coordinator::outputs::Outputs;
use crate::net::coordinator::outputs::Room;
use crate::net::outside::planted_here;
use crate::net::transfer::blobs::{BlobStore, Claim};
use crate::net::transfer::tensors::Large;
use crate::proto::core::Left;
use crate::proto::image::{Apart, Change};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The journal, and what is under way there.
#[derive(Default)]
pub(super) struct Journal {
    /// Takes the changes, if there is a journal.
    log: Option<Arc<dyn Log>>,
    /// Keeps large inputs and outputs of its tasks.
    blob_store: Option<Arc<BlobStore>>,
    /// Room of the submission that is being accepted; `rooms` has those under way, by ticket.
    pub(super) room: Option<backlog::Room>,
    rooms: BTreeMap<u64, backlog::Room>,
    /// Why it takes no more changes.
    broken: Option<JournalError>,
    /// Whether there is a journal only while this coordinator leads.
    follows: bool,
    /// How often it was handed over.
    term: u64,
}

impl Journal {
    pub(super) fn blob_store(&self) -> Option<&Arc<BlobStore>> {
        self.blob_store.as_ref()
    }

    /// Whether there are several coordinators and another one leads or is about to.
    pub(super) fn is_away(&self) -> bool {
        self.follows && (self.log.is_none() || self.broken.is_some())
    }

    /// Submissions whose change is under way.
    #[cfg(feature = "planted")]
    pub(super) fn under_way(&self) -> usize {
        self.rooms.len()
    }
}

impl CoreHandle {
    /// From now on changes go to this log.
    pub(crate) fn keep(&self, log: Arc<dyn Log>) {
        self.lock().journal.log = Some(log);
    }

    /// From now on large inputs and outputs of durable tasks go to the journal's blob store, which
    /// has those of its tasks already.
    pub(crate) fn keep_apart(&self, prepared: &mut Prepared) {
        let blob_store = &prepared.blob_store;
        let large = |apart: &Apart| Large::on_disk(apart.clone(), Arc::clone(blob_store));
        let larges = prepared.apart().map(|(seq, apart)| (seq, Arc::new(large(apart))));
        let larges: Vec<_> = larges.collect();
        let mut state = self.lock();
        state.larges.extend(larges);
        state.journal.blob_store = Some(Arc::clone(blob_store));
        state.outputs = Outputs::of(std::mem::take(&mut prepared.outputs));
    }

    /// The outputs of a task are in the blob store, or could not be written.
    pub(in crate::net::coordinator) fn stored(
        self: &Arc<Self>,
        seq: u64,
        written: Option<(Apart, Claim)>,
    ) {
        let mut state = self.lock();
        let apart = written.as_ref().map(|(apart, _)| apart.clone());
        let waits = state.core.stored(seq, apart);
        state.outputs.end(seq, written.filter(|_| waits));
        self.carry_out(&mut state);
        let last = !state.outputs.are_writing();
        drop(state);
        if last {
            self.changed.notify_waiters();
        }
    }

    /// Keeps the room of a task's large outputs until they are written, if they are to be.
    pub(in crate::net::coordinator) fn keep_room(&self, seq: u64, room: Option<Room>) {
        self.lock().outputs.keep_room(seq, room);
    }

    /// Waits until no outputs are on their way to the disk.
    pub(in crate::net::coordinator) async fn outputs_stored(&self) {
        loop {
            // Created before looking: it notices every change from here on.
            let changed = self.changed.notified();
            if !self.lock().outputs.are_writing() {
                return;
            }
            changed.await;
        }
    }

    /// The store of large inputs and outputs of durable tasks, if there is a journal.
    pub(crate) fn blob_store(&self) -> Option<Arc<BlobStore>> {
        self.lock().journal.blob_store.clone()
    }

    /// Restores the tasks that an earlier life left in the journal. Must come before anything else.
    pub(crate) fn restore(&self, left: Left, epoch: u64) {
        self.lock().core.restore(self.began, left, epoch);
    }

    /// From now on the journal may be missing for a while, though durable tasks are known.
    pub(crate) fn follow(&self) {
        self.lock().journal.follows = true;
    }

    /// How often the journal was handed over.
    pub(crate) fn term(&self) -> u64 {
        self.lock().journal.term
    }

    /// This coordinator takes the lead: it adds the journal's tasks to those that it has.
    ///
    /// # Errors
    /// The error that kept the journal from being written.
    pub(crate) fn take_over(self: &Arc<Self>, mut prepared: Prepared, lead: u64) -> Result<()> {
        self.keep_apart(&mut prepared);
        let left = std::mem::take(&mut prepared.left);
        let log = journal::start(prepared, Arc::downgrade(self))?;
        let mut state = self.lock();
        (state.journal.log, state.journal.broken) = (Some(log), None);
        // As the leader before has left it.
        state.core.remember_hangs(self.hangs.read().clone());
        state.core.restore(self.now(), left, lead);
        self.carry_out(&mut state);
        Ok(())
    }

    /// Another coordinator leads and has the journal's tasks now. Tasks that no journal has go on
    /// here. Waits for the journal's thread.
    pub(crate) fn hand_over(self: &Arc<Self>) {
        // Without the lock, which the thread takes for its last results.
        self.close_journal();
        let mut state = self.lock();
        (state.journal.broken, state.journal.blob_store) = (None, None);
        state.journal.rooms.clear();
        state.journal.term += 1;
        let now = self.now();
        #[cfg(feature = "planted")]
        if planted_here!(KeepRunning) {
            state.core.plant(Some(crate::proto::planted::Planted::KeepRunning));
        }
        if !planted_here!(FollowerRemembers) {
            state.core.hand_over(now);
        }
        self.carry_out(&mut state);
        state.outputs = Outputs::default();
        drop(state);
        self.changed.notify_waiters();
    }

    /// The journal, while it takes changes.
    pub(crate) fn log(&self) -> Option<Arc<dyn Log>> {
        self.lock().journal.log.clone()
    }

    /// Ends the journal's thread once it has written the changes that wait.
    pub(crate) fn close_journal(&self) {
        let log = self.lock().journal.log.take();
        drop(log);
    }

    /// The journal has every change up to a ticket, except those that it could not take.
    pub(crate) fn recorded(self: &Arc<Self>, upto: u64) {
        let mut state = self.lock();
        let later = state.journal.rooms.split_off(&upto.saturating_add(1));
        std::mem::replace(&mut state.journal.rooms, later)
            .into_values()
            .for_each(backlog::Room::written);
        state.core.recorded(self.now(), upto);
        self.carry_out(&mut state);
    }

    /// The journal could not take these changes.
    pub(crate) fn unrecorded(self: &Arc<Self>, tickets: &[u64], error: &JournalError) {
        let mut state = self.lock();
        state.unrecorded(self.now(), tickets, error);
        self.carry_out(&mut state);
        self.changed.notify_waiters();
    }

    /// Why the journal takes no more changes, if so.
    pub(crate) fn journal_error(&self) -> Option<JournalError> {
        self.lock().journal.broken.clone()
    }
}

impl State {
    /// Hands a change to the journal.
    pub(super) fn record(&mut self, now: Duration, ticket: u64, mut change: Change) {
        if let Change::Put(images) = &mut change {
            for image in images.iter_mut().filter(|image| image.end.is_none()) {
                let large = self.larges.get(&image.id.seq);
                image.apart = large.and_then(|large| large.apart());
            }
        }
        // The room belongs to the first `Put` after a submission.
        let room = match &change {
            Change::Put(_) => self.journal.room.take(),
            Change::Remove(_) => None,
        };
        let Some(log) = &self.journal.log else {
            if [planted_here!(FollowerAccepts), planted_here!(KeepRunning)].contains(&true) {
                return self.core.recorded(now, ticket);
            }
            if self.journal.follows && !self.stopped {
                self.core.unrecorded(now, ticket, "this coordinator does not lead");
            }
            return;
        };
        if let Some(room) = room {
            self.journal.rooms.insert(ticket, room);
        }
        if let Err(error) = journal::submit(&**log, ticket, change) {
            self.unrecorded(now, &[ticket], &error);
        }
    }

    fn unrecorded(&mut self, now: Duration, tickets: &[u64], error: &JournalError) {
        let ended = matches!(error, JournalError::Broken { .. } | JournalError::Closed { .. });
        if ended && !self.stopped && self.journal.broken.is_none() {
            tracing::error!(%error, "the journal takes no more");
            self.journal.broken = Some(error.clone());
            self.journal.blob_store.iter().for_each(|blob_store| blob_store.keep_all());
            self.callers.drop_removals();
        }
        let reason = error.to_string();
        for ticket in tickets {
            self.journal.rooms.remove(ticket);
            self.core.unrecorded(now, *ticket, &reason);
        }
    }
}
