//! Checks that a coordinator is alive while a request waits for it: a stopped or unreachable coordinator leaves its
//! connections open and silent.

use crate::failure::{Failure, Result};
use crate::output::{Output, is_json_wanted};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};
use ureq::Agent;

/// The code for a coordinator that exists but does not answer.
pub(crate) const NOT_ANSWERING: &str = "not_answering";

/// The number of probes within the patience.
const LOOKS: u32 = 12;
/// The number of probes in a row that must be lost before the coordinator counts as silent. A single probe may be lost
/// with its connection, or while this process was stopped.
const LOST: u32 = 2;
/// How long a coordinator may be silent before the user is told.
const TOLD_AFTER: Duration = Duration::from_secs(3);

/// Probes a coordinator on a separate connection while a request is under way, and ends the request once the
/// coordinator has been silent for the patience. A request may take any time while the coordinator lives.
#[derive(Clone)]
pub(super) struct Watch {
    /// The agent whose requests are ended. It makes none afterwards.
    pub(super) agent: Agent,
    /// The agent of the probes.
    pub(super) probe: Agent,
    pub(super) base: Arc<str>,
    /// How long the coordinator may be silent.
    pub(super) patience: Duration,
    /// How long it may be silent before the user is told.
    told_after: Duration,
    /// Whether the user was told, once for all requests of a command.
    is_told: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
}

impl Watch {
    pub(super) fn new(agent: Agent, probe: Agent, base: &str, patience: Duration) -> Self {
        Self {
            agent,
            probe,
            base: base.into(),
            patience,
            told_after: TOLD_AFTER,
            is_told: Arc::default(),
            is_silent: Arc::default(),
        }
    }

    /// Makes a request, and ends it if the coordinator falls silent.
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
        // The error of an ended request is about its connection, not about the silence.
        answer.map_err(|failure| match self.is_silent.load(Ordering::SeqCst) {
            true => self.silence(),
            false => failure,
        })
    }

    /// Probes the coordinator until the request has `ended`.
    fn look(self, ended: &Receiver<()>) {
        let every = self.patience / LOOKS;
        let url = format!("{}/healthz", self.base);
        let (mut heard, mut lost) = (Instant::now(), 0);
        if self.told_after < every {
            self.tell_if_silent(ended, &url);
        }
        while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            // Half of the patience leaves time for a second probe on another connection.
            let left = self.patience.saturating_sub(heard.elapsed());
            let limit = left.min(self.patience / LOST).max(every);
            let request = self.probe.get(&url).config().timeout_global(Some(limit)).build();
            match request.call() {
                // Any answer counts. Reading it frees the connection for the next probe.
                Ok(mut answer) => {
                    (heard, lost) = (Instant::now(), 0);
                    let _ = answer.body_mut().read_to_vec();
                }
                // A machine that is off does not refuse, but routers may report it as unreachable.
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

    /// Tells the user that the coordinator is silent, unless the request ends or a probe is answered first: a task may
    /// take its time.
    fn tell_if_silent(&self, ended: &Receiver<()>, url: &str) {
        let half = self.told_after / 2;
        if ended.recv_timeout(half) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let began = Instant::now();
        let request = self.probe.get(url).config().timeout_global(Some(half)).build();
        if let Ok(mut answer) = request.call() {
            let _ = answer.body_mut().read_to_vec();
            return;
        }
        // A probe of an unreachable coordinator fails at once, and then so does the request.
        let left = half.saturating_sub(began.elapsed());
        let goes_on = ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout);
        if goes_on && !self.is_told.swap(true, Ordering::SeqCst) {
            let (base, most) = (&self.base, self.patience.as_secs());
            let text = format!("the coordinator at {base} does not answer; waiting up to {most} s");
            Output::new(is_json_wanted()).note(text);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A watch over a coordinator at `listener`, which tells of silence after a second.
    fn watch(listener: &TcpListener) -> Watch {
        let base = format!("http://{}", listener.local_addr().expect("bound"));
        let agent = || Agent::config_builder().http_status_as_error(false).build().new_agent();
        let watch = Watch::new(agent(), agent(), &base, Duration::from_secs(60));
        Watch { told_after: Duration::from_secs(1), ..watch }
    }

    /// Whether the user is told during a request of two seconds.
    fn is_told(watch: &Watch) -> bool {
        let request = || {
            thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        watch.over(request).expect("the patience lasts longer");
        watch.is_told.load(Ordering::SeqCst)
    }

    #[test]
    fn a_person_is_told_of_silence_and_not_of_a_task_that_takes_long() {
        // The system accepts connections on the listener's behalf, as for a stopped process.
        let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
        assert!(is_told(&watch(&silent)));
        let lives = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let watch = watch(&lives);
        let server = thread::spawn(move || {
            let (mut stream, _) = lives.accept().expect("a look");
            let read = stream.read(&mut [0; 4096]).expect("its head");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer).map(|()| read).expect("sent")
        });
        assert!(!is_told(&watch));
        assert!(server.join().expect("it served") > 0);
    }
}
