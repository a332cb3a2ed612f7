//! Work that one coordinator leaves to another: answers about tasks that are not its own, and tasks
//! that only the leader takes.

use crate::error::{Error, Result};
use crate::net::call::{Answered, Client, Parcel, PeerCall, Told};
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::peers::{AGAIN, PATIENCE, Peers};
use crate::net::outside::planted_here;
use crate::task::{TaskFilter, TaskId, TaskPage, TaskRecord, TaskSpec};
use std::pin::pin;
use tokio::time::{Instant, sleep};

/// Whether a coordinator says that it knows nothing of a task.
pub(crate) fn knows_nothing(error: &Error) -> bool {
    matches!(error, Error::UnknownTask { .. } | Error::Expired { .. })
}

/// Whether another coordinator may answer instead.
fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::Connection(_)
            | Error::Unreachable { .. }
            | Error::Stopped
            | Error::Draining
            | Error::HandedOver
    )
}

/// The error for a question that no coordinator answered in time.
fn no_leader(error: Error) -> Error {
    match is_lost(&error) {
        true => Error::NoLeader { reason: error.to_string() },
        false => error,
    }
}

impl Coordinator {
    /// Whether this coordinator knows a task as the cluster does. The leader has the durable tasks,
    /// and an end is final.
    pub(crate) fn may_answer(&self, id: TaskId, call: &PeerCall) -> bool {
        let Some(standing) = self.shared.read(|core, _| core.standing(id)) else { return false };
        let stays = standing.state.is_terminal() || !call.is_about_now();
        !standing.durable || self.leads() && (stays || self.leads_now())
    }

    /// What another coordinator answers about a task; `None` where this one must answer. The leader is asked
    /// first, and the task's taker if the leader does not answer soon, or does not know the task.
    async fn elsewhere(
        &self,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Answered>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        if self.may_answer(id, &call()) {
            return Ok(None);
        }
        let (mut leader, mut taker) = (None, None);
        let mut of_leader = pin!(self.of_leader(peers, call));
        let mut of_taker = pin!(self.of_taker(peers, id, call));
        let mut soon = pin!(sleep(AGAIN));
        let mut asks_taker = !peers.is_led();
        loop {
            tokio::select! {
                biased;
                answer = &mut of_leader, if leader.is_none() => {
                    let knows = match &answer {
                        Ok(None) => self.shared.read(|core, _| core.knows(id)),
                        Ok(Some(_)) => true,
                        Err(error) => !knows_nothing(error) && !matches!(error, Error::NoLeader { .. }),
                    };
                    if knows {
                        return answer;
                    }
                    (leader, asks_taker) = (Some(answer), true);
                }
                answer = &mut of_taker, if taker.is_none() && asks_taker => {
                    if let Ok(Some(answer)) = answer {
                        return Ok(Some(answer));
                    }
                    taker = Some(answer);
                }
                () = &mut soon, if !asks_taker => asks_taker = true,
            }
            if leader.is_some() && taker.is_some() {
                // The task may live at the coordinator that took it, though that one is not reached.
                taker.transpose()?;
                return leader.unwrap_or(Ok(None));
            }
        }
    }

    /// The answer of the leader, or of the next leader if the first answer is lost; `None` where
    /// this coordinator must answer.
    async fn of_leader(
        &self,
        peers: &Peers,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Answered>> {
        let mut end = Instant::now() + PATIENCE;
        loop {
            let Some(client) = peers.leader_now(self).await? else { return Ok(None) };
            let asked_at = Instant::now();
            let asked = tokio::select! {
                biased;
                asked = client.here(call()) => asked,
                // The old leader's connection may only show its fate later.
                () = peers.another_leads() => continue,
            };
            if asked_at.elapsed() > PATIENCE {
                // The leader was there until now.
                end = Instant::now() + PATIENCE;
            }
            match asked {
                Err(error) if is_lost(&error) && Instant::now() < end => sleep(AGAIN).await,
                asked => return asked.map(Some).map_err(no_leader),
            }
        }
    }

    /// The answer of the coordinator that took a task, which has the task in memory, whoever leads.
    /// `None` where that coordinator leads, is gone, or does not know the task.
    async fn of_taker(
        &self,
        peers: &Peers,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Answered>> {
        let Some(peer) = peers.taker(id) else { return Ok(None) };
        let client = peers.reach(self, &peer).await.map_err(no_leader)?;
        match client.here(call()).await {
            Err(error) if knows_nothing(&error) || matches!(error, Error::HandedOver) => Ok(None),
            answer => answer.map(Some).map_err(no_leader),
        }
    }

    /// A record that another coordinator has; `None` where this one must answer.
    pub(super) async fn record_elsewhere(
        &self,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<TaskRecord>> {
        match self.elsewhere(id, call).await? {
            None => Ok(None),
            Some(Answered::Record(record)) => Ok(Some(*record)),
            Some(Answered::Told(_)) => Err(Client::odd()),
        }
    }

    /// What another coordinator tells of a task; `None` where this one must answer.
    pub(super) async fn told_elsewhere(
        &self,
        id: TaskId,
        call: impl Fn() -> PeerCall + Copy + Send,
    ) -> Result<Option<Told>> {
        match self.elsewhere(id, call).await? {
            None => Ok(None),
            Some(Answered::Told(told)) => Ok(Some(told)),
            Some(Answered::Record(_)) => Err(Client::odd()),
        }
    }

    /// The task that a key stands for, where another coordinator leads.
    pub(super) async fn keyed_elsewhere(
        &self,
        key: &str,
    ) -> Result<Option<Option<(TaskId, [u8; 32])>>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        match self.of_leader(peers, || PeerCall::Keyed(key.to_owned())).await? {
            None => Ok(None),
            Some(Answered::Told(Told::Keyed(known))) => Ok(Some(known)),
            Some(_) => Err(Client::odd()),
        }
    }

    /// A page of the leader's tasks, where another coordinator leads.
    pub(super) async fn tasks_of_leader(&self, filter: &TaskFilter) -> Result<Option<TaskPage>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        match self.of_leader(peers, || PeerCall::Tasks(filter.clone())).await? {
            None => Ok(None),
            Some(Answered::Told(Told::Page(records, next))) => {
                let tasks = records.into_iter().map(|record| record.with(None)).collect();
                Ok(Some(TaskPage { tasks, next }))
            }
            Some(_) => Err(Client::odd()),
        }
    }

    /// Whether a leader whose lease may be over must not take a task, because no log would refuse
    /// it: a task in memory with a key, or one that depends on tasks that are not known here.
    pub(crate) fn must_lead_now(&self, spec: &TaskSpec) -> bool {
        let is_far = |id: &TaskId| !self.shared.read(|core, _| core.knows(*id));
        !spec.durable && spec.idempotency_key.is_some() || spec.depends_on.iter().any(is_far)
    }

    /// The leader, for tasks that only the leader takes: durable tasks, tasks with a key, which
    /// stands for one task in the whole cluster, and tasks that depend on tasks that are not known
    /// here. `None` where this coordinator must take the tasks.
    async fn leader_for(&self, tasks: &[(TaskSpec, Vec<usize>)]) -> Result<Option<Client>> {
        let Some(peers) = &self.peers else { return Ok(None) };
        if planted_here!(FollowerAccepts) {
            return Ok(None);
        }
        if tasks.iter().any(|(spec, _)| self.must_lead_now(spec)) {
            return peers.leader_now(self).await;
        }
        match !peers.leads() && tasks.iter().any(|(spec, _)| spec.durable) {
            true => peers.leader(self).await,
            false => Ok(None),
        }
    }

    /// Accepts tasks here, or passes them on to the leader. Where the answer was lost and all tasks
    /// have keys, the next leader gets them: it finds the keys of durable tasks in the log.
    pub(super) async fn submit_or_pass_on(
        &self,
        tasks: Vec<(TaskSpec, Vec<usize>)>,
    ) -> Result<Vec<TaskId>> {
        let Some(peers) = &self.peers else { return self.submit_here(tasks).await };
        let may_repeat = tasks.iter().all(|(spec, _)| spec.idempotency_key.is_some());
        let end = Instant::now() + PATIENCE;
        loop {
            let taken = match self.leader_for(&tasks).await? {
                None if !may_repeat => return self.submit_here(tasks).await,
                None => self.submit_here(tasks.clone()).await,
                Some(client) => {
                    let parcel = Parcel::of(tasks.clone())?;
                    tokio::select! {
                        taken = client.pass_on(parcel) => taken,
                        // The old leader's connection may only show its fate later.
                        () = peers.another_leads(), if may_repeat => continue,
                    }
                }
            };
            match taken {
                // No task was taken.
                Err(Error::NoLeader { .. }) if Instant::now() < end => sleep(AGAIN).await,
                Err(error) if may_repeat && is_lost(&error) && Instant::now() < end => {
                    sleep(AGAIN).await;
                }
                taken => return taken,
            }
        }
    }
}
