//! Failures below a journal, before their meaning for the journal is known.

use super::store::{self, Store};
use crate::error::JournalError;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// A failure beneath a journal.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// An error of redb, or of the file through redb.
    Database(redb::Error),
    /// An error of the file.
    Io(io::Error),
    /// Impossible contents.
    Damaged(String),
    /// A format that this program does not know.
    TooNew { found: u32, supported: u32 },
    /// A format that cannot be upgraded.
    Upgrade { from: u32, what: String },
    /// redb panicked.
    Panic(String),
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for Trouble {
            fn from(error: redb::$error) -> Self {
                Self::Database(error.into())
            }
        }
    )*};
}

from_redb!(
    CommitError,
    CompactionError,
    DatabaseError,
    Error,
    StorageError,
    TableError,
    TransactionError
);

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs `action`, and turns a panic into an error: redb promises few panics on damaged files rather
/// than none, and a build with debug assertions has more.
pub(super) fn contained<T>(action: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
    catch_unwind(AssertUnwindSafe(action))
        .unwrap_or_else(|panic| Err(Trouble::Panic(text(&*panic))))
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

impl Trouble {
    /// The meaning of an error while opening the journal at `path`.
    pub(super) fn on_open(self, path: &Path, store: Option<&Store>) -> JournalError {
        let path = path.to_path_buf();
        match self {
            Self::TooNew { found, supported } => JournalError::TooNew { path, found, supported },
            Self::Upgrade { from, what } => JournalError::Upgrade { path, from, what },
            Self::Damaged(what) | Self::Panic(what) => JournalError::Damaged { path, what },
            Self::Io(error) => io_error(&path, Arc::new(error)),
            Self::Database(redb::Error::DatabaseClosed) => JournalError::Closed { path },
            Self::Database(redb::Error::Io(_) | redb::Error::PreviousIo)
                if let Some(failure) = store.and_then(Store::failure) =>
            {
                io_error(&path, failure.source)
            }
            Self::Database(error) => JournalError::Damaged { path, what: error.to_string() },
        }
    }
}

/// The meaning of an I/O error while the file is read and opened.
pub(super) fn io_error(path: &Path, source: Arc<io::Error>) -> JournalError {
    let path = path.to_path_buf();
    match source.kind() {
        // The file is shorter than its header says.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
            JournalError::Damaged { path, what: source.to_string() }
        }
        _ if store::is_full(&source) => JournalError::Full { path, source },
        _ => JournalError::Io { path, source },
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Database(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Damaged(what) | Self::Upgrade { what, .. } | Self::Panic(what) => {
                f.write_str(what)
            }
            Self::TooNew { found, .. } => write!(f, "format {found}"),
        }
    }
}
