//! A thread with its own runtime, for engines with asynchronous clients. The caller blocks on a
//! channel, because a thread of another runtime must not wait on a second runtime.

use std::future::Future;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// How much longer than the limit the caller waits, because the thread may be late.
const LATE: Duration = Duration::from_secs(5);

/// The thread. Dropping this aborts its unfinished work.
#[derive(Debug)]
pub(super) struct Aside {
    handle: Handle,
    /// Dropping this ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Aside {
    /// # Errors
    /// The reason why the thread could not be started.
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

    /// Runs `work` on the thread and waits for it; `None` if it took longer than the limit.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        self.handle.spawn(async move {
            if let Ok(done) = tokio::time::timeout(limit, work).await {
                // The caller may have given up.
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
