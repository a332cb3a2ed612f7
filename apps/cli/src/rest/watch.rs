//! Whether a coordinator lives while a request waits for it: one that is stopped, or cut off, neither answers
//! nor takes anything, and never says so.

use crate::failure::{Failure, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;
use ureq::Agent;

/// The code of a coordinator that is there, and silent.
pub(crate) const NOT_ANSWERING: &str = "not_answering";

/// So often it is asked within the patience with it.
const LOOKS: u32 = 12;

/// Asks a coordinator on a connection of its own, again and again while a request is under way, and ends the
/// request once it does not answer there either. Whatever takes long, of a coordinator that lives, may.
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
        let limit = self.patience.saturating_sub(every);
        let url = format!("{}/healthz", self.base);
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let request = self.probe.get(&url).config().timeout_global(Some(limit)).build();
            // Any answer is one, and a refused connection is told by the request's own.
            let timed_out = matches!(request.call(), Err(ureq::Error::Timeout(_)));
            if timed_out && ended.try_recv() == Err(TryRecvError::Empty) {
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
