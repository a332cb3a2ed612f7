//! What a store's errors mean to the cluster's operator: what was wrong, and what to do.

use super::{BlobStore, Place};
use std::error::Error;

impl BlobStore {
    /// The name by which people know the place.
    pub(super) fn label(&self) -> String {
        match &self.place {
            Place::Folder(folder) => folder.display().to_string(),
            Place::Shared { label, .. } => label.clone(),
        }
    }

    /// What was wrong.
    pub(super) fn explain(&self, error: &object_store::Error) -> String {
        match &self.place {
            Place::Folder(_) => reason(error),
            Place::Shared { label, .. } => format!("{label}: {}", explain(error)),
        }
    }
}

/// The innermost reason of an error, which is what the system said.
pub(super) fn reason(error: &object_store::Error) -> String {
    let mut last: &dyn Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// S3's codes for what is wrong, and what to do about each.
const CODES: &[(&str, &str)] = &[
    ("NoSuchBucket", "there is no such bucket: make it, or correct the address"),
    ("InvalidAccessKeyId", "the access key is not known there: correct AWS_ACCESS_KEY_ID"),
    ("SignatureDoesNotMatch", "the secret is not that of the key: correct AWS_SECRET_ACCESS_KEY"),
    ("ExpiredToken", "the session is over: set a new AWS_SESSION_TOKEN with its key"),
    ("InvalidToken", "the session is not known there: correct AWS_SESSION_TOKEN"),
    ("AccessDenied", DENIED),
    ("AllAccessDisabled", DENIED),
    ("PermanentRedirect", REGION),
    ("AuthorizationHeaderMalformed", REGION),
    ("IllegalLocationConstraintException", REGION),
    ("RequestTimeTooSkewed", "the clocks differ: set that of this machine"),
    ("QuotaExceeded", FULL),
    ("InsufficientStorage", FULL),
    ("StorageFull", FULL),
    ("507 ", FULL),
    ("SlowDown", "it has too much to do: try again later"),
    ("403 Forbidden", DENIED),
    ("401 Unauthorized", DENIED),
];

const DENIED: &str = "the key is not allowed to: grant it s3:ListBucket, s3:GetObject, s3:PutObject, \
                      s3:DeleteObject and s3:AbortMultipartUpload";
const REGION: &str = "the bucket is in another region: correct AWS_REGION";
const FULL: &str = "it is full, or its quota is used up: make room there";

/// What was wrong with a request to a shared store, and what to do.
pub(super) fn explain(error: &object_store::Error) -> String {
    let said = reason(error);
    if let Some(advice) = transport(error) {
        return format!("{advice} ({said})");
    }
    let advice = CODES.iter().find(|(code, _)| said.contains(code)).map(|(_, advice)| advice);
    let what = element(&said, "Message").or_else(|| element(&said, "Code")).unwrap_or(&said);
    // The answer may be of any server, and long.
    let what: String = what.chars().take(300).collect();
    match advice {
        Some(advice) => format!("{advice} ({what})"),
        None => what,
    }
}

#[cfg(feature = "scale")]
fn transport(error: &object_store::Error) -> Option<&'static str> {
    use object_store::client::{HttpError, HttpErrorKind};
    let mut next: Option<&dyn Error> = Some(error);
    while let Some(error) = next {
        if let Some(http) = error.downcast_ref::<HttpError>() {
            return Some(match http.kind() {
                HttpErrorKind::Timeout => {
                    "it did not answer in time: is it reachable, and does it have little to do?"
                }
                HttpErrorKind::Connect => {
                    "no connection could be made: correct AWS_ENDPOINT_URL, or start what listens there"
                }
                _ => "the connection broke",
            });
        }
        next = error.source();
    }
    None
}

#[cfg(not(feature = "scale"))]
fn transport(_: &object_store::Error) -> Option<&'static str> {
    None
}

/// The text of an element of an answer.
fn element<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = said.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}
