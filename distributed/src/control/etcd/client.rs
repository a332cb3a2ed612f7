//! Calls to etcd. Each call has a deadline and tries one endpoint after the other until one
//! answers.

use super::channels::{self, ANSWER};
use super::pass::{Line, Pass, unsigned};
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
use crate::control::tls::{ENCRYPTED, remedy, suspected};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::codegen::tokio_stream;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

/// How often all endpoints are tried: none answers while the members elect a leader.
const ROUNDS: usize = 2;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(300);
/// The largest request that etcd accepts by default, less the bytes around a document.
pub(super) const REQUEST_BYTES: usize = (3 << 19) - 4096;

/// Connections to all endpoints, which are made again after they were lost.
#[derive(Debug)]
pub(super) struct Client {
    aside: Aside,
    channels: Vec<Channel>,
    pass: Pass,
    /// The index of the endpoint that answered last; the number of endpoints if none has.
    first: AtomicUsize,
    is_plain: bool,
}

impl Client {
    pub(super) fn new(keys: &Keys) -> Result<Self, Trouble> {
        let aside = Aside::start("etcd").map_err(Trouble::Refused)?;
        let endpoints = channels::endpoints(&keys.endpoints).map_err(Trouble::Refused)?;
        let tls = keys.endpoints.tls.clone();
        // The connections belong to the runtime that makes them.
        let connect = async move { channels::connect(&endpoints, tls.as_ref()) };
        let channels = aside.ask(ANSWER, connect);
        let channels = channels.ok_or_else(|| Trouble::Away("no connection".to_owned()))?;
        let pass = Pass::new(keys.endpoints.account.clone());
        let (first, is_plain) = (AtomicUsize::new(channels.len()), keys.endpoints.tls.is_none());
        Ok(Self { aside, channels, pass, first, is_plain })
    }

    /// The token that this client sends.
    #[cfg(test)]
    pub(super) fn token(&self) -> Option<Vec<u8>> {
        self.pass.token()
    }

    /// Asks one endpoint after the other until one answers.
    fn call<T, F>(
        &self,
        limit: Duration,
        ask: impl Fn(Line) -> F + Send + Sync + 'static,
    ) -> Result<T, Trouble>
    where
        T: Send + 'static,
        F: Future<Output = Result<Response<T>, Status>> + Send + 'static,
    {
        let (channels, pass) = (self.channels.clone(), self.pass.clone());
        let (count, first) = (channels.len(), self.first.load(Ordering::Relaxed));
        let (tries, is_plain, has_answered) = (count * ROUNDS, self.is_plain, first < count);
        let all = async move {
            let mut why = "it does not answer".to_owned();
            for at in 0..tries {
                if at > 0 && at % count == 0 {
                    tokio::time::sleep(BETWEEN_ROUNDS).await;
                }
                let chosen = (first + at) % count;
                match pass.ask(&channels[chosen], limit, &ask).await {
                    Ok(answer) => return Ok((chosen, answer.into_inner())),
                    Err(status) => match trouble(&status) {
                        Trouble::Away(text) => why = text,
                        trouble => return Err(trouble),
                    },
                }
            }
            let hint = match is_plain {
                _ if has_answered => None,
                // A member that expects TLS closes the connection without a message.
                true => {
                    (!why.contains("refused") && !why.contains("no answer")).then_some(ENCRYPTED)
                }
                false => suspected(&why),
            };
            Err(Trouble::Away(hint.map_or(why.clone(), |hint| format!("{why}: {hint}"))))
        };
        let tries = u32::try_from(tries).unwrap_or(u32::MAX);
        let longest = self.pass.longest(limit) * tries + BETWEEN_ROUNDS * 2;
        let asked = self.aside.ask(longest, all);
        let (chosen, answer) =
            asked.unwrap_or_else(|| Err(Trouble::Away("it does not answer".to_owned())))?;
        self.first.store(chosen, Ordering::Relaxed);
        Ok(answer)
    }

    /// Runs one transaction. Returns whether all comparisons held, and the results of `success` or
    /// `failure`.
    pub(super) fn transact(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> Result<(bool, Vec<Vec<KeyValue>>), Trouble> {
        let request = TxnRequest { compare, success, failure };
        let ask = move |line| {
            let request = request.clone();
            async move { KvClient::new(line).txn(request).await }
        };
        let answer: TxnResponse = self.call(ANSWER, ask)?;
        let found = answer.responses.into_iter().map(|response| match response.response {
            Some(Done::ResponseRange(range)) => range.kvs,
            _ => Vec::new(),
        });
        Ok((answer.succeeded, found.collect()))
    }

    /// The contents of several ranges at one moment.
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
        let ask = move |line| async move { LeaseClient::new(line).lease_grant(request).await };
        let granted: LeaseGrantResponse = self.call(ANSWER, ask)?;
        match granted.error.is_empty() {
            true => Ok(granted.id),
            false => Err(Trouble::Refused(granted.error)),
        }
    }

    /// Renews a lease, or reports that it has ended.
    pub(super) fn keep_alive(&self, id: i64, limit: Duration) -> Result<(), Trouble> {
        let ask = move |line| async move {
            let once = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut answers = LeaseClient::new(line).lease_keep_alive(once).await?.into_inner();
            let answer = answers.message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unavailable("no answer"))
        };
        let answer: LeaseKeepAliveResponse = self.call(limit, ask)?;
        if answer.ttl > 0 { Ok(()) } else { Err(Trouble::Ended) }
    }

    pub(super) fn revoke(&self, id: i64) -> Result<(), Trouble> {
        let request = LeaseRevokeRequest { id };
        let ask = move |line| async move { LeaseClient::new(line).lease_revoke(request).await };
        self.call(ANSWER, ask).map(drop)
    }

    /// The version, how many members answer at the endpoints, and how many members there are.
    pub(super) fn engine(&self) -> Result<(String, usize, usize), Trouble> {
        let ask =
            |line| async move { ClusterClient::new(line).member_list(MemberListRequest {}).await };
        let members = self.call(ANSWER, ask)?.members.len();
        let (mut versions, mut answering) = (BTreeSet::new(), BTreeSet::new());
        for channel in self.channels.clone() {
            let pass = self.pass.clone();
            let ask = async move {
                let status = |line| async move {
                    MaintenanceClient::new(line).status(StatusRequest {}).await
                };
                pass.ask(&channel, ANSWER, &status).await
            };
            if let Some(Ok(status)) = self.aside.ask(self.pass.longest(ANSWER), ask) {
                let status = status.into_inner();
                answering.insert(status.header.unwrap_or_default().member_id);
                versions.insert(status.version);
            }
        }
        let versions: Vec<String> = versions.into_iter().collect();
        Ok((versions.join(" and "), answering.len(), members))
    }
}

/// Classifies a refusal.
fn trouble(status: &Status) -> Trouble {
    let said = status.message();
    // The innermost source is the system's message.
    let sources = std::iter::successors(std::error::Error::source(status), |it| it.source());
    let text = sources.last().map_or_else(|| said.to_owned(), |inner| format!("{said}: {inner}"));
    let text = match remedy(status).or_else(|| unsigned(status)) {
        Some(remedy) => format!("{text}: {remedy}"),
        None => text,
    };
    let is_too_large =
        ["request is too large", "larger than max"].iter().any(|part| said.contains(part));
    match status.code() {
        Code::NotFound if said.contains("lease not found") => Trouble::Ended,
        _ if is_too_large => Trouble::Refused(too_large()),
        // A full disk quota is permanent; too many requests are not.
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

/// All keys with this prefix, whose last byte can be incremented.
pub(super) fn below(prefix: Vec<u8>) -> RequestOp {
    let mut range_end = prefix.clone();
    if let Some(last) = range_end.last_mut() {
        *last = last.saturating_add(1);
    }
    RequestOp { request: Some(Op::RequestRange(RangeRequest { key: prefix, range_end })) }
}

/// Writes a key, bound to a lease unless that is 0.
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

/// Whether a key still has this revision; 0 means that the key does not exist.
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
