//! Attempts that come over the link with a coordinator of the same machine.

use crate::error::Result;
use crate::net::transport::shared_memory::{Letter, Mail};
use crate::net::transport::wire::{self, Start};
use crate::net::worker::attempts::{Hold, Reply};
use crate::net::worker::task::{WorkerSession, outcome, perform};
use crate::proto::message::{Kind, TaskHeader};
use bytes::Bytes;
use std::sync::Arc;

/// Begins attempts as they come, until the link or the connection ends. What runs then goes on.
pub(crate) async fn accept(session: Arc<WorkerSession>) {
    let mut mail = match Mail::of(&session.shared_memory).await {
        Ok(mail) => mail,
        Err(error) => return tracing::warn!(%error, "the link is not used"),
    };
    while let Some(letter) = mail.next().await {
        match letter {
            Letter::Task(id, frame) => {
                // Held before the next letter is read, which may cancel it.
                let hold = session.attempts.hold(id);
                tokio::spawn(work(Arc::clone(&session), hold, frame));
            }
            Letter::Cancel(id) => session.attempts.stop(id),
            // No coordinator says that.
            Letter::Outcome(..) | Letter::Broken(_) => {}
        }
    }
}

async fn work(session: Arc<WorkerSession>, hold: Hold, frame: Bytes) {
    let id = hold.id;
    let released = || session.report(Kind::Released, &id);
    // Boxed, as it is for a stream.
    let performing = Box::pin(run(&session, &hold, frame));
    let reply = match performing.await {
        Ok(reply) => reply,
        Err(error) => {
            tracing::debug!(%error, "task given up");
            released();
            if hold.stage.is_wanted() {
                session.shared_memory.give_up(id);
            }
            return;
        }
    };
    if !hold.stage.is_wanted() {
        return released();
    }
    // What does not go over the link is brought over the connection, or over the next one.
    if !answer(&session, &reply).await {
        session.attempts.keep(hold, reply);
    }
}

async fn run(session: &Arc<WorkerSession>, hold: &Hold, frame: Bytes) -> Result<Reply> {
    let start = Start::whole(frame)?;
    let header: TaskHeader = start.header(Kind::Task, "task")?;
    if header.id != hold.id {
        return Err(wire::lost(format!("the task is {:?}, not {:?}", header.id, hold.id)));
    }
    perform(session, hold, start, header, (None, None)).await
}

/// Whether the coordinator has the answer.
async fn answer(session: &WorkerSession, reply: &Reply) -> bool {
    if reply.offer.is_some() || !session.shared_memory.is_linked() {
        return false;
    }
    let frame = outcome(session, reply).await;
    frame.is_ok_and(|frame| session.shared_memory.answer(reply.header.id, &frame))
}
