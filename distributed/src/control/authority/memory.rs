//! An authority that ends with the process.

use super::Authority;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One coordinator's view of an authority in memory.
#[derive(Debug, Default)]
pub(crate) struct InMemory {
    shared: Arc<Mutex<State>>,
    /// The epoch of the lead that was taken here last.
    own: Mutex<Option<u64>>,
}

#[derive(Debug, Default)]
struct State {
    /// The epoch of the latest lead, and whether it still holds.
    epoch: u64,
    led: bool,
    documents: HashMap<String, Vec<u8>>,
}

impl State {
    fn is_led_by(&self, epoch: Option<u64>) -> bool {
        self.led && epoch == Some(self.epoch)
    }
}

impl InMemory {
    /// Another coordinator's view of the same authority.
    #[cfg(test)]
    pub(super) fn view(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), own: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every step leaves it consistent.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Option<u64>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Authority for InMemory {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let (mut own, mut state) = (self.own(), self.state());
        if state.led && !state.is_led_by(*own) {
            return Err(Error::Led { path: self.locate("") });
        }
        (state.epoch, state.led) = (now_ms.max(state.epoch + 1), true);
        *own = Some(state.epoch);
        Ok(state.epoch)
    }

    fn resign(&self, epoch: u64) {
        let (own, mut state) = (self.own(), self.state());
        if *own == Some(epoch) && state.is_led_by(*own) {
            state.led = false;
        }
    }

    fn read(&self, document: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.state().documents.get(document).cloned())
    }

    fn write(&self, epoch: u64, document: &str, bytes: &[u8]) -> Result<()> {
        let (own, mut state) = (self.own(), self.state());
        if *own != Some(epoch) || !state.is_led_by(*own) {
            return Err(Error::Deposed { path: self.locate(document), epoch });
        }
        state.documents.insert(document.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn locate(&self, document: &str) -> PathBuf {
        Path::new("memory").join(document)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        let own = *self.own();
        own.into_iter().for_each(|epoch| self.resign(epoch));
    }
}
