//! Reads the stream ahead on a follower. Opening the log then takes as long as the messages since,
//! not as long as the whole stream.

use super::client::{Client, READ_AT_ONCE};
use super::state::State;
use super::{Stream, Trouble};
use crate::control::chain::Link;
use crate::control::remembered::Remembered;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a follower stops reading after a refusal; opening the log reports the reason.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Along {
    stream: Stream,
    remembered: Remembered,
    is_reading: AtomicBool,
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    so_far: Option<(Arc<Client>, State)>,
    written_down: Option<Link>,
    refused_at: Option<Instant>,
}

impl Along {
    pub(super) fn new(stream: Stream, remembered: Remembered) -> Self {
        Self { stream, remembered, is_reading: AtomicBool::new(false), read: Mutex::default() }
    }

    /// Hands over what was read, and ends the present read.
    pub(super) fn take(&self) -> Option<State> {
        let (_, state) = self.lock().so_far.take()?;
        (state.tail > 0).then_some(state)
    }

    /// Continues reading on its own thread, unless it is running.
    pub(super) fn follow(self: Arc<Self>) {
        let is_paused = self.lock().refused_at.is_some_and(|at| at.elapsed() < PAUSE);
        if is_paused || self.is_reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let along = Arc::clone(&self);
        let reading = move || {
            along.read();
            along.is_reading.store(false, Ordering::Release);
        };
        if let Err(error) = thread::Builder::new().name("log follower".to_owned()).spawn(reading) {
            tracing::warn!(%error, "the log is not read along");
            self.is_reading.store(false, Ordering::Release);
        }
    }

    fn read(&self) {
        match self.read_on() {
            Ok(()) => {}
            // The stream does not exist yet, messages were purged, or no server answers: retried
            // later.
            Err(trouble @ (Trouble::Absent | Trouble::Away(_))) => {
                tracing::debug!(why = trouble.text(), "the log is not read along");
            }
            Err(trouble) => {
                tracing::warn!(why = trouble.text(), "the log is not read along");
                let mut read = self.lock();
                read.so_far = None;
                read.refused_at = Some(Instant::now());
            }
        }
    }

    fn read_on(&self) -> Result<(), Trouble> {
        let client = self.client()?;
        let found = client.info()?.state;
        if let Some((_, state)) = &mut self.lock().so_far {
            state.begin(found.first_seq);
        }
        loop {
            let Some(from) = self.lock().so_far.as_ref().map(|(_, state)| state.tail + 1) else {
                return Ok(());
            };
            if from > found.last_seq {
                return self.write_down();
            }
            // The lock is not held while waiting for the servers, so that opening the log can take
            // the state.
            let payloads = client.get(from, found.last_seq.min(from + READ_AT_ONCE - 1))?;
            let mut read = self.lock();
            let Some((_, state)) = &mut read.so_far else { return Ok(()) };
            let mut messages = (from..).zip(payloads);
            if let Err(trouble) = messages.try_for_each(|(seq, payload)| state.take(seq, &payload))
            {
                read.so_far = None;
                return Err(trouble);
            }
        }
    }

    fn client(&self) -> Result<Arc<Client>, Trouble> {
        if let Some((client, _)) = &self.lock().so_far {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Client::connect(&self.stream)?);
        let known = self.remembered.read();
        let known = known.map_err(|error| Trouble::Refused(error.to_string()))?;
        let state = State::new(known, self.stream.kept_bytes);
        self.lock().so_far = Some((Arc::clone(&client), state));
        Ok(client)
    }

    /// Stores the last commit that was read as known to this machine, unless it is older than the
    /// known one.
    fn write_down(&self) -> Result<(), Trouble> {
        let mut read = self.lock();
        let Some((_, state)) = &read.so_far else { return Ok(()) };
        if let Some(what) = state.older() {
            return Err(Trouble::Older(what));
        }
        let last = state.last.clone();
        if last.number > 0 && read.written_down.as_ref() != Some(&last) {
            self.remembered.write(&last);
            read.written_down = Some(last);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        // The chain over the commits detects what a panicked step left.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last message that was read.
    #[cfg(test)]
    pub(super) fn tail(&self) -> u64 {
        self.lock().so_far.as_ref().map_or(0, |(_, state)| state.tail)
    }
}
