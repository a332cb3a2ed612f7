//! The coordinator's side of a meeting: ranks come, wait, and are told where the others are.

use crate::error::Result;
use crate::net::transport::rpc;
use crate::proto::rendezvous::{Claim, Meeting, MeetingRefusal, Rendezvous};
use quinn::Connection;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Time for a rank to say who it is, and for the answer to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest that a rank waits for others.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);

type Answer = Result<Meeting, MeetingRefusal>;

/// The ranks that wait for others.
#[derive(Default)]
pub(crate) struct Meetings {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rendezvous: Rendezvous,
    waiting: HashMap<u64, oneshot::Sender<Meeting>>,
    visitors: u64,
}

impl Meetings {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each step leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank's place among those that wait, given up when dropped.
struct Connected<'a> {
    meetings: &'a Meetings,
    claim: &'a Claim,
    number: u64,
}

impl Connected<'_> {
    /// Ends the wait; returns the missing ranks.
    fn end(&self) -> Vec<u32> {
        let mut state = self.meetings.lock();
        state.waiting.remove(&self.number);
        state.rendezvous.leave(self.number, self.claim)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves a rank's connection until it has its answer.
pub(crate) async fn serve(meetings: Arc<Meetings>, connection: Connection) {
    let addr = connection.remote_address();
    let asked = tokio::time::timeout(TIMEOUT, rpc::accept::<Claim>(&connection)).await;
    let (claim, mut send) = match asked {
        Ok(Ok(asked)) => asked,
        Ok(Err(error)) => return tracing::warn!(%addr, %error, "a rank asked nothing"),
        Err(_) => return tracing::warn!(%addr, "a rank asked nothing in time"),
    };
    let Some(answer) = meet(&meetings, &claim, &connection).await else { return };
    match &answer {
        Ok(_) => tracing::info!(%addr, group = claim.group, rank = claim.rank, "ranks met"),
        Err(refusal) => tracing::warn!(%addr, %refusal, "a rank does not meet others"),
    }
    if rpc::respond(&mut send, &answer).await.is_ok() {
        // The connection ends when this function does.
        let _ = tokio::time::timeout(TIMEOUT, send.stopped()).await;
    }
}

/// Waits for the other ranks; `None` when this rank is gone.
async fn meet(meetings: &Meetings, claim: &Claim, connection: &Connection) -> Option<Answer> {
    // The rank listens on the socket of this connection, so others reach it at this address.
    let mut addr = connection.remote_address();
    addr.set_ip(addr.ip().to_canonical());
    let (sender, told) = oneshot::channel();
    let visit = {
        let mut state = meetings.lock();
        state.visitors += 1;
        let number = state.visitors;
        let arrived = state.rendezvous.arrive(number, claim, addr, rand::random());
        state.waiting.insert(number, sender);
        match arrived {
            Ok(None) => {}
            Ok(Some((meeting, visitors))) => {
                for sender in visitors.iter().filter_map(|v| state.waiting.remove(v)) {
                    // A rank that is gone will be missed by its neighbours.
                    let _ = sender.send(meeting.clone());
                }
            }
            Err(refusal) => {
                state.waiting.remove(&number);
                return Some(Err(refusal));
            }
        }
        Connected { meetings, claim, number }
    };
    let patience = Duration::from_millis(claim.patience_ms.into()).min(PATIENCE_MAX);
    tokio::select! {
        // A rank that has met the others is told so, even if its time ends in the same moment.
        biased;
        meeting = told => meeting.ok().map(Ok),
        _ = connection.closed() => None,
        () = tokio::time::sleep(patience) => {
            let (group, missing) = (claim.group.clone(), visit.end());
            Some(Err(MeetingRefusal::Missing { group, missing }))
        }
    }
}
