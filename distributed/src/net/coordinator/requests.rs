//! Responds to what workers ask besides their work: new certificates, models' files and large inputs.

use crate::error::Result;
use crate::net::coordinator::exchange::completion;
use crate::net::coordinator::gate::Gate;
use crate::net::identity::enrol::JoinRefusal;
use crate::net::identity::members::Connected;
use crate::net::identity::renew;
use crate::net::outside;
use crate::net::transfer::models;
use crate::net::transfer::tensors::{self, Peer};
use crate::net::transport::rpc::{self, Ask};
use crate::net::transport::shared_memory::SharedMemory;
use crate::net::transport::wire;
use crate::net::transport::wire::Start;
use crate::proto::message::{Kind, OutcomeHeader};
use quinn::{Connection, RecvStream, SendStream};
use std::sync::Arc;
use std::time::Duration;

/// Requests that a worker may have open at once.
pub(crate) const ASKS_MAX: u32 = 4;
/// Time for a request to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a worker's requests until its connection ends.
pub(crate) async fn serve(gate: Arc<Gate>, visit: Arc<Connected>) {
    while let Ok((send, recv)) = visit.connection().accept_bi().await {
        let (gate, visit) = (Arc::clone(&gate), Arc::clone(&visit));
        tokio::spawn(outside::here(async move {
            if let Err(error) = answer(&gate, &visit, send, recv).await {
                let addr = visit.connection().remote_address();
                tracing::warn!(%addr, %error, "a request got no response");
            }
        }));
    }
}

async fn answer(
    gate: &Gate,
    visit: &Connected,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<()> {
    let request = tokio::time::timeout(TIMEOUT, rpc::read(&mut recv)).await;
    match request.map_err(|_| wire::lost("a request took too long"))?? {
        Ask::Renew { name, csr } => {
            let answer = match visit.member().name == name {
                true => renew::certify(gate, visit, csr).await,
                false => Err(JoinRefusal::NameTaken { name: name.to_string() }),
            };
            rpc::respond(&mut send, &answer).await
        }
        Ask::Blob { sha256, offset } => {
            models::send(gate.services.models.clone(), sha256, offset, send).await
        }
        Ask::Tensors(range) => tensors::send(&gate.shared.offers, range, &mut send).await,
        Ask::Outcome => {
            outcome(gate, visit.connection(), &mut recv).await?;
            rpc::respond(&mut send, &()).await
        }
    }
}

/// Takes the outcome of an attempt whose own stream was lost with an earlier connection.
async fn outcome(gate: &Gate, connection: &Connection, recv: &mut RecvStream) -> Result<()> {
    let start = Start::read(recv).await?;
    let header: OutcomeHeader = start.header(Kind::Outcome, "outcome")?;
    let id = header.id;
    // An attempt of a connection that has ended does not belong to this one.
    let session = gate.shared.session_of(connection);
    let session = session.ok_or_else(|| wire::lost("an outcome before the greeting"))?;
    if header.blob.is_some() {
        gate.shared.with(|core, _| core.answering(session, id));
    }
    let from = (&*gate.shared.collected, Peer::Worker(connection));
    let (completion, room) =
        completion(start, header, recv, &SharedMemory::default(), from).await?;
    gate.shared.complete(session, id, completion);
    gate.shared.keep_room(id.seq, room);
    Ok(())
}
