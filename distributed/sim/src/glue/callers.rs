//! Callers: each has a client's connection, submits tasks, waits for them, and leaves.

use super::cluster::{Cluster, caller_identity, caller_node};
use super::ledger::Way;
use super::net::NODE;
use lgp_distributed::{Client, Error, Result, TaskId};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The longest wait for the answer to a submission, or for the end of its connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(40);

/// A caller's connection, which is made again after it was lost.
struct Link {
    cluster: Arc<Cluster>,
    at: usize,
    client: Mutex<Option<Client>>,
}

impl Link {
    async fn client(&self) -> Client {
        loop {
            let mut slot = self.client.lock().await;
            if let Some(client) = &*slot {
                return client.clone();
            }
            let connected = match caller_identity(self.at) {
                Ok(identity) => Client::connect(Cluster::addr(), identity).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(client) => {
                    *slot = Some(client.clone());
                    return client;
                }
                Err(error) => self.cluster.scene.note(|| format!("caller {}: {error}", self.at)),
            }
            drop(slot);
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Drops a useless connection.
    async fn lost(&self) {
        *self.client.lock().await = None;
    }

    /// Calls the coordinator. If the connection fails, the next call makes a new one.
    async fn call<R>(&self, call: impl AsyncFnOnce(Client) -> Result<R>) -> Result<R> {
        let client = self.client().await;
        let told = call(client).await;
        if matches!(told, Err(Error::Connection(_) | Error::Refused { .. } | Error::Frame(_))) {
            self.lost().await;
        }
        told
    }
}

/// Runs a caller until all its tasks have ended or are reported lost.
pub(super) async fn call(cluster: Arc<Cluster>, at: usize, numbers: Vec<usize>) {
    let link = Arc::new(Link { cluster, at, client: Mutex::default() });
    let mut tasks = JoinSet::new();
    for number in numbers {
        let caller = Caller { rng: link.cluster.scene.rng(), link: Arc::clone(&link), number };
        tasks.spawn(NODE.scope(caller_node(at), caller.run()));
    }
    while tasks.join_next().await.is_some() {}
}

/// One task's caller.
struct Caller {
    link: Arc<Link>,
    number: usize,
    rng: Xoshiro256PlusPlus,
}

impl Caller {
    fn cluster(&self) -> &Cluster {
        &self.link.cluster
    }

    fn doing(&self, what: &'static str) {
        self.cluster().ledger.doing(self.number, what);
    }

    fn fail(&self, what: &str) {
        self.cluster().scene.fail(format!("task {}: {what}", self.number));
    }

    async fn pause(&mut self, ms_max: u64) {
        let ms = self.rng.random_range(0..=ms_max);
        sleep(Duration::from_millis(ms)).await;
    }

    async fn run(mut self) {
        self.pause(6_000).await;
        let way = self.cluster().ledger.with(self.number, |entry| entry.way);
        match way {
            Some(Way::Durable) => {
                if let Some(id) = self.submit().await {
                    self.wait(id).await;
                    self.ask(id).await;
                }
            }
            Some(Way::DurableLeft) => self.leave().await,
            Some(Way::Run) => self.run_at_once().await,
            Some(Way::Volatile) => {
                if let Some(id) = self.submit().await {
                    self.wait(id).await;
                }
            }
            Some(Way::Held) => {
                if let Some(id) = self.submit().await {
                    self.doing("waits and leaves");
                    for _ in 0..3 {
                        let patience = Duration::from_millis(self.rng.random_range(1..900));
                        let waiting = self.link.call(async |client| client.wait(id).await);
                        let _ = timeout(patience, waiting).await;
                    }
                }
            }
            None => {}
        }
        self.doing("done");
    }

    /// Submits the task until it is accepted. A task without a key whose answer is lost is given
    /// up.
    async fn submit(&mut self) -> Option<TaskId> {
        self.doing("submits");
        let (spec, durable) = self
            .cluster()
            .ledger
            .with(self.number, |entry| (entry.spec.clone(), entry.way.is_durable()))?;
        loop {
            let life = self.cluster().life();
            let spec = spec.clone();
            let submitting = self.link.call(async |client| client.submit(spec).await);
            match timeout(ANSWER_LIMIT, submitting).await {
                Err(_) => {
                    self.fail("a submission has no answer");
                    return None;
                }
                Ok(Ok(id)) => {
                    self.cluster().ledger.accept(self.number, id, life);
                    return Some(id);
                }
                Ok(Err(Error::Connection(_) | Error::Stopped | Error::Frame(_))) if !durable => {
                    return None;
                }
                Ok(Err(error)) => {
                    self.cluster().scene.note(|| format!("task {}: {error}", self.number));
                    if is_final(&error) {
                        self.fail(&format!("it is refused: {error}"));
                        return None;
                    }
                }
            }
            self.pause(300).await;
        }
    }

    /// Waits for the end of an accepted task. A volatile task may be reported lost with its
    /// coordinator.
    async fn wait(&mut self, id: TaskId) {
        self.doing("waits");
        loop {
            let told = self.link.call(async |client| client.wait(id).await).await;
            let error = match told {
                Ok(record) => return self.cluster().ledger.show(self.number, record),
                Err(error) => error,
            };
            self.cluster().scene.note(|| format!("task {}: {error}", self.number));
            if is_final(&error) {
                return self.told_lost(&error);
            }
            self.pause(300).await;
        }
    }

    /// A coordinator does not know the task.
    fn told_lost(&self, error: &Error) {
        let now = self.cluster().life();
        let accepted = self.cluster().ledger.with(self.number, |entry| {
            (entry.way.is_durable(), entry.accepted.map(|(_, life)| life))
        });
        match accepted {
            Some((false, Some(life))) if life < now => {}
            // The task's record was removed for lack of room.
            Some((false, _)) if matches!(error, Error::Expired { .. }) => {}
            _ => self.fail(&format!("it was accepted, and then: {error}")),
        }
    }

    async fn ask(&mut self, id: TaskId) {
        self.doing("asks again");
        let again = self.rng.random_range(0..3);
        for _ in 0..again {
            self.pause(1_000).await;
            let told = self.link.call(async |client| client.task(id).await).await;
            match told {
                Ok(record) if record.state.is_terminal() => {
                    self.cluster().ledger.show(self.number, record);
                }
                Ok(record) => self.fail(&format!("it had ended, and is {:?}", record.state)),
                Err(error) if is_final(&error) => self.told_lost(&error),
                Err(_) => {}
            }
        }
    }

    async fn run_at_once(&mut self) {
        self.doing("runs");
        let spec = self.cluster().ledger.with(self.number, |entry| entry.spec.clone());
        let Some(spec) = spec else { return };
        match self.link.call(async |client| client.run(spec).await).await {
            Ok(record) => self.cluster().ledger.show(self.number, record),
            Err(error) if is_final(&error) => self.fail(&format!("it is refused: {error}")),
            // The task may fail without a retry.
            Err(_) => {}
        }
    }

    /// Leaves while the task is submitted or waited for, and sometimes comes back.
    async fn leave(&mut self) {
        let patience = Duration::from_millis(self.rng.random_range(1..400));
        let going = async {
            if let Some(id) = self.submit().await {
                self.wait(id).await;
            }
        };
        let stayed = timeout(patience, going).await.is_ok();
        if stayed || self.rng.random_range(0..3) == 0 {
            return;
        }
        self.doing("is away");
        self.pause(2_000).await;
        let Some(id) = self.submit().await else { return };
        if self.rng.random_range(0..3) == 0 {
            self.doing("cancels");
            self.cluster().ledger.with(self.number, |entry| entry.cancelled = true);
            let told = self.link.call(async |client| client.cancel(id).await).await;
            if let Ok(record) = told {
                self.cluster().ledger.show(self.number, record);
            }
        }
        self.wait(id).await;
    }
}

/// Whether a retry cannot help.
pub(super) fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::UnknownTask { .. }
            | Error::Expired { .. }
            | Error::Conflict { .. }
            | Error::InvalidTask { .. }
            | Error::TooLarge { .. }
            | Error::NoJournal
            | Error::RoleNeeded { .. }
            | Error::JoinRefused { .. }
    )
}
