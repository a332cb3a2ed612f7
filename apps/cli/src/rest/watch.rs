//! Whether a coordinator lives while a request waits for it: one that is stopped, or cut off, neither answers
//! nor takes anything, and never says so.

use crate::failure::{Failure, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};
use ureq::Agent;

/// The code of a coordinator that is there, and silent.
pub(crate) const NOT_ANSWERING: &str = "not_answering";

/// So often it is asked within the patience with it.
const LOOKS: u32 = 12;
/// So many questions in a row are lost before it counts as silent. A single one may be lost with its
/// connection, or while this process itself was stopped.
const LOST: u32 = 2;

/// Asks a coordinator on a connection of its own, again and again while a request is under way, and ends the
/// request once nothing was heard there for as long as the patience lasts. Whatever takes long, of a
/// coordinator that lives, may.
#[derive(Clone)]
pub(super) struct Watch {
    /// Whose requests are ended. It makes none afterwards.
    pub(super) agent: Agent,
    /// With which the coordinator is asked.
    pub(super) probe: Agent,
    pub(super) base: Arc<str>,
    /// How long nothing may be heard of it.
    pub(super) patience: Duration,
    is_silent: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(agent: Agent, probe: Agent, base: &str, patience: Duration) -> Self {
        Self { agent, probe, base: base.into(), patience, is_silent: Arc::default() }
    }

    /// What a request comes to, unless the coordinator falls silent meanwhile.
    ///
    /// # Errors
    /// Those of the request; `not_answering` where the coordinator is silent.
    pub(super) fn over<T>(&self, request: impl FnOnce() -> Result<T>) -> Result<T> {
        let (under_way, ended) = mpsc::channel();
        let watch = self.clone();
        let thread = thread::Builder::new().name("watch".to_owned());
        thread.spawn(move || watch.look(&ended)).map_err(Failure::internal)?;
        let answer = request();
        drop(under_way);
        // A request that was ended says something about its connection, which is not the reason.
        answer.map_err(|failure| match self.is_silent.load(Ordering::SeqCst) {
            true => self.silence(),
            false => failure,
        })
    }

    /// Looks after the coordinator until the request has `ended`.
    fn look(self, ended: &Receiver<()>) {
        let every = self.patience / LOOKS;
        let url = format!("{}/healthz", self.base);
        let (mut heard, mut lost) = (Instant::now(), 0);
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            // Half of it leaves time for a question on another connection.
            let left = self.patience.saturating_sub(heard.elapsed());
            let limit = left.min(self.patience / LOST).max(every);
            let request = self.probe.get(&url).config().timeout_global(Some(limit)).build();
            match request.call() {
                // Any answer is one. Its connection serves the next question once it was read.
                Ok(mut answer) => {
                    (heard, lost) = (Instant::now(), 0);
                    let _ = answer.body_mut().read_to_vec();
                }
                // A machine that is off refuses nothing, but others may say that it cannot be reached.
                Err(_) => lost += 1,
            }
            let is_silent = lost >= LOST && heard.elapsed() >= self.patience;
            if is_silent && ended.try_recv() == Err(TryRecvError::Empty) {
                self.is_silent.store(true, Ordering::SeqCst);
                self.agent.shutdown();
                return;
            }
        }
    }

    /// The failure that the coordinator is silent.
    pub(super) fn silence(&self) -> Failure {
        let (base, patience) = (&self.base, self.patience.as_secs());
        let message = format!("the coordinator at {base} has not answered for {patience} s");
        Failure::new(NOT_ANSWERING, message).hint(
            "look at its process, which may be stopped or overloaded, and at coordinator.log in its data \
             folder; once it was killed, radeon-cluster start follows it",
        )
    }
}
