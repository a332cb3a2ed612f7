//! A request for predictions: `multipart/form-data` with the tasks as JSON, and an image or a text.
#![deny(clippy::as_conversions)]

use super::tasks::{Entry, Task, invalid};
use crate::extract::is_form;
use crate::fault::Fault;
use axum::body::{Body, Bytes};
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{FromRequest, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use std::collections::BTreeMap;

/// The most parts of a form, as in the library of Immich's own service; Immich sends two.
const PARTS_MAX: usize = 1000;
/// The most bytes of the tasks' JSON, which usually has some hundred.
const ENTRIES_BYTES_MAX: usize = 64 << 10;
/// The longest search text, in bytes. Models use even less of it.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The tasks of a request, and their image or text.
pub(super) struct Predict {
    pub(super) tasks: Vec<Task>,
    pub(super) sent: Sent,
}

pub(super) enum Sent {
    Image(Bytes),
    Text(String),
}

/// Parses a complete form.
///
/// # Errors
/// 415 if it is not a form, 422 if the tasks are missing or invalid, 400 for other errors.
pub(super) async fn read(head: Parts, bytes: Vec<u8>) -> Result<Predict, Fault> {
    if !is_form(&head.headers) {
        let kind = head.headers.get(header::CONTENT_TYPE);
        let what = format!("the content type is {kind:?}, expected multipart/form-data");
        return Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", what));
    }
    let request = Request::from_parts(head, Body::from(bytes));
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|error| broken(&error.body_text()))?;
    let (mut entries, mut image, mut text) = (None, None, None);
    let mut count = 0;
    while let Some(part) = form.next_field().await.map_err(|e| broken(&e.body_text()))? {
        count += 1;
        if count > PARTS_MAX {
            return Err(broken(&format!("more than {PARTS_MAX} parts")));
        }
        match part.name() {
            // Of duplicate parts the last one counts, and others are ignored, as in Immich's own service.
            Some("entries") => entries = Some(content(part).await?),
            Some("image") => image = Some(content(part).await?),
            Some("text") => text = Some(content(part).await?),
            _ => drop(part),
        }
    }
    let entries = entries.ok_or_else(|| {
        invalid("the form has no part 'entries', expected the tasks in it as JSON".to_owned())
    })?;
    let tasks = tasks(&entries)?;
    let sent = match (image, text) {
        (Some(image), _) => Sent::Image(image),
        (None, Some(text)) => Sent::Text(words(&text)?),
        (None, None) => {
            let what = "the form has neither, expected a part 'image' or a part 'text'";
            return Err(Fault::bad_input(what));
        }
    };
    Ok(Predict { tasks, sent })
}

/// Whether a form that begins with its boundary can be parsed.
#[cfg(feature = "planted")]
pub(crate) fn can_read(form: &[u8]) -> bool {
    use futures_util::FutureExt;
    let kind = crate::oip::form_kind(form);
    let request = Request::builder().header(header::CONTENT_TYPE, kind).body(());
    let Ok((head, ())) = request.map(Request::into_parts) else { return false };
    // All bytes are available, so parsing never waits.
    read(head, form.to_vec()).now_or_never().is_some_and(|read| read.is_ok())
}

async fn content(part: Field<'_>) -> Result<Bytes, Fault> {
    part.bytes().await.map_err(|error: MultipartError| broken(&error.body_text()))
}

fn tasks(entries: &[u8]) -> Result<Vec<Task>, Fault> {
    let bytes = entries.len();
    if bytes > ENTRIES_BYTES_MAX {
        let what = format!("the part 'entries' has {bytes} bytes");
        return Err(invalid(format!("{what}, expected {ENTRIES_BYTES_MAX} at most")));
    }
    let asked: BTreeMap<String, BTreeMap<String, Entry>> = serde_json::from_slice(entries)
        .map_err(|error| invalid(format!("the part 'entries' is not valid: {error}")))?;
    if asked.is_empty() {
        return Err(invalid("the part 'entries' has no task, expected one".to_owned()));
    }
    asked.into_iter().map(|(task, types)| Task::of(&task, types)).collect()
}

fn words(text: &[u8]) -> Result<String, Fault> {
    let bytes = text.len();
    if bytes > TEXT_BYTES_MAX {
        let what = format!("the text has {bytes} bytes, expected {TEXT_BYTES_MAX} at most");
        return Err(Fault::bad_input(what));
    }
    let text = std::str::from_utf8(text);
    text.map(str::to_owned)
        .map_err(|error| Fault::bad_input(format!("the text is not UTF-8: {error}")))
}

fn broken(why: &str) -> Fault {
    Fault::bad_input(format!("the form is not valid: {why}"))
}
