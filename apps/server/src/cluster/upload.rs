//! Uploaded models: written piece by piece to a folder of their own, within limits of size and time.

use crate::extract::{Pace, is_form, refuse_encoded, too_large};
use crate::fault::Fault;
use crate::faults::disk;
use crate::state::ServerState;
use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, Multipart};
use axum::extract::{DefaultBodyLimit, FromRequest, Request};
use futures_util::{StreamExt, stream};
use http_body_util::BodyExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Instant;
use tempfile::TempDir;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

const MODEL_FILE: &str = "model.onnx";

/// The most bytes of a form that are in memory.
const AHEAD_BYTES_MAX: u64 = 4 << 20;

/// The most parts of a multipart upload: a model has a handful of data files, if any.
const PARTS_MAX: usize = 256;

/// An upload on disk; dropping it deletes the files.
#[derive(Debug)]
pub(crate) struct Received {
    folder: TempDir,
}

impl Received {
    /// The ONNX file. External data lies beside it.
    pub(crate) fn model(&self) -> PathBuf {
        self.folder.path().join(MODEL_FILE)
    }
}

/// Receives the body of `request`: a plain ONNX file, or `multipart/form-data`.
pub(crate) async fn receive(state: &ServerState, request: Request) -> Result<Received, Fault> {
    refuse_encoded(&request)?;
    let config = state.config();
    let limit = config.model_bytes_max;
    let mut budget = Budget { left: limit, limit, pace: Pace::new(config) };
    // Stored beside the models, because the system's temporary folder is often in memory. The repository removes
    // files with this prefix after a crash.
    let folder = tempfile::Builder::new().prefix(".adding-").tempdir_in(state.catalog().root());
    let received = Received { folder: folder.map_err(|e| disk(&e))? };
    if is_form(request.headers()) {
        let written = Arc::new(AtomicU64::new(0));
        let mut request = request.map(|body| in_step(body, Arc::clone(&written)));
        // The budget bounds the body.
        DefaultBodyLimit::disable().apply(&mut request);
        let parts = Multipart::from_request(request, state)
            .await
            .map_err(|e| Fault::bad_input(e.body_text()))?;
        take_parts(parts, &received, (&mut budget, &written)).await?;
    } else {
        take_plain(request.into_body(), &received.model(), &mut budget).await?;
    }
    Ok(received)
}

async fn take_plain(mut body: Body, path: &Path, budget: &mut Budget) -> Result<(), Fault> {
    let mut file = File::create(path).await.map_err(|e| disk(&e))?;
    let mut empty = true;
    while let Some(frame) = budget.next(body.frame()).await? {
        let frame = frame.map_err(|e| Fault::bad_input(format!("the upload broke off: {e}")))?;
        if let Ok(data) = frame.into_data() {
            empty &= data.is_empty();
            write(&mut file, &data, budget).await?;
        }
    }
    if empty {
        return Err(Fault::bad_input("the body is empty, expected an ONNX file"));
    }
    file.flush().await.map_err(|e| disk(&e))
}

/// Passes a body on only this far ahead of the bytes written to disk. The form parser keeps received bytes in
/// memory, and a part's endless head would grow without limit. The reader polls again after each piece.
fn in_step(body: Body, written: Arc<AtomicU64>) -> Body {
    let (mut pieces, mut came) = (body.into_data_stream(), 0u64);
    Body::from_stream(stream::poll_fn(move |context| {
        if came.saturating_sub(written.load(Relaxed)) > AHEAD_BYTES_MAX {
            return Poll::Pending;
        }
        let piece = pieces.poll_next_unpin(context);
        if let Poll::Ready(Some(Ok(data))) = &piece {
            came = came.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        }
        piece
    }))
}

async fn take_parts(
    mut parts: Multipart,
    received: &Received,
    (budget, written): (&mut Budget, &AtomicU64),
) -> Result<(), Fault> {
    let broken = |e: axum::extract::multipart::MultipartError| {
        Fault::bad_input(format!("the upload is not valid: {}", e.body_text()))
    };
    let mut count = 0;
    while let Some(mut part) = budget.next(parts.next_field()).await?.map_err(broken)? {
        count += 1;
        if count > PARTS_MAX {
            return Err(Fault::bad_input(format!("more than {PARTS_MAX} parts in the upload")));
        }
        let path = received.folder.path().join(part_path(&part)?);
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent).await.map_err(|e| disk(&e))?;
        }
        // Without `create_new`, a second part of the same name would silently replace the first.
        let file = File::options().write(true).create_new(true).open(&path).await;
        let mut file = file.map_err(|e| {
            Fault::bad_input(format!("part '{}' of the upload: {e}", part.name().unwrap_or("")))
        })?;
        while let Some(data) = budget.next(part.chunk()).await?.map_err(broken)? {
            write(&mut file, &data, budget).await?;
            written.store(budget.limit - budget.left, Relaxed);
        }
        file.flush().await.map_err(|e| disk(&e))?;
    }
    if !received.model().is_file() {
        return Err(Fault::bad_input(
            "the upload has no part 'model', expected an ONNX file there",
        ));
    }
    Ok(())
}

/// The path of a part: a fixed name for the model, and for data the relative name that the model uses, which must
/// not leave the folder.
fn part_path(part: &Field<'_>) -> Result<PathBuf, Fault> {
    match (part.name(), part.file_name()) {
        (Some("model"), _) => Ok(PathBuf::from(MODEL_FILE)),
        (Some("data"), Some(name)) => safe_relative(name).ok_or_else(|| {
            Fault::bad_input(format!(
                "data file name '{name}' is not valid, expected a relative path without '..'"
            ))
        }),
        (name, _) => Err(Fault::bad_input(format!(
            "part {name:?} is unknown, expected one 'model' and any number of 'data' with a file \
             name"
        ))),
    }
}

fn safe_relative(name: &str) -> Option<PathBuf> {
    let plain = |s: &str| {
        !s.is_empty()
            && !s.starts_with('.')
            && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"._- ".contains(&b))
    };
    (name.len() <= 255 && name != MODEL_FILE && name.split('/').all(plain))
        .then(|| PathBuf::from(name))
}

/// What an upload has left: bytes, and time at its pace.
struct Budget {
    left: u64,
    limit: u64,
    pace: Pace,
}

impl Budget {
    /// Waits for the next piece.
    async fn next<T>(&mut self, piece: impl Future<Output = T>) -> Result<T, Fault> {
        let got = usize::try_from(self.limit - self.left).unwrap_or(usize::MAX);
        self.pace.next(got, piece).await
    }
}

async fn write(file: &mut File, data: &Bytes, budget: &mut Budget) -> Result<(), Fault> {
    let size = u64::try_from(data.len()).unwrap_or(u64::MAX);
    budget.left = budget.left.checked_sub(size).ok_or_else(|| too_large(budget.limit))?;
    let writes = Instant::now();
    file.write_all(data).await.map_err(|e| disk(&e))?;
    budget.pace.waited(writes.elapsed());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_names_stay_in_the_folder() {
        for good in ["model.onnx.data", "weights/w0.bin", "a b"] {
            assert_eq!(safe_relative(good), Some(PathBuf::from(good)), "{good}");
        }
        let long = "a".repeat(256);
        for bad in [
            "",
            "..",
            "../x",
            "/etc/passwd",
            "a//b",
            "a/../b",
            ".hidden",
            "a\\b",
            "model.onnx",
            "a\0",
            &long,
        ] {
            assert_eq!(safe_relative(bad), None, "{bad}");
        }
    }
}
