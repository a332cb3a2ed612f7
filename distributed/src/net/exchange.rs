//! One attempt on its stream: the request goes out, the answer comes back.

use crate::error::Result;
use crate::net::close::CANCELLED;
use crate::net::lane::Berth;
use crate::net::large::Offers;
use crate::net::shared::Shared;
use crate::net::wire::{self, Start};
use crate::proto::frame::BODY_BYTES_MAX;
use crate::proto::message::{AttemptId, Kind, OutcomeHeader, TaskHeader, Verdict};
use crate::proto::state::{Completion, SessionId};
use crate::proto::tensors::describe_any;
use crate::task::{ModelRef, TaskSpec};
use quinn::{Connection, RecvStream, SendStream};
use std::sync::Arc;
use std::time::Duration;

/// Carries an attempt to a device of its worker and the answer back to the core.
///
/// Dropped early (the attempt was cancelled), it resets the request and stops the answer.
pub(super) async fn run(
    shared: Arc<Shared>,
    connection: Connection,
    to: (SessionId, u32),
    id: AttemptId,
    model: Arc<ModelRef>,
    spec: Arc<TaskSpec>,
    berth: Arc<Berth>,
) {
    let (session, device) = to;
    let mut exchange = match Exchange::open(&connection).await {
        Ok(exchange) => exchange,
        Err(error) => return shared.broken(&connection, session, id, &error),
    };
    match exchange.perform(&shared.offers, id, device, &model, &spec, &berth).await {
        Ok(completion) => {
            shared.complete(session, id, completion);
            wire::read_end(&mut exchange.recv).await;
            exchange.answered = true;
        }
        Err(error) => shared.broken(&connection, session, id, &error),
    }
}

struct Exchange {
    send: SendStream,
    recv: RecvStream,
    sent: bool,
    answered: bool,
}

impl Exchange {
    async fn open(connection: &Connection) -> Result<Self> {
        let (send, recv) = connection.open_bi().await.map_err(wire::lost)?;
        Ok(Self { send, recv, sent: false, answered: false })
    }

    async fn perform(
        &mut self,
        offers: &Arc<Offers>,
        id: AttemptId,
        device: u32,
        model: &ModelRef,
        spec: &Arc<TaskSpec>,
        berth: &Berth,
    ) -> Result<Completion> {
        let (tensors, body_bytes) = describe_any(&spec.inputs)?;
        // Stands until the attempt has ended.
        let offer = match body_bytes > BODY_BYTES_MAX {
            true => Some(offers.offer(spec).await?),
            false => None,
        };
        let blob = offer.as_ref().map(|offer| offer.blob);
        let shared = match blob {
            Some(_) => None,
            None => berth.lend(id, &spec.inputs, body_bytes).await,
        };
        let (inputs, body_bytes) = match (shared, blob) {
            (None, None) => (&*spec.inputs, body_bytes),
            _ => (&[][..], 0),
        };
        let (priority, model) = (spec.priority, model.clone());
        let header = TaskHeader { id, device, priority, model, tensors, shared, blob };
        let mut chunks = wire::chunks(Kind::Task, &header, inputs, body_bytes)?;
        self.send.write_all_chunks(&mut chunks).await.map_err(wire::lost)?;
        self.send.finish().map_err(wire::lost)?;
        self.sent = true;
        let start = Start::read(&mut self.recv).await?;
        let header: OutcomeHeader = start.header(Kind::Outcome, "outcome")?;
        if header.id != id {
            let reason = format!("the answer is for {:?}, not for {id:?}", header.id);
            return Err(crate::error::Error::Connection(reason));
        }
        let model = Duration::from_micros(header.model_us);
        Ok(match header.verdict {
            Verdict::Done(metas) => {
                let (recv, shared) = (&mut self.recv, header.shared);
                let outputs = start.tensors_from(berth, recv, id, metas, shared).await?;
                Completion::Done { outputs, model, batch: header.batch }
            }
            Verdict::Error(error) => Completion::Error { error, model },
            Verdict::Refused => Completion::Refused,
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // Both fail only where there is nothing left to stop.
        if !self.sent {
            let _ = self.send.reset(CANCELLED);
        }
        if !self.answered {
            let _ = self.recv.stop(CANCELLED);
        }
    }
}
