//! A value and the document of an authority that it is kept in. Whoever reads never waits for the
//! disk.

use super::authority::Lead;
use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value, in memory and with the authority of a cluster, as JSON that its owner alone can read.
///
/// ```
/// use lgp_distributed::{Persisted, Pki};
///
/// let pki = Pki::generate()?;
/// let names: Persisted<Vec<String>> = pki.persisted("names.json", "delete it", Vec::new())?;
/// names.change(|names| Ok::<_, std::convert::Infallible>(names.push("a".to_owned())))?.unwrap();
/// assert_eq!(*names.read(), ["a"]);
/// # Ok::<(), lgp_distributed::Error>(())
/// ```
#[derive(Debug)]
pub struct Persisted<T> {
    lead: Arc<Lead>,
    document: &'static str,
    value: Mutex<T>,
    /// Held by the one who changes it, until the disk has the change.
    writing: Mutex<()>,
}

impl<T: Clone + Serialize + DeserializeOwned> Persisted<T> {
    /// The value of a document, or `absent` where there is none. `remedy` says what to do about one
    /// that does not parse.
    pub(crate) fn open(
        lead: &Arc<Lead>,
        document: &'static str,
        remedy: &str,
        absent: T,
    ) -> Result<Self> {
        let value = match lead.authority().read(document)? {
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
                path: lead.authority().locate(document),
                reason: error.to_string(),
                remedy: remedy.to_owned(),
            })?,
            None => absent,
        };
        let (lead, value) = (Arc::clone(lead), Mutex::new(value));
        Ok(Self { lead, document, value, writing: Mutex::default() })
    }

    /// The value as it is now.
    pub fn read(&self) -> MutexGuard<'_, T> {
        // It is replaced as a whole.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes value and document, or neither: where `change` fails, and where the document cannot be
    /// written. Waits for the disk.
    ///
    /// # Errors
    /// [`Error::File`] where it cannot be written, [`Error::Deposed`] where another leads.
    pub fn change<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>> {
        let _writing = self.writing();
        let mut next = self.read().clone();
        let changed = change(&mut next);
        if changed.is_ok() {
            self.write(&next)?;
            *self.read() = next;
        }
        Ok(changed)
    }

    /// Changes the value, unless `change` fails, and then the document. The second answer says whether
    /// that could be written; where it could not, the change holds as long as the process, or until
    /// another change takes it along. Waits for the disk.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn insist<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<(R, Result<()>), E> {
        let _writing = self.writing();
        let mut next = self.read().clone();
        let changed = change(&mut next)?;
        *self.read() = next.clone();
        Ok((changed, self.write(&next)))
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, value: &T) -> Result<()> {
        let text = serde_json::to_vec_pretty(value).map_err(|error| {
            Error::file("write", self.lead.authority().locate(self.document), error.into())
        })?;
        self.lead.write(self.document, &text)
    }
}
