//! The simulated machine that a task belongs to: it has addresses of its own, and may stand still.

use super::scene;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tokio::time::{Sleep, sleep_until};

tokio::task_local! {
    /// The machine whose sockets are bound.
    pub static MACHINE: u8;
}

/// A future that runs, also when it is spawned, as part of the machine that asks.
pub(crate) fn here<F: Future + Send>(future: F) -> impl Future<Output = F::Output> + Send {
    let machine = MACHINE.try_with(|machine| *machine).ok();
    async move {
        match machine {
            Some(machine) => on(machine, future).await,
            None => future.await,
        }
    }
}

/// A future as part of a machine: it does not go on while the machine stands still.
pub fn on<F: Future + Send>(machine: u8, future: F) -> impl Future<Output = F::Output> + Send {
    MACHINE.scope(machine, stop_and_go(machine, future))
}

async fn stop_and_go<F: Future>(machine: u8, future: F) -> F::Output {
    let mut future = pin!(future);
    let mut stop: Option<Pin<Box<Sleep>>> = None;
    poll_fn(move |cx| {
        loop {
            if let Some(sleep) = &mut stop {
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                stop = None;
            }
            match scene::current().and_then(|scene| scene.stands_still(machine)) {
                Some(until) => stop = Some(Box::pin(sleep_until(until))),
                None => return future.as_mut().poll(cx),
            }
        }
    })
    .await
}
