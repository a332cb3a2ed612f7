//! Work that takes long, off the threads that serve connections.

use crate::fault::Fault;

/// From this many bytes of JSON on, bodies are parsed and written off the threads that serve connections.
pub(crate) const LARGE_BYTES: usize = 256 << 10;
/// Raw bytes that take no longer than one byte of JSON, because they are only copied.
const RAW_BYTES_PER_TEXT: usize = 4;

/// The size of a request as compared with [`LARGE_BYTES`].
pub(crate) fn weight(text_bytes: usize, raw_bytes: usize) -> usize {
    text_bytes.saturating_add(raw_bytes / RAW_BYTES_PER_TEXT)
}

/// Runs work on this many bytes, off the threads that serve connections if it takes long.
pub(crate) async fn off_loop<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    if bytes < LARGE_BYTES {
        return work();
    }
    // Log lines keep the request's span.
    let span = tracing::Span::current();
    let work = move || span.in_scope(work);
    tokio::task::spawn_blocking(work).await.map_err(Fault::internal)?
}
