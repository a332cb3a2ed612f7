//! The coordinator's side: reads calls, within bounds, and answers those that the caller's role
//! allows.

use super::answer::Record;
use super::room::Place;
use super::{
    ADMIN_CALL_BYTES_MAX, ANSWER_BYTES_MAX, Answer, CALL_BYTES_MAX, Call, Item, PeerCall, Spec,
    Told, steady,
};
use crate::error::{Error, Result};
use crate::net::coordinator::Coordinator;
use crate::net::coordinator::elsewhere::knows_nothing;
use crate::net::coordinator::gate::Gate;
use crate::net::identity::certificate::Member;
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::members::Connected;
use crate::net::identity::renew;
use crate::net::identity::role::Role;
use crate::net::identity::token::{JoinToken, TokenInfo};
use crate::net::outside;
use crate::net::transport::close::{CANCELLED, Close};
use crate::net::transport::endpoint;
use crate::net::transport::rpc;
use crate::net::transport::wire;
use crate::proto::frame::BODY_BYTES_MAX;
use crate::proto::tensors::{describe_any, plan_first, share};
use crate::task::{TaskId, TaskRecord, TaskSpec};
use bytes::Bytes;
use lgp_memory::NamedTensor;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Calls of each connection at once.
const CALLS_MAX: u32 = 256;
/// Time for a call to arrive.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// One caller's connection.
struct Caller {
    gate: Arc<Gate>,
    connection: Connection,
    visit: Arc<Connected>,
    place: Place,
}

/// Serves a caller's connection until it ends.
pub(crate) async fn serve(gate: Arc<Gate>, connection: Connection, visit: Arc<Connected>) {
    let Some(place) = gate.callers.enter(visit.member()) else {
        return connection.close(Close::Busy.code(), Close::Busy.reason().as_bytes());
    };
    connection.set_max_concurrent_bi_streams(VarInt::from_u32(CALLS_MAX));
    endpoint::trust_caller(&connection);
    let caller = Arc::new(Caller { gate, connection, visit, place });
    while let Ok((send, recv)) = caller.connection.accept_bi().await {
        let caller = Arc::clone(&caller);
        tokio::spawn(outside::here(async move {
            if let Err(error) = caller.answer(send, recv).await {
                let addr = caller.connection.remote_address();
                tracing::debug!(%addr, %error, "a call was not answered");
            }
        }));
    }
}

impl Caller {
    async fn answer(&self, mut send: SendStream, mut recv: RecvStream) -> Result<()> {
        let bytes_max = match self.visit.member().role {
            Role::Admin => ADMIN_CALL_BYTES_MAX,
            _ => CALL_BYTES_MAX,
        };
        let call = timeout(CALL_TIMEOUT, rpc::read_within(&mut recv, bytes_max)).await;
        let call: Call = call.map_err(|_| wire::lost("a call took too long"))??;
        let (name, needs) = call.needs();
        if self.visit.is_expired() {
            // A moment later the connection would be closed anyway.
            self.visit.expire();
            return Ok(());
        }
        let given_up = send.stopped();
        let member = self.visit.member();
        let answer = match member.role.may(needs) {
            true => tokio::select! {
                answer = self.perform(call, &mut recv) => answer,
                // The caller does not wait any more. Work that has begun goes on.
                _ = given_up => return Ok(()),
            },
            false => {
                let Member { role, name: who, .. } = member;
                tracing::warn!(%role, %who, call = name, "a call was refused: its role");
                Err(Error::RoleNeeded { call: name.to_owned(), needs })
            }
        };
        self.reply(&mut send, answer).await
    }

    async fn reply(&self, send: &mut SendStream, answer: Performed) -> Result<()> {
        let replied = reply(send, answer).await;
        if replied.is_err() {
            // Without a reset, half an answer would seem to be a whole one.
            let _ = send.reset(CANCELLED);
        }
        replied
    }

    async fn perform(&self, call: Call, recv: &mut RecvStream) -> Performed {
        let coordinator = &self.gate.coordinator;
        let told = match call {
            Call::Peer(call) => return self.perform_for_peer(call, recv).await,
            Call::Greet => Told::Done,
            Call::Renew { csr } => {
                let renewed = renew::certify(&self.gate, &self.visit, csr).await;
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
            Call::Task(id) => return described(coordinator.task(id).await?),
            Call::Cancel(id) => return described(coordinator.cancel(id).await?),
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
            Call::CreateToken { .. } | Call::Revoke { .. } if !coordinator.leads() => {
                let reason = "this coordinator follows: ask the one that leads".to_owned();
                return Err(Error::NoLeader { reason });
            }
            Call::CreateToken { role, uses, ttl } => {
                let (info, token) = self.create_token(role, uses, ttl).await?;
                Told::Token(info, token.to_string())
            }
            Call::Revoke { role, name } => {
                let by = &self.visit.member().name;
                tracing::warn!(%by, %role, %name, "an administrator revokes");
                let (revocation, closed) = coordinator.revoke(role, name).await?;
                Told::Revoked(revocation, u64::try_from(closed).unwrap_or(u64::MAX))
            }
        };
        Ok((told, Vec::new()))
    }

    /// Answers the call of another coordinator.
    async fn perform_for_peer(&self, call: PeerCall, recv: &mut RecvStream) -> Performed {
        if let PeerCall::Part { sha256, offset } = call {
            let part = self.gate.coordinator.part(sha256, offset).await?;
            return Ok((Told::Part(part), Vec::new()));
        }
        let coordinator = &self.gate.coordinator;
        // No task of a submission was taken; of all else, the next leader knows the state.
        let refusal = match &call {
            PeerCall::SubmitAll(_) => {
                let reason = "the coordinator that was asked does not lead, or not for certain";
                Error::NoLeader { reason: reason.to_owned() }
            }
            _ => Error::HandedOver,
        };
        let may_answer = match call {
            // The log refuses durable tasks of a deposed leader, and a key that is known stays.
            PeerCall::SubmitAll(_) | PeerCall::Keyed(_) => coordinator.leads(),
            _ => coordinator.leads_now(),
        };
        if !may_answer && !call.task().is_some_and(|id| coordinator.may_answer(id, &call)) {
            // This coordinator does not lead yet, or not any more.
            return Err(refusal);
        }
        match self.tell_peer(call, recv).await {
            // The lead may have been lost before the look.
            Err(error) if knows_nothing(&error) && !coordinator.leads_now() => Err(refusal),
            told => told,
        }
    }

    async fn tell_peer(&self, call: PeerCall, recv: &mut RecvStream) -> Performed {
        let leads_now = || self.gate.coordinator.leads_now();
        let coordinator = &self.gate.coordinator.alone();
        let told = match call {
            PeerCall::Wait(id) => return described(coordinator.wait(id).await?),
            PeerCall::Task(id) => return described(coordinator.task(id).await?),
            PeerCall::Cancel(id) => return described(coordinator.cancel(id).await?),
            PeerCall::SubmitAll(items) => {
                Told::Ids(self.submit_all(coordinator, items, recv).await?)
            }
            PeerCall::Keyed(key) => {
                let known = coordinator.keyed(&key).await?;
                // The lead may have been lost before the look.
                if known.is_none() && !leads_now() {
                    return Err(Error::HandedOver);
                }
                Told::Keyed(known)
            }
            PeerCall::State(id) => Told::State(coordinator.state(id)?),
            PeerCall::ModelOf(id) => Told::Model((*coordinator.model_of(id).await?).clone()),
            PeerCall::StoredBytes(id) => Told::Count(coordinator.stored_bytes(id).await?),
            PeerCall::LetGo(id) => Told::State(coordinator.let_go(id).await?),
            PeerCall::Explain(id) => Told::Story(coordinator.explain(id).await?),
            PeerCall::Tasks(filter) => {
                let page = coordinator.tasks(&filter).await?;
                let record = |record| Record::of(TaskRecord { outputs: None, ..record }, None);
                let tasks = page.tasks.into_iter().map(record).collect();
                // The lead may have been lost, as with keys.
                if !leads_now() {
                    return Err(Error::HandedOver);
                }
                Told::Page(tasks, page.next)
            }
            PeerCall::Part { .. } => return Err(failed("a part was asked for twice")),
        };
        Ok((told, Vec::new()))
    }

    async fn submit_all(
        &self,
        coordinator: &Coordinator,
        items: Vec<Item>,
        recv: &mut RecvStream,
    ) -> Result<Vec<TaskId>> {
        let mut tasks = Vec::new();
        let mut bytes = 0;
        for Item { spec, request_digest, within } in items {
            let spec = TaskSpec { request_digest, ..self.task(spec, recv).await? };
            bytes += spec.inputs.iter().map(|input| input.tensor.packed_len()).sum::<usize>();
            if bytes > BODY_BYTES_MAX {
                let (what, limit) = ("submission", BODY_BYTES_MAX);
                return Err(Error::TooLarge { what, given: bytes, limit });
            }
            let within = within.into_iter().map(|at| usize::try_from(at).unwrap_or(usize::MAX));
            tasks.push((spec, within.collect()));
        }
        let this = &self.gate.coordinator;
        if tasks.iter().any(|(spec, _)| this.must_lead_now(spec)) && !this.leads_now() {
            let reason = "the lease of the coordinator that was asked may be over".to_owned();
            return Err(Error::NoLeader { reason });
        }
        coordinator.submit_all(tasks).await
    }

    async fn submit(&self, spec: Spec, recv: &mut RecvStream) -> Result<TaskId> {
        let spec = self.task(spec, recv).await?;
        let ids = self.gate.coordinator.submit_all(vec![(spec, Vec::new())]).await?;
        ids.first().copied().ok_or(Error::Stopped)
    }

    /// The task with its inputs, which are read once there is room for them.
    async fn task(&self, mut spec: Spec, recv: &mut RecvStream) -> Result<TaskSpec> {
        let metas = std::mem::take(&mut spec.tensors);
        let (planned, rest) = plan_first(metas, BODY_BYTES_MAX)?;
        let given = BODY_BYTES_MAX.saturating_sub(rest);
        let _room = self.gate.callers.room(&self.place, given).await?;
        let mut inputs = Vec::with_capacity(planned.len());
        for planned in planned {
            let mut buffer = planned.buffer()?;
            steady::fill(recv, &mut buffer).await?;
            inputs.push(planned.finish(buffer)?);
        }
        Ok(spec.with(inputs))
    }

    async fn create_token(
        &self,
        role: Role,
        uses: u32,
        ttl: Duration,
    ) -> Result<(TokenInfo, JoinToken)> {
        let coordinator = self.gate.coordinator.clone();
        let member = self.visit.member().clone();
        let addr = self.connection.remote_address();
        let making = tokio::task::spawn_blocking(move || {
            let tokens = coordinator.tokens();
            let tokens = tokens.ok_or_else(|| failed("this coordinator has no join tokens"))?;
            let maker = (member.role, member.name.clone());
            let (info, token) = tokens.create_by(Some(maker.clone()), role, uses, ttl)?;
            if coordinator.pki().is_revoked(&member) {
                // Revoked meanwhile, perhaps before the token could be taken back.
                tokens.take_back(&maker).1?;
                let refusal = JoinRefusal::CertificateRevoked;
                return Err(Error::JoinRefused { addr, refusal });
            }
            tracing::info!(by = %member.name, token = %info.id, %role, "a join token was made");
            Ok((info, token))
        });
        making.await.map_err(wire::lost)?
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
/// The result of a call.
type Performed = Result<(Told, Outputs)>;

fn failed(message: impl Into<String>) -> Error {
    Error::CallFailed { message: message.into() }
}

fn described(mut record: TaskRecord) -> Result<(Told, Outputs)> {
    let outputs = record.outputs.take();
    let metas = outputs.as_deref().map(describe_any).transpose()?.map(|(metas, _)| metas);
    Ok((Told::Record(Box::new(Record::of(record, metas))), outputs.unwrap_or_default()))
}

async fn reply(send: &mut SendStream, answer: Performed) -> Result<()> {
    let (answer, outputs): (Answer, Outputs) = match answer {
        Ok((told, outputs)) => (Ok(told), outputs),
        Err(error) => (Err(error.into()), Vec::new()),
    };
    let bytes = postcard::to_stdvec(&answer).map_err(wire::lost)?;
    if bytes.len() > ANSWER_BYTES_MAX {
        let (what, given, limit) = ("answer", bytes.len(), ANSWER_BYTES_MAX);
        let refused: Answer = Err(Error::TooLarge { what, given, limit }.into());
        wire::taken(rpc::write_within(send, &refused, ANSWER_BYTES_MAX)).await?;
        return send.finish().map_err(wire::lost);
    }
    let length = u32::try_from(bytes.len()).map_err(wire::lost)?;
    steady::write(send, Bytes::copy_from_slice(&length.to_le_bytes())).await?;
    steady::write(send, bytes.into()).await?;
    for output in &outputs {
        steady::write(send, share(&output.tensor)).await?;
    }
    send.finish().map_err(wire::lost)
}
