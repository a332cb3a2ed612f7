//! A value and the private file that it is kept in: they change together, or not at all.

use crate::error::{Error, Result};
use crate::net::files;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BYTES_MAX: u64 = 4 << 20;

/// A value, in memory and on the disk.
#[derive(Debug)]
pub(super) struct Kept<T> {
    /// `None` keeps it in memory only.
    path: Option<PathBuf>,
    value: Mutex<T>,
}

impl<T: Default> Default for Kept<T> {
    fn default() -> Self {
        Self { path: None, value: Mutex::default() }
    }
}

impl<T: Clone + Default + Serialize + DeserializeOwned> Kept<T> {
    /// The value in a file, or its default where there is none. `remedy` says what to do about one
    /// that does not parse.
    pub(super) fn open(path: &Path, remedy: &str) -> Result<Self> {
        let value = match files::read_bounded(path, BYTES_MAX) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
                path: path.to_owned(),
                reason: error.to_string(),
                remedy: remedy.to_owned(),
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => T::default(),
            Err(error) => return Err(Error::file("read", path, error)),
        };
        Ok(Self { path: Some(path.to_owned()), value: Mutex::new(value) })
    }

    /// The value as it is now.
    pub(super) fn read(&self) -> MutexGuard<'_, T> {
        // It is replaced as a whole.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes value and file, or neither: where `change` fails, and where the file cannot be
    /// written.
    pub(super) fn change<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>> {
        let mut value = self.read();
        let mut next = value.clone();
        let changed = change(&mut next);
        if changed.is_ok() {
            if let Some(path) = &self.path {
                let text = serde_json::to_vec_pretty(&next)
                    .map_err(|error| Error::file("write", path, error.into()))?;
                files::write_private(path, &text)
                    .map_err(|error| Error::file("write", path, error))?;
            }
            *value = next;
        }
        Ok(changed)
    }
}
