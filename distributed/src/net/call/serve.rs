//! The coordinator's side: reads calls, within bounds, and answers those that the caller's role
//! allows.

use super::answer::Record;
use super::{ANSWER_BYTES_MAX, Answer, CALL_BYTES_MAX, Call, Spec, Told};
use crate::error::{Error, Result};
use crate::net::close::Close;
use crate::net::gate::Gate;
use crate::net::role::Role;
use crate::net::tls::Member;
use crate::net::{ask, attend, transport, wire};
use crate::proto::frame::BODY_BYTES_MAX;
use crate::proto::tensors::{describe, plan_first};
use crate::task::{TaskId, TaskRecord, TaskSpec};
use lgp_memory::NamedTensor;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections of clients and of administrators at once, each with places of their own: who is to
/// send others away must get in. And calls of each connection.
const CLIENTS_MAX: usize = 256;
const ADMINS_MAX: usize = 32;
const CALLS_MAX: u32 = 256;
/// Bytes of inputs that callers may have on the way to tasks, altogether and from one: one that
/// dawdles must not keep others out. Counted in units, for a semaphore counts no further.
const UNIT_BYTES: usize = 64 << 10;
const BODIES_BYTES_MAX: usize = 256 << 20;
/// Time for a call to arrive, for its inputs, and for the answer to be taken.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Whoever owns the processes of local workers, for [`Services`](crate::Services).
pub trait Supervisor: Send + Sync {
    /// Brings the number of local workers to `workers`; answers how many there were. Called from
    /// the runtime of the coordinator, and must not block.
    ///
    /// # Errors
    /// Why not, in words for an administrator.
    fn scale(&self, workers: usize) -> Result<usize, String>;
}

/// Places for callers and for what they send.
pub(in crate::net) struct Callers {
    clients: Semaphore,
    admins: Semaphore,
    bodies: Semaphore,
}

impl Default for Callers {
    fn default() -> Self {
        let (clients, admins) = (Semaphore::new(CLIENTS_MAX), Semaphore::new(ADMINS_MAX));
        Self { clients, admins, bodies: Semaphore::new(BODIES_BYTES_MAX / UNIT_BYTES) }
    }
}

/// One caller's connection.
struct Caller {
    gate: Arc<Gate>,
    connection: Connection,
    member: Member,
    bodies: Semaphore,
}

/// Serves a caller's connection until it ends.
pub(in crate::net) async fn serve(gate: Arc<Gate>, connection: Connection, member: Member) {
    let places = match member.role {
        Role::Admin => &gate.callers.admins,
        Role::Worker | Role::Client => &gate.callers.clients,
    };
    let Ok(_place) = places.try_acquire() else {
        return connection.close(Close::Busy.code(), Close::Busy.reason().as_bytes());
    };
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(CALLS_MAX));
    transport::trust(&connection);
    let bodies = Semaphore::new(BODY_BYTES_MAX / UNIT_BYTES);
    let caller = Arc::new(Caller { gate: Arc::clone(&gate), connection, member, bodies });
    while let Ok((send, recv)) = caller.connection.accept_bi().await {
        let caller = Arc::clone(&caller);
        tokio::spawn(async move {
            if let Err(error) = caller.answer(send, recv).await {
                let addr = caller.connection.remote_address();
                tracing::debug!(%addr, %error, "a call was not answered");
            }
        });
    }
}

impl Caller {
    async fn answer(&self, mut send: SendStream, mut recv: RecvStream) -> Result<()> {
        let call = timeout(CALL_TIMEOUT, ask::read_within(&mut recv, CALL_BYTES_MAX)).await;
        let call: Call = call.map_err(|_| wire::lost("a call took too long"))??;
        let (name, needs) = call.needs();
        let given_up = send.stopped();
        let answer = match self.member.role.may(needs) {
            true => tokio::select! {
                answer = self.perform(call, &mut recv) => answer,
                // Nobody waits for it any more. What was begun goes on.
                _ = given_up => return Ok(()),
            },
            false => {
                let Member { role, name: who, .. } = &self.member;
                tracing::warn!(%role, %who, call = name, "a call was refused: its role");
                Err(Error::RoleNeeded { call: name.to_owned(), needs })
            }
        };
        timeout(ANSWER_TIMEOUT, reply(&mut send, answer))
            .await
            .map_err(|_| wire::lost("nobody took an answer"))?
    }

    async fn perform(&self, call: Call, recv: &mut RecvStream) -> Result<(Told, Outputs)> {
        let coordinator = &self.gate.coordinator;
        let told = match call {
            Call::Greet => Told::Done,
            Call::Renew { csr } => {
                let Member { role, name, .. } = &self.member;
                let renewed = attend::renew(&self.gate, &self.connection, *role, name, &csr);
                let addr = self.connection.remote_address();
                Told::Certified(renewed.map_err(|refusal| Error::JoinRefused { addr, refusal })?)
            }
            Call::Models => Told::Models(coordinator.models()),
            Call::Submit(spec) => Told::Task(self.submit(*spec, recv).await?),
            Call::Run(spec) => {
                let record = coordinator.run(self.task(*spec, recv).await?).await?;
                return described(record);
            }
            Call::Wait(id) => return described(coordinator.wait(id).await?),
            Call::Task(id) => return described(coordinator.task(id)?),
            Call::Cancel(id) => return described(coordinator.cancel(id)?),
            Call::Workers => Told::Workers(coordinator.workers()),
            Call::Stats => Told::Stats(Box::new(coordinator.stats())),
            Call::ShutdownWorker(id) => {
                coordinator.shutdown_worker(&id)?;
                Told::Done
            }
            Call::Drain => {
                coordinator.drain().await;
                Told::Done
            }
            Call::Scale(workers) => Told::Count(self.scale(workers)?),
            Call::CreateToken { role, uses, ttl } => {
                let tokens = coordinator.tokens().cloned();
                let tokens = tokens.ok_or_else(|| failed("this coordinator has no join tokens"))?;
                let made = move || tokens.create_for(role, uses, ttl);
                let made = tokio::task::spawn_blocking(made).await.map_err(wire::lost)?;
                let (info, token) = made?;
                Told::Token(info, token.to_string())
            }
            Call::Revoke { role, name } => {
                let (revocation, closed) = coordinator.revoke(role, name).await?;
                Told::Revoked(revocation, u64::try_from(closed).unwrap_or(u64::MAX))
            }
        };
        Ok((told, Vec::new()))
    }

    async fn submit(&self, spec: Spec, recv: &mut RecvStream) -> Result<TaskId> {
        let spec = self.task(spec, recv).await?;
        let ids = self.gate.coordinator.submit_all(vec![(spec, Vec::new())]).await?;
        ids.first().copied().ok_or(Error::Stopped)
    }

    /// The task with its inputs, which are read while there is room for them.
    async fn task(&self, mut spec: Spec, recv: &mut RecvStream) -> Result<TaskSpec> {
        let metas = std::mem::take(&mut spec.tensors);
        let (planned, rest) = plan_first(metas, BODY_BYTES_MAX)?;
        let units = (BODY_BYTES_MAX - rest).div_ceil(UNIT_BYTES);
        let units = u32::try_from(units).map_err(wire::lost)?;
        let reading = async {
            let closed = |_| Error::Stopped;
            let _own = self.bodies.acquire_many(units).await.map_err(closed)?;
            let _all = self.gate.callers.bodies.acquire_many(units).await.map_err(closed)?;
            let mut inputs = Vec::with_capacity(planned.len());
            for planned in planned {
                let mut buffer = planned.buffer()?;
                wire::fill(recv, &mut buffer).await?;
                inputs.push(planned.finish(buffer)?);
            }
            Ok::<_, Error>(inputs)
        };
        let read = timeout(BODY_TIMEOUT, reading).await;
        let late = |_| failed("the inputs did not come in time");
        Ok(spec.with(read.map_err(late)??))
    }

    fn scale(&self, workers: u64) -> Result<u64> {
        let supervisor = self.gate.services.supervisor.as_ref();
        let supervisor =
            supervisor.ok_or_else(|| failed("this coordinator does not own its workers"))?;
        let before = supervisor.scale(usize::try_from(workers).unwrap_or(usize::MAX));
        Ok(u64::try_from(before.map_err(failed)?).unwrap_or(u64::MAX))
    }
}

/// Tensors that follow an answer.
type Outputs = Vec<NamedTensor>;

fn failed(message: impl Into<String>) -> Error {
    Error::CallFailed { message: message.into() }
}

fn described(mut record: TaskRecord) -> Result<(Told, Outputs)> {
    let outputs = record.outputs.take();
    let metas = outputs.as_deref().map(describe).transpose()?.map(|(metas, _)| metas);
    Ok((Told::Record(Box::new(Record::of(record, metas))), outputs.unwrap_or_default()))
}

async fn reply(send: &mut SendStream, answer: Result<(Told, Outputs)>) -> Result<()> {
    let (answer, outputs): (Answer, Outputs) = match answer {
        Ok((told, outputs)) => (Ok(told), outputs),
        Err(error) => (Err(error.into()), Vec::new()),
    };
    match ask::write_within(send, &answer, ANSWER_BYTES_MAX).await {
        Err(error @ Error::TooLarge { .. }) => {
            let refused: Answer = Err(error.into());
            ask::write_within(send, &refused, ANSWER_BYTES_MAX).await?;
        }
        written => {
            written?;
            wire::write_tensors(send, &outputs).await?;
        }
    }
    send.finish().map_err(wire::lost)
}
