//! The core's journal on disk: changes go to its thread, and their fate comes back to the core.

use crate::control::journal::{Change as Row, Journal, Opened};
use crate::control::migrate::Format;
use crate::control::record::Record;
use crate::control::writer::{Outcome, Writer, WriterLimits};
use crate::error::{Error, JournalError, Result};
use crate::net::shared::Shared;
use crate::proto::image::{Change, Image};
use std::path::Path;
use std::sync::{Arc, Weak};

/// A journal that was opened and is not written to yet.
pub(super) struct Prepared {
    journal: Journal,
    pub(super) epoch: u64,
    /// What earlier lives left.
    pub(super) images: Vec<Image>,
}

/// Opens the journal at `path`, or makes an empty one.
///
/// # Errors
/// [`Error::Journal`] for one that is in use, damaged, too new, or not to be read.
pub(super) fn open(path: &Path, now_ms: u64) -> Result<Prepared> {
    let Opened { journal, epoch, records } = Journal::open(path, now_ms, Format::CURRENT)?;
    let mut images = Vec::with_capacity(records.len());
    for record in records {
        let damaged = |what: String| {
            let (epoch, seq) = (record.epoch, record.seq);
            let what = format!("the record of task {epoch:x}-{seq:x}: {what}");
            Error::from(JournalError::Damaged { path: path.to_owned(), what })
        };
        let image = Image::decode(&record.bytes).map_err(|e| damaged(e.to_string()))?;
        if (image.id.epoch, image.id.seq) != (record.epoch, record.seq) {
            return Err(damaged(format!("it is that of task {}", image.id)));
        }
        images.push(image);
    }
    Ok(Prepared { journal, epoch, images })
}

/// Starts the thread that writes; what becomes of each change is told to `shared`.
pub(super) fn start(journal: Prepared, shared: Weak<Shared>) -> Result<Writer> {
    let told = move |outcome| {
        // Nobody is left to tell once the coordinator is gone.
        let Some(shared) = shared.upgrade() else { return };
        match outcome {
            Outcome::Durable(ticket) => shared.with(|core, now| core.recorded(now, ticket)),
            Outcome::Failed { tickets, error } => shared.unrecorded(&tickets, &error),
        }
    };
    Ok(Writer::start(journal.journal, WriterLimits::default(), told)?)
}

/// Hands a change to the journal's thread.
pub(super) fn submit(
    writer: &Arc<Writer>,
    ticket: u64,
    change: Change,
) -> Result<(), JournalError> {
    let row = match change {
        Change::Remove(id) => Row::Remove { epoch: id.epoch, seq: id.seq },
        Change::Put(image) => {
            let (epoch, seq) = (image.id.epoch, image.id.seq);
            let bytes = image.encode().map_err(|e| JournalError::Record { what: e.to_string() })?;
            Row::Put(Record { epoch, seq, bytes })
        }
    };
    writer.submit(ticket, row)
}
