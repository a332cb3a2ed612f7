//! A thread with a runtime of its own, for engines whose clients are asynchronous: whoever asks waits
//! in the plain way, and may be a thread of another runtime, which must not wait on a second one.

use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How much longer than a limit an answer is waited for, where the thread comes late.
const LATE: Duration = Duration::from_secs(5);

/// The thread. What it still does when this is dropped is given up.
#[derive(Debug)]
pub(super) struct Aside {
    handle: Handle,
    /// It ends with this.
    _stop: oneshot::Sender<()>,
}

impl Aside {
    /// # Errors
    /// Why there can be none.
    pub(super) fn start(name: &str) -> Result<Self, String> {
        let built = Builder::new_current_thread().enable_all().build();
        let runtime = built.map_err(|error| format!("no runtime for its connection: {error}"))?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name(name.into())
            .spawn(move || drop(runtime.block_on(stopped)))
            .map_err(|error| format!("no thread for its connection: {error}"))?;
        Ok(Self { handle, _stop: stop })
    }

    /// Does something there, and waits for it; `None` if that took longer than the limit.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        self.handle.spawn(async move {
            if let Ok(done) = tokio::time::timeout(limit, work).await {
                // Whoever asked may have gone.
                let _ = answer.send(done);
            }
        });
        answered.recv_timeout(limit + LATE).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn another_runtime_waits_for_it_in_the_plain_way() {
        let aside = Aside::start("aside").expect("a thread");
        assert_eq!(aside.ask(LATE, async { 7 }), Some(7));
        let never = std::future::pending::<()>();
        assert_eq!(aside.ask(Duration::from_millis(20), never), None);
        assert_eq!(
            aside.ask(LATE, async { tokio::time::sleep(Duration::from_millis(5)).await }),
            Some(())
        );
    }
}
