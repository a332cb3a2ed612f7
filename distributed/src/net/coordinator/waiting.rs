//! Callers' waits for the end of a task, or for the journal's result on it. A caller that stops
//! waiting leaves nothing behind with the coordinator.

use crate::error::{Error, Result};
use crate::net::coordinator::core_handle::CoreHandle;
use crate::net::coordinator::stored;
use crate::net::outside::planted_here;
use crate::task::{TaskId, TaskRecord};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A task's final record, there already or to come.
pub(crate) enum Waiting {
    Done(Box<TaskRecord>),
    /// The journal has the record.
    Stored(TaskId),
    Promise(Promise<TaskRecord>),
}

impl Waiting {
    pub(crate) async fn record(self, shared: &CoreHandle) -> Result<TaskRecord> {
        match self {
            Self::Done(record) => Ok(*record),
            Self::Stored(id) => stored::record(shared, id).await,
            Self::Promise(promise) => promise.answer().await,
        }
    }
}

/// An answer about a task that is still to come.
pub(crate) struct Promise<T> {
    shared: Arc<CoreHandle>,
    seq: u64,
    receiver: oneshot::Receiver<Result<T>>,
    answered: bool,
}

impl<T> Promise<T> {
    pub(crate) fn new(
        shared: &Arc<CoreHandle>,
        seq: u64,
        receiver: oneshot::Receiver<Result<T>>,
    ) -> Self {
        Self { shared: Arc::clone(shared), seq, receiver, answered: false }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// The error in the answer; [`Error::Stopped`].
    pub(crate) async fn answer(mut self) -> Result<T> {
        let answer = (&mut self.receiver).await;
        self.answered = true;
        answer.map_err(|_| Error::Stopped)?
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if !self.answered {
            self.receiver.close();
            if planted_here!(KeepWaiters) {
                return;
            }
            self.shared.forget_gone(self.seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::net::tests::coordinator;
    use crate::{ModelRef, TaskSpec, TaskState};
    use std::time::Duration;

    #[tokio::test]
    async fn who_goes_away_leaves_nothing_behind() {
        let (coordinator, _pki) = coordinator().await;
        let model = ModelRef { name: "m".into(), version: 1, sha256: String::new() };
        // Without a worker it waits for ever.
        let task = coordinator.submit(TaskSpec::new(model, Vec::new())).expect("room");
        let shared = &coordinator.shared;
        let mut waiting: Vec<_> = (0..3).map(|_| shared.wait(task).expect("known")).collect();
        assert_eq!(shared.waiters(), 3);
        waiting.pop();
        assert_eq!(shared.waiters(), 2, "the others still wait");
        let soon = tokio::time::timeout(Duration::from_millis(5), coordinator.wait(task)).await;
        assert!(soon.is_err());
        assert_eq!(shared.waiters(), 2);
        coordinator.cancel(task).await.expect("known");
        assert_eq!(shared.waiters(), 0);
        for waiting in waiting {
            let record = waiting.record(shared).await.expect("it was told before");
            assert_eq!(record.state, TaskState::Cancelled);
        }
        coordinator.stop().await;
    }
}
