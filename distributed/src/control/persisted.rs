//! A value that is kept in a document of an authority. Readers never wait for the disk.

use super::authority::{Lead, Reread};
use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value in memory and in a document of the cluster's authority, as JSON that only its owner can
/// read.
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
    kept: Arc<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    document: &'static str,
    remedy: String,
    value: Mutex<T>,
    /// A writer holds it until its change is on the disk. True while the document lacks a change.
    writing: Mutex<bool>,
}

impl<T: Clone + Serialize + DeserializeOwned + Send + 'static> Persisted<T> {
    /// Loads the value of a document; `absent` is the value if there is none. `remedy` says what to
    /// do if the document does not parse. If another coordinator may write the document, the value
    /// is reloaded together with the lead's other documents.
    pub(crate) fn open(
        lead: &Arc<Lead>,
        document: &'static str,
        remedy: &str,
        absent: T,
    ) -> Result<Self> {
        let kept = Kept {
            document,
            remedy: remedy.to_owned(),
            value: Mutex::new(absent),
            writing: Mutex::default(),
        };
        let kept = Arc::new(kept);
        kept.reread(lead)?;
        lead.keep_fresh(Arc::downgrade(&(Arc::clone(&kept) as Arc<dyn Reread>)));
        Ok(Self { lead: Arc::clone(lead), kept })
    }

    /// The present value.
    pub fn read(&self) -> MutexGuard<'_, T> {
        self.kept.value()
    }

    /// Changes value and document, or neither if `change` fails or the document cannot be written.
    /// Waits for the disk.
    ///
    /// # Errors
    /// [`Error::File`] if the document cannot be written, [`Error::Deposed`] if another coordinator
    /// leads.
    pub fn change<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<Result<R, E>> {
        let mut lacks = self.kept.writing();
        let mut next = self.read().clone();
        let changed = change(&mut next);
        if changed.is_ok() {
            self.write(&next)?;
            *self.read() = next;
            *lacks = false;
        }
        Ok(changed)
    }

    /// Changes the value, unless `change` fails, and then the document. The second result says
    /// whether the document was written. If not, the change lasts as long as the process, or until
    /// a later change writes it too. Waits for the disk.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn insist<R, E>(
        &self,
        change: impl FnOnce(&mut T) -> Result<R, E>,
    ) -> Result<(R, Result<()>), E> {
        let mut lacks = self.kept.writing();
        let mut next = self.read().clone();
        let changed = change(&mut next)?;
        *self.read() = next.clone();
        let written = self.write(&next);
        // Another leader does not know the change, so its document wins.
        *lacks = matches!(&written, Err(error) if !is_led_elsewhere(error));
        Ok((changed, written))
    }

    fn write(&self, value: &T) -> Result<()> {
        let document = self.kept.document;
        let text = serde_json::to_vec_pretty(value).map_err(|error| {
            Error::file("write", self.lead.authority().locate(document), error.into())
        })?;
        self.lead.write(document, &text)
    }
}

fn is_led_elsewhere(error: &Error) -> bool {
    matches!(error, Error::Led { .. } | Error::Deposed { .. })
}

impl<T> Kept<T> {
    fn value(&self) -> MutexGuard<'_, T> {
        // The value is only replaced as a whole.
        self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, bool> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: DeserializeOwned + Send> Reread for Kept<T> {
    fn reread(&self, lead: &Lead) -> Result<()> {
        let lacks = self.writing();
        // A change that is not on the disk yet stays.
        if *lacks {
            return Ok(());
        }
        let Some(bytes) = lead.authority().read(self.document)? else { return Ok(()) };
        *self.value() = serde_json::from_slice(&bytes).map_err(|error| Error::Damaged {
            path: lead.authority().locate(self.document),
            reason: error.to_string(),
            remedy: self.remedy.clone(),
        })?;
        Ok(())
    }
}
