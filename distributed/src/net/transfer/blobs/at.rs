//! Where large tensors of durable tasks lie if coordinators on several machines share them.

use crate::control::files;
use crate::error::{Error, Result};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where large inputs and outputs of durable tasks lie, if not beside the journal of one machine: a
/// folder that all coordinators mount, or a bucket of S3 or a store like it. It belongs to one log.
#[derive(Clone, PartialEq, Eq)]
pub struct BlobsAt {
    url: String,
    kind: Kind,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    Folder(PathBuf),
    #[cfg(feature = "scale")]
    S3(Box<super::s3::Bucket>),
}

impl BlobsAt {
    /// The options of [`BlobsAt::new`], by the names that other programs read from the environment.
    /// All are about S3.
    pub const OPTIONS: &[&str] = &[
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL",
        "AWS_CA_BUNDLE",
        "AWS_ALLOW_HTTP",
    ];

    /// The place at `file:///FOLDER`, whose path is taken as it is, or `s3://BUCKET/PREFIX`, with
    /// options. A missing folder is made for its owner alone; its parent must be there. An endpoint
    /// with `http://` has to be on this machine, unless `AWS_ALLOW_HTTP` is `true`: anybody on the
    /// network could read along.
    ///
    /// # Errors
    /// [`Error::Blobs`] for a place that is not valid, and for `s3://` where this program was built
    /// without the feature `scale`.
    pub fn new<'a>(
        url: &str,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self> {
        let refused = |reason: String| Error::Blobs { place: url.to_owned(), reason };
        let mut known = Vec::new();
        for (key, value) in options {
            let key = key.to_ascii_uppercase();
            if !Self::OPTIONS.contains(&key.as_str()) {
                let reason = format!("{key} is no option, expected {}", Self::OPTIONS.join(", "));
                return Err(refused(reason));
            }
            known.push((key, value.to_owned()));
        }
        let kind = kind(url, known).map_err(refused)?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), kind })
    }

    /// The URL as it was given, without the options.
    pub(super) fn label(&self) -> &str {
        &self.url
    }

    /// The folder, where it is one.
    pub(super) fn folder(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Folder(folder) => Some(folder),
            #[cfg(feature = "scale")]
            Kind::S3(_) => None,
        }
    }

    /// The client of the place. It sends no request yet, but makes a missing folder.
    pub(super) fn connect(&self) -> Result<Arc<dyn ObjectStore>, String> {
        match &self.kind {
            Kind::Folder(folder) => open_folder(folder),
            #[cfg(feature = "scale")]
            Kind::S3(bucket) => super::s3::connect(bucket),
        }
    }

    /// Gives requests less time.
    #[cfg(all(test, feature = "scale"))]
    pub(super) fn with_patience(mut self, patience: std::time::Duration) -> Self {
        if let Kind::S3(bucket) = &mut self.kind {
            bucket.patience = patience;
        }
        self
    }
}

impl fmt::Debug for BlobsAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The options contain secrets.
        f.debug_struct("BlobsAt").field("url", &self.url).finish_non_exhaustive()
    }
}

fn kind(url: &str, options: Vec<(String, String)>) -> Result<Kind, String> {
    if let Some(path) = url.strip_prefix("file://") {
        let path = Path::new(path);
        return match path.is_absolute() && path.parent().is_some() {
            true => Ok(Kind::Folder(path.to_owned())),
            false => {
                Err("expected the whole path of a folder, as in file:///mnt/share/NAME".into())
            }
        };
    }
    let Some(rest) = url.strip_prefix("s3://") else {
        return Err("expected file:///FOLDER or s3://BUCKET/PREFIX".into());
    };
    s3(rest, options)
}

#[cfg(feature = "scale")]
fn s3(rest: &str, options: Vec<(String, String)>) -> Result<Kind, String> {
    super::s3::Bucket::new(rest, options).map(|bucket| Kind::S3(Box::new(bucket)))
}

#[cfg(not(feature = "scale"))]
fn s3(_: &str, _: Vec<(String, String)>) -> Result<Kind, String> {
    Err("this program was built without the feature scale, which has s3://".into())
}

fn open_folder(folder: &Path) -> Result<Arc<dyn ObjectStore>, String> {
    match files::make_private_folder(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(format!("the folder cannot be made: {error}; is its disk mounted?"));
        }
        _ => {}
    }
    let store = LocalFileSystem::new_with_prefix(folder).map_err(|e| super::reason(&e))?;
    Ok(Arc::new(store.with_fsync(true)))
}
