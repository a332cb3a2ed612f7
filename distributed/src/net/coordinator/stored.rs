//! Records of ended tasks that are not in memory: read back from the journal, without the core.

use crate::error::{Error, Result};
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::coordinator::journal;
use crate::net::outside;
use crate::proto::core::{recollect, retell};
use crate::proto::image::Image;
use crate::task::{TaskId, TaskRecord};

/// The record of a task.
///
/// # Errors
/// [`Error::Expired`] where it went meanwhile; [`Error::Journal`], [`Error::Stopped`].
pub(crate) async fn record(shared: &CoreHandle, id: TaskId) -> Result<TaskRecord> {
    let mut records = read(shared, vec![id], recollect).await?;
    records.pop().flatten().ok_or(Error::Expired { id })
}

/// Records without their outputs, in the same order; none where one went meanwhile.
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

/// What is told of a task.
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
