//! Calls of etcd: each has a deadline, and goes to one endpoint after the other until one answers.

use super::proto::cluster_client::ClusterClient;
use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::kv_client::KvClient;
use super::proto::lease_client::LeaseClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::request_op::Request as Op;
use super::proto::response_op::Response as Done;
use super::proto::*;
use super::{Keys, Trouble};
use crate::control::aside::Aside;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

/// How long an endpoint may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(2);
/// How often all endpoints are tried: while the members elect a leader, none of them answers.
const ROUNDS: usize = 2;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(300);
/// The largest request that etcd takes as it is set up by default, less what is around a document.
pub(super) const REQUEST_BYTES: usize = (3 << 19) - 4096;

/// Connections to all endpoints, which are made anew when they were lost.
#[derive(Debug)]
pub(super) struct Client {
    aside: Aside,
    channels: Vec<Channel>,
    /// The one that answered last.
    first: AtomicUsize,
}

impl Client {
    pub(super) fn new(keys: &Keys) -> Result<Self, Trouble> {
        let aside = Aside::start("etcd").map_err(Trouble::Refused)?;
        let endpoints = keys.endpoints.iter().map(|host| {
            // Certificates would be taken here.
            let endpoint = Endpoint::from_shared(format!("http://{host}"));
            let endpoint = endpoint.map_err(|error| Trouble::Refused(error.to_string()))?;
            // What hangs is noticed; members refuse to be asked much more often.
            let endpoint = endpoint.http2_keep_alive_interval(Duration::from_secs(10));
            Ok(endpoint.keep_alive_timeout(ANSWER).connect_timeout(ANSWER))
        });
        let endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
        // They belong to the runtime that makes them.
        let connect = async move { endpoints.iter().map(Endpoint::connect_lazy).collect() };
        let channels = aside.ask(ANSWER, connect);
        let channels = channels.ok_or_else(|| Trouble::Away("no connection".to_owned()))?;
        Ok(Self { aside, channels, first: AtomicUsize::new(0) })
    }

    /// Asks one endpoint after the other until one answers.
    fn call<T, F>(
        &self,
        limit: Duration,
        ask: impl Fn(Channel) -> F + Send + 'static,
    ) -> Result<T, Trouble>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        let channels = self.channels.clone();
        let (count, first) = (channels.len(), self.first.load(Ordering::Relaxed));
        let tries = count * ROUNDS;
        let all = async move {
            let mut why = "it does not answer".to_owned();
            for at in 0..tries {
                if at > 0 && at % count == 0 {
                    tokio::time::sleep(BETWEEN_ROUNDS).await;
                }
                let chosen = (first + at) % count;
                match tokio::time::timeout(limit, ask(channels[chosen].clone())).await {
                    Ok(Ok(answer)) => return Ok((chosen, answer.into_inner())),
                    Ok(Err(status)) => match trouble(&status) {
                        Trouble::Away(text) => why = text,
                        trouble => return Err(trouble),
                    },
                    Err(_) => why = format!("no answer within {} ms", limit.as_millis()),
                }
            }
            Err(Trouble::Away(why))
        };
        let tries = u32::try_from(tries).unwrap_or(u32::MAX);
        let asked = self.aside.ask(limit * tries + BETWEEN_ROUNDS * 2, all);
        let (chosen, answer) =
            asked.unwrap_or_else(|| Err(Trouble::Away("it does not answer".to_owned())))?;
        self.first.store(chosen, Ordering::Relaxed);
        Ok(answer)
    }

    /// One transaction: whether all comparisons held, and what was done of `success` or `failure`.
    pub(super) fn transact(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<(bool, Vec<Vec<KeyValue>>), Trouble> {
        let request = TxnRequest { compare, success, failure };
        let ask = move |channel| {
            let request = request.clone();
            async move { KvClient::new(channel).txn(request).await }
        };
        let answer: TxnResponse = self.call(ANSWER, ask)?;
        let found = answer.responses.into_iter().map(|response| match response.response {
            Some(Done::ResponseRange(range)) => range.kvs,
            _ => Vec::new(),
        });
        Ok((answer.succeeded, found.collect()))
    }

    /// What several ranges hold at one moment.
    pub(super) fn look<const N: usize>(
        &self,
        ranges: [RequestOp; N],
    ) -> Result<[Vec<KeyValue>; N], Trouble> {
        let (_, found) = self.transact(Vec::new(), ranges.to_vec(), Vec::new())?;
        let odd = |_| Trouble::Refused("an answer has another number of parts".to_owned());
        found.try_into().map_err(odd)
    }

    pub(super) fn grant(&self, time: Duration) -> Result<i64, Trouble> {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds, id: 0 };
        let ask =
            move |channel| async move { LeaseClient::new(channel).lease_grant(request).await };
        let granted: LeaseGrantResponse = self.call(ANSWER, ask)?;
        match granted.error.is_empty() {
            true => Ok(granted.id),
            false => Err(Trouble::Refused(granted.error)),
        }
    }

    /// Renews a lease, or says that it has ended.
    pub(super) fn keep_alive(&self, id: i64, limit: Duration) -> Result<(), Trouble> {
        let ask = move |channel| async move {
            let once = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = LeaseClient::new(channel).lease_keep_alive(once).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unavailable("no answer"))
        };
        let answer: LeaseKeepAliveResponse = self.call(limit, ask)?;
        if answer.ttl > 0 { Ok(()) } else { Err(Trouble::Ended) }
    }

    pub(super) fn revoke(&self, id: i64) -> Result<(), Trouble> {
        let request = LeaseRevokeRequest { id };
        let ask =
            move |channel| async move { LeaseClient::new(channel).lease_revoke(request).await };
        self.call(ANSWER, ask).map(drop)
    }

    /// The version, how many members answer at the endpoints, and how many there are.
    pub(super) fn engine(&self) -> Result<(String, usize, usize), Trouble> {
        let ask = |channel| async move {
            ClusterClient::new(channel).member_list(MemberListRequest {}).await
        };
        let members = self.call(ANSWER, ask)?.members.len();
        let (mut versions, mut answering) = (BTreeSet::new(), BTreeSet::new());
        for channel in self.channels.clone() {
            let ask = async move { MaintenanceClient::new(channel).status(StatusRequest {}).await };
            if let Some(Ok(status)) = self.aside.ask(ANSWER, ask) {
                let status = status.into_inner();
                answering.insert(status.header.unwrap_or_default().member_id);
                versions.insert(status.version);
            }
        }
        let versions: Vec<String> = versions.into_iter().collect();
        Ok((versions.join(" and "), answering.len(), members))
    }
}

/// What a refusal means.
fn trouble(status: &Status) -> Trouble {
    let said = status.message();
    // What the system said is the innermost.
    let sources = std::iter::successors(std::error::Error::source(status), |it| it.source());
    let text = sources.last().map_or_else(|| said.to_owned(), |inner| format!("{said}: {inner}"));
    let is_too_large =
        ["request is too large", "larger than max"].iter().any(|part| said.contains(part));
    match status.code() {
        Code::NotFound if said.contains("lease not found") => Trouble::Ended,
        _ if is_too_large => Trouble::Refused(too_large()),
        // Its disk quota; too many requests pass.
        Code::ResourceExhausted if said.contains("space exceeded") => Trouble::Refused(text),
        Code::ResourceExhausted
        | Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Aborted
        | Code::Internal
        | Code::Unknown => Trouble::Away(text),
        _ => Trouble::Refused(text),
    }
}

pub(super) fn too_large() -> String {
    "it is larger than etcd takes in one request: 1.5 MiB, unless --max-request-bytes says otherwise"
        .to_owned()
}

pub(super) fn range(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Op::RequestRange(RangeRequest { key, range_end: Vec::new() })) }
}

/// All keys that begin so; a prefix ends in a byte that can be raised.
pub(super) fn below(prefix: Vec<u8>) -> RequestOp {
    let mut range_end = prefix.clone();
    if let Some(last) = range_end.last_mut() {
        *last = last.saturating_add(1);
    }
    RequestOp { request: Some(Op::RequestRange(RangeRequest { key: prefix, range_end })) }
}

/// Writes a key, which goes with a lease unless that is 0.
pub(super) fn put(key: Vec<u8>, value: &[u8], lease: i64) -> RequestOp {
    RequestOp { request: Some(Op::RequestPut(PutRequest { key, value: value.to_vec(), lease })) }
}

pub(super) fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp {
        request: Some(Op::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() })),
    }
}

/// Whether a key has a value.
pub(super) fn has(key: Vec<u8>, value: &[u8]) -> Compare {
    compare(key, CompareTarget::Value, TargetUnion::Value(value.to_vec()))
}

/// Whether a key is as it was when it had this revision; 0 is that of one which is not there.
pub(super) fn unchanged(key: Vec<u8>, revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

fn compare(key: Vec<u8>, target: CompareTarget, with: TargetUnion) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key,
        target_union: Some(with),
    }
}
