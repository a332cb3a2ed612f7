//! Threads in simulated time: only one of them and the runtime's thread runs, while the others wait
//! for their turn.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A thread's request to the runtime: to wait for a time.
type Wait = Option<Duration>;

thread_local! {
    static INSIDE: RefCell<Option<(Sender<Wait>, Receiver<()>)>> = const { RefCell::new(None) };
}

/// The runtime's end of a thread.
pub(super) struct Thread {
    go: Sender<()>,
    asked: Receiver<Wait>,
}

/// Starts a thread, which runs once it is driven. It first calls `enter`, and keeps the result
/// while it works.
pub(super) fn start<T>(
    enter: impl FnOnce() -> T + Send + 'static,
    work: Box<dyn FnOnce() + Send>,
) -> (Thread, JoinHandle<()>) {
    let (go, going) = channel();
    let (ask, asked) = channel();
    let runtime = tokio::runtime::Handle::current();
    let run = move || {
        if going.recv().is_err() {
            return;
        }
        let _entered = enter();
        let _runtime = runtime.enter();
        INSIDE.set(Some((ask.clone(), going)));
        let _ = catch_unwind(AssertUnwindSafe(work));
        INSIDE.set(None);
        let _ = ask.send(None);
    };
    (Thread { go, asked }, std::thread::spawn(run))
}

impl Thread {
    /// Drives the thread until it ends: resumes it each time that its wait is over.
    pub(super) async fn drive(self) {
        while self.go.send(()).is_ok() {
            match self.asked.recv() {
                Ok(Some(wait)) => tokio::time::sleep(wait).await,
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// Waits on one of these threads; false if the run is over.
pub(super) fn pause(wait: Duration) -> bool {
    INSIDE.with_borrow(|inside| {
        let Some((ask, going)) = inside else { return false };
        ask.send(Some(wait)).is_ok() && going.recv().is_ok()
    })
}
