//! The core's journal on disk: changes go to its thread, and their fate comes back to the core.

use crate::control::journal::{Change as Row, Journal, Opened};
use crate::control::migrate::Format;
use crate::control::record::Record;
use crate::control::writer::{Draft, Outcome, Writer, WriterLimits};
use crate::error::{Error, JournalError, Result};
use crate::net::large::{Vault, folder_beside};
use crate::net::shared::Shared;
use crate::proto::image::{Apart, Change, Image};
use std::path::Path;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// A journal that was opened and is not written to yet.
pub(super) struct Prepared {
    journal: Journal,
    pub(super) epoch: u64,
    /// What earlier lives left.
    pub(super) images: Vec<Image>,
    /// Where large inputs lie.
    pub(super) vault: Arc<Vault>,
}

impl Prepared {
    /// The tasks whose inputs lie apart.
    pub(super) fn apart(&self) -> impl Iterator<Item = (u64, &Apart)> {
        self.images.iter().filter_map(|image| Some((image.id.seq, image.apart.as_ref()?)))
    }
}

/// Opens the journal at `path`, or makes an empty one.
///
/// # Errors
/// [`Error::Journal`] for one that is in use, damaged, too new, or not to be read; [`Error::File`]
/// for the folder of large inputs.
pub(super) fn open(path: &Path, now_ms: u64, runtime: Handle) -> Result<Prepared> {
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
    let apart = images.iter().filter_map(|image| image.apart.as_ref());
    let used = apart.map(|apart| apart.blob.sha256);
    let vault = Arc::new(Vault::open(folder_beside(path), used, runtime)?);
    Ok(Prepared { journal, epoch, images, vault })
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
    match change {
        Change::Remove(id) => writer.submit(ticket, Row::Remove { epoch: id.epoch, seq: id.seq }),
        Change::Put(image) => {
            let bytes = image.tensor_bytes();
            let write = Box::new(move || {
                let (epoch, seq) = (image.id.epoch, image.id.seq);
                let bytes = image.encode();
                let bytes = bytes.map_err(|e| JournalError::Record { what: e.to_string() })?;
                Ok(Row::Put(Record { epoch, seq, bytes }))
            });
            writer.submit(ticket, Draft { bytes, write })
        }
    }
}
