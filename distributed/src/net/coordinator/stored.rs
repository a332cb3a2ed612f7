//! Records of ended tasks that are not in memory: read back from the journal, without the core.

use crate::error::{Error, Result};
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::coordinator::journal;
use crate::net::outside;
use crate::net::transfer::blobs::Unread;
use crate::proto::core::{recollect, retell};
use crate::proto::image::Image;
use crate::task::{TaskId, TaskRecord};

/// The record of a task.
///
/// # Errors
/// [`Error::Expired`] where the record went meanwhile; [`Error::ResultLost`],
/// [`Error::ResultUnread`]; [`Error::Journal`], [`Error::Stopped`].
pub(crate) async fn record(shared: &CoreHandle, id: TaskId) -> Result<TaskRecord> {
    let expired = || Error::Expired { id };
    let image = image(shared, id).await?.ok_or_else(expired)?;
    let Some(apart) = image.outputs_apart().cloned() else {
        return recollect(image).ok_or_else(expired);
    };
    let blob_store = shared.blob_store().ok_or(Error::Stopped)?;
    let unread = match blob_store.load(apart.clone()).await {
        Ok(outputs) => return recollect(image.with_outputs(outputs)).ok_or_else(expired),
        Err(unread) => unread,
    };
    // Where the result was discarded meanwhile, its file went with it.
    let now = self::image(shared, id).await?.ok_or_else(expired)?;
    if now.outputs_apart() != Some(&apart) {
        return Err(expired());
    }
    Err(match unread {
        Unread::Lost(reason) => {
            tracing::error!(%id, %reason, "the outputs of a task are lost");
            Error::ResultLost { id, reason }
        }
        Unread::Failed(reason) => Error::ResultUnread { id, reason },
    })
}

/// Bytes of outputs that lie outside the journal.
///
/// # Errors
/// As [`record`].
pub(crate) async fn bytes_apart(shared: &CoreHandle, id: TaskId) -> Result<u64> {
    let image = image(shared, id).await?.ok_or(Error::Expired { id })?;
    Ok(image.outputs_apart().map_or(0, |apart| apart.blob.bytes))
}

async fn image(shared: &CoreHandle, id: TaskId) -> Result<Option<Image>> {
    Ok(read(shared, vec![id], Some).await?.pop().flatten())
}

/// Records without their outputs, in the same order; `None` for a record that went meanwhile.
///
/// # Errors
/// As [`record`].
pub(crate) async fn summaries(
    shared: &CoreHandle,
    ids: Vec<TaskId>,
) -> Result<Vec<Option<TaskRecord>>> {
    let summary = |image| recollect(image).map(|record| TaskRecord { outputs: None, ..record });
    read(shared, ids, summary).await
}

/// The decisions about a task, as they are told.
///
/// # Errors
/// As [`record`].
pub(crate) async fn story(shared: &CoreHandle, id: TaskId) -> Result<Vec<(f64, String)>> {
    let mut stories = read(shared, vec![id], retell).await?;
    stories.pop().flatten().ok_or(Error::Expired { id })
}

async fn read<T: Send + 'static>(
    shared: &CoreHandle,
    ids: Vec<TaskId>,
    make: impl Fn(Image) -> Option<T> + Send + 'static,
) -> Result<Vec<Option<T>>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let log = shared.log().ok_or(Error::Stopped)?;
    let reading = outside::blocking(move || {
        let one = |id: TaskId| Ok(journal::read(&*log, id)?.and_then(&make));
        ids.into_iter().map(one).collect()
    });
    reading.await.map_err(|_| Error::Stopped)?
}
