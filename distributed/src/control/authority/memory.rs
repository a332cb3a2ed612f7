//! An authority that lives only in this process.

use super::{Authority, Members, Present};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One coordinator's view of an authority in memory.
#[derive(Debug, Default)]
pub(crate) struct InMemory {
    shared: Arc<Mutex<State>>,
    /// The epoch of the lead that this view took last.
    own: Mutex<Option<u64>>,
    /// The number under which this view is registered as a member.
    number: Mutex<Option<u64>>,
}

#[derive(Debug, Default)]
struct State {
    /// The latest number that was issued, for a lead or a member.
    latest: u64,
    /// The epoch of the latest lead, and whether it still holds.
    epoch: u64,
    led: bool,
    /// The member number of the leader.
    leader: Option<u64>,
    /// What each member published.
    present: BTreeMap<u64, Vec<u8>>,
    documents: HashMap<String, Vec<u8>>,
    /// The epoch of a lead that has ended without its holder noticing.
    stood_still: Option<u64>,
    /// Whether all requests for the lead are refused.
    #[cfg(test)]
    closed: bool,
}

impl State {
    fn next(&mut self, now_ms: u64) -> u64 {
        self.latest = now_ms.max(self.latest + 1);
        self.latest
    }

    fn is_led_by(&self, epoch: Option<u64>) -> bool {
        self.led && epoch == Some(self.epoch)
    }
}

impl InMemory {
    /// Another coordinator's view of the same authority.
    #[cfg(test)]
    pub(crate) fn view(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared, own: Mutex::default(), number: Mutex::default() }
    }

    /// Ends the lead without telling the leader.
    #[cfg(test)]
    pub(crate) fn depose(&self) {
        self.state().led = false;
    }

    /// Ends the lead as if the leader's machine had been suspended: the leader does not notice yet.
    #[cfg(test)]
    pub(crate) fn stand_still(&self) {
        let mut state = self.state();
        (state.led, state.stood_still) = (false, Some(state.epoch));
    }

    /// While closed, nobody can take the lead.
    #[cfg(test)]
    pub(crate) fn close(&self, closed: bool) {
        let mut state = self.state();
        (state.led, state.closed) = (state.led && !closed, closed);
    }

    /// The suspended leader notices that its lead is over.
    #[cfg(test)]
    pub(crate) fn notice(&self) {
        self.state().stood_still = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every step leaves the state consistent.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Option<u64>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Authority for InMemory {
    fn lead(&self, now_ms: u64) -> Result<u64> {
        let (number, mut own, mut state) = (*self.number(), self.own(), self.state());
        #[cfg(test)]
        if state.closed {
            return Err(Error::Led { path: self.locate("") });
        }
        if state.led && !state.is_led_by(*own) {
            return Err(Error::Led { path: self.locate("") });
        }
        (state.epoch, state.led, state.leader) = (state.next(now_ms), true, number);
        *own = Some(state.epoch);
        Ok(state.epoch)
    }

    fn resign(&self, epoch: u64) {
        let (own, mut state) = (self.own(), self.state());
        if *own == Some(epoch) && state.is_led_by(*own) {
            state.led = false;
        }
    }

    fn holds(&self, epoch: u64) -> bool {
        self.holds_now(epoch) || self.state().stood_still == Some(epoch)
    }

    fn holds_now(&self, epoch: u64) -> bool {
        let own = self.own();
        *own == Some(epoch) && self.state().is_led_by(*own)
    }

    fn members(&self) -> Option<&dyn Members> {
        Some(self)
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

    fn documents(&self) -> Result<Vec<String>> {
        let mut names: Vec<String> = self.state().documents.keys().cloned().collect();
        names.sort();
        Ok(names)
    }

    fn locate(&self, document: &str) -> PathBuf {
        Path::new("memory").join(document)
    }
}

impl Members for InMemory {
    fn enter(&self, now_ms: u64, about: &[u8]) -> Result<u64> {
        let (mut number, mut state) = (self.number(), self.state());
        let entered = state.next(now_ms);
        if let Some(before) = number.replace(entered) {
            state.present.remove(&before);
        }
        state.present.insert(entered, about.to_vec());
        Ok(entered)
    }

    fn present(&self) -> Result<Vec<Present>> {
        let state = self.state();
        let leads = |number| state.led && state.leader == Some(number);
        let one = |(&number, about): (&u64, &Vec<u8>)| Present {
            number,
            leads: leads(number),
            about: about.clone(),
        };
        let mut present: Vec<Present> = state.present.iter().map(one).collect();
        present.sort_by_key(|one| (!one.leads, one.number));
        Ok(present)
    }

    fn engine(&self) -> String {
        "memory of one process".to_owned()
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        if let Some(number) = self.number().take() {
            self.state().present.remove(&number);
        }
        let own = *self.own();
        own.into_iter().for_each(|epoch| self.resign(epoch));
    }
}
