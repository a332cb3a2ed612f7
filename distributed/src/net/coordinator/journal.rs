//! The core's journal on disk: changes go to its thread, and their results come back to the core.

use crate::control::log::{Change as Row, Draft, Log, Opened, Opener, Outcome, Place, Start};
use crate::control::record::Record;
use crate::error::{JournalError, Result};
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::transfer::blobs::{BlobStore, BlobsAt, folder_beside};
use crate::proto::core::Left;
use crate::proto::image::{Apart, Change, Image};
use crate::task::TaskId;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Weak};
use tokio::runtime::Handle;

/// A journal that was opened and is not written to yet.
pub(crate) struct Prepared {
    start: Start,
    pub(crate) epoch: u64,
    /// The tasks that earlier lives left.
    pub(crate) left: Left,
    /// The digests of outputs outside the journal, by task.
    pub(crate) outputs: HashMap<u64, [u8; 32]>,
    /// Where large inputs and outputs lie.
    pub(crate) blob_store: Arc<BlobStore>,
}

impl Prepared {
    /// The tasks whose inputs lie outside the journal.
    pub(crate) fn apart(&self) -> impl Iterator<Item = (u64, &Apart)> {
        self.left.open.iter().filter_map(|image| Some((image.id.seq, image.apart.as_ref()?)))
    }
}

/// Opens a log, whose large inputs and outputs lie beside `path`, or in the store `blobs`.
///
/// # Errors
/// [`Error::Journal`](crate::Error) for one that is in use, damaged, too new, or not to be read;
/// [`Error::File`](crate::Error) for the folder beside it, [`Error::Blobs`](crate::Error) for the place.
pub(crate) fn open(
    place: &dyn Place,
    (path, blobs): (&Path, Option<&BlobsAt>),
    opener: Opener,
    runtime: Handle,
) -> Result<Prepared> {
    let mut left = Left::default();
    let mut outputs = HashMap::new();
    let opened = place.open(opener, &mut |(epoch, seq), bytes| {
        let id = TaskId { epoch, seq };
        let damaged = |what: String| format!("the record of task {id}: {what}");
        let image = Image::decode(bytes).map_err(|e| damaged(e.to_string()))?;
        if image.id != id {
            return Err(damaged(format!("it is that of task {}", image.id)));
        }
        if let Some(apart) = image.outputs_apart() {
            outputs.insert(seq, apart.blob.sha256);
        }
        left.take(image);
        Ok(())
    })?;
    let Opened { epoch, epochs, start } = opened;
    left.epochs.extend(epochs);
    let apart = left.open.iter().filter_map(|image| image.apart.as_ref());
    let used = apart.map(|apart| apart.blob.sha256).chain(outputs.values().copied());
    let blob_store = match blobs {
        None => Arc::new(BlobStore::open(folder_beside(path), used, runtime)?),
        // Where clocks went back, a coordinator's own log has a later epoch than was asked for.
        Some(at) => {
            let lead = epoch.max(opener.lead);
            BlobStore::open_shared(at, (lead, &left.epochs), used, runtime)?
        }
    };
    Ok(Prepared { start, epoch, left, outputs, blob_store })
}

/// Starts the thread that writes; `shared` hears the result of each change.
pub(crate) fn start(prepared: Prepared, shared: Weak<CoreHandle>) -> Result<Arc<dyn Log>> {
    let term = shared.upgrade().map(|shared| shared.term());
    let told = Box::new(move |outcome| {
        // The coordinator is gone, and nothing is left to tell.
        let Some(shared) = shared.upgrade() else { return };
        if term != Some(shared.term()) {
            // The result is about tasks that were handed over.
            return;
        }
        match outcome {
            Outcome::Durable(ticket) => shared.recorded(ticket),
            Outcome::Failed { tickets, error } => shared.unrecorded(&tickets, &error),
        }
    });
    Ok((prepared.start)(told)?)
}

/// A task's record in the log.
///
/// # Errors
/// Errors of reading the log; [`JournalError::Record`] for a record that is no task.
pub(crate) fn read(log: &dyn Log, id: TaskId) -> Result<Option<Image>, JournalError> {
    let Some(bytes) = log.read((id.epoch, id.seq))? else { return Ok(None) };
    let image = Image::decode(&bytes).map_err(|e| JournalError::Record { what: e.to_string() })?;
    Ok(Some(image))
}

/// Hands a change to the log.
pub(crate) fn submit(log: &dyn Log, ticket: u64, change: Change) -> Result<(), JournalError> {
    let images = match change {
        Change::Remove(TaskId { epoch, seq }) => {
            return log.submit(ticket, Row::Remove { epoch, seq }.into());
        }
        Change::Put(images) => images,
    };
    let bytes = images.iter().map(Image::tensor_bytes).sum();
    let write = Box::new(move || {
        let row = |image: Image| {
            let TaskId { epoch, seq } = image.id;
            let bytes = image.encode();
            let bytes = bytes.map_err(|e| JournalError::Record { what: e.to_string() })?;
            Ok(Row::Put(Record { epoch, seq, bytes }))
        };
        images.into_iter().map(row).collect()
    });
    log.submit(ticket, Draft { bytes, write })
}
