//! The listener for Frigate's detector `zmq`: ZeroMQ's request and reply over TCP. It listens on loopback only,
//! because this protocol has neither keys nor encryption.

mod boxes;
mod detect;
mod models;
mod push;
mod zmtp;

use crate::access::NO_KEY;
use crate::bodies::Room;
use crate::call::Call;
use crate::catalog::ModelEntry;
use crate::error::Result;
use crate::extract::{Pace, make_room};
use crate::fault::Fault;
use crate::faults::disk;
use crate::serve::{Activity, Connections, check_loopback};
use crate::state::ServerState;
use boxes::Rows;
use detect::Header;
#[cfg(feature = "planted")]
pub(crate) use detect::can_read;
use models::{Incoming, Turns};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tracing::Instrument;
use zmtp::{Peer, broken};

/// The most connected detectors; beyond it, an idle one is disconnected.
const CONNECTIONS_MAX: usize = 64;
/// The pause after a failed accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// The largest description; usual ones have a few dozen bytes.
const HEADER_BYTES_MAX: u64 = 64 << 10;
/// The time limit of a pushed model: this many times the stall limit of a body, plus the time of its bytes at this
/// rate.
const PUSH_STALLS: u32 = 10;
const PUSH_BYTES_PER_S: u64 = 16 << 20;

/// Serves Frigate's detector until `shutdown` resolves. A request that takes longer than the config's
/// `frigate_timeout_ms` gets an answer without boxes.
///
/// # Errors
/// [`Error::NoCredentials`] unless the listener is bound to a loopback address.
pub async fn serve_frigate(
    listener: TcpListener,
    state: ServerState,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<()> {
    check_loopback(&listener, "Frigate's detector")?;
    let connections = Connections::new(CONNECTIONS_MAX);
    let turns = Turns::default();
    let mut sessions = JoinSet::new();
    {
        let accepted = accept(&listener, &connections);
        tokio::pin!(shutdown, accepted);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                _ = sessions.join_next(), if !sessions.is_empty() => {}
                (stream, place) = &mut accepted => {
                    let session = Session::new(state.clone(), turns.clone());
                    sessions.spawn(async move {
                        if let Err(error) = session.attend(stream, &place).await {
                            tracing::warn!(%error, "a detector's connection ended");
                        }
                    });
                    accepted.set(accept(&listener, &connections));
                }
            }
        }
    }
    drop(listener);
    state.close();
    let drain = Duration::from_millis(state.config().drain_timeout_ms);
    // Sessions that are still open after that are dropped with the set.
    let _ =
        tokio::time::timeout(drain, async { while sessions.join_next().await.is_some() {} }).await;
    Ok(())
}

/// Accepts the next connection, once there is room for it.
async fn accept(listener: &TcpListener, connections: &Connections) -> (TcpStream, Arc<Activity>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, connections.room().await),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// One detector's connection. A detector uses one model and asks for it first.
struct Session {
    state: ServerState,
    turns: Turns,
    /// The model's name, without a version, because versions change.
    model: Option<String>,
    /// The last error that was logged, because a camera's next images repeat it.
    said: String,
}

enum Request {
    Model(String),
    Sent(String, std::result::Result<Incoming, Fault>),
    Image(Header, Vec<u8>, Room),
    Refused(Fault),
}

impl Session {
    fn new(state: ServerState, turns: Turns) -> Self {
        Self { state, turns, model: None, said: String::new() }
    }

    async fn attend(mut self, stream: TcpStream, place: &Arc<Activity>) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let state = self.state.clone();
        let greeting = Duration::from_millis(state.config().header_timeout_ms);
        let stall = state.config().body_timeout();
        let mut peer = tokio::time::timeout(greeting, Peer::greet(stream)).await??;
        loop {
            let more = tokio::select! {
                more = peer.wait() => more?,
                () = state.closing() => false,
                () = place.asked_to_leave() => false,
            };
            if !more {
                return Ok(());
            }
            let _under_way = place.begin();
            let request = self.receive(&mut peer).await?;
            let answer = self.answer(request).await?;
            tokio::time::timeout(stall, peer.answer(&answer)).await??;
        }
    }

    /// Receives a request. Reads past a payload that is refused, so that the next request is found.
    async fn receive(&self, peer: &mut Peer<TcpStream>) -> std::io::Result<Request> {
        let config = self.state.config();
        let stall = config.body_timeout();
        let (header, part) = tokio::time::timeout(stall, described(peer)).await??;
        let Some(part) = part else {
            return Ok(match header {
                Ok(header) if header.model_request => Request::Model(header.model_name),
                Ok(_) => Request::Refused(Fault::bad_input("a description without a tensor")),
                Err(fault) => Request::Refused(fault),
            });
        };
        let most = u64::try_from(config.body_bytes_max).unwrap_or(u64::MAX);
        let fault = match header {
            Ok(header) if header.model_data => {
                let model = self.receive_model(peer, part, &header.model_name).await?;
                return Ok(Request::Sent(header.model_name, model));
            }
            Ok(header) => {
                let mut room = self.state.bodies().room_of(NO_KEY);
                // A tensor that is too large is refused before it waits for room.
                let bytes = usize::try_from(part.bytes().min(most)).unwrap_or(usize::MAX);
                match make_room(&self.state, &mut room, bytes).await {
                    Ok(()) => {
                        let tensor = tokio::time::timeout(stall, peer.take(part, most)).await??;
                        return Ok(Request::Image(header, tensor, room));
                    }
                    Err(fault) => fault,
                }
            }
            Err(fault) => fault,
        };
        push::pass(peer, (part, most), &mut Pace::new(config)).await?;
        Ok(Request::Refused(fault))
    }

    /// Receives a model, or the reason why it is refused.
    async fn receive_model(
        &self,
        peer: &mut Peer<TcpStream>,
        part: zmtp::Head,
        file: &str,
    ) -> std::io::Result<std::result::Result<Incoming, Fault>> {
        let config = self.state.config();
        let part = (part, config.model_bytes_max);
        part.0.check(part.1)?;
        // Earlier models may take long, so this one's time starts after them.
        let incoming = tokio::select! {
            incoming = Incoming::new(&self.state, &self.turns, file) => incoming,
            () = self.state.closing() => return Err(std::io::ErrorKind::ConnectionAborted.into()),
        };
        let mut pace = Pace::new(config);
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(fault) => return push::pass(peer, part, &mut pace).await.map(|()| Err(fault)),
        };
        // Other models wait meanwhile, and a detector on this machine sends fast.
        let seconds = part.0.bytes() / PUSH_BYTES_PER_S;
        let limit = config.body_timeout() * PUSH_STALLS + Duration::from_secs(seconds);
        let path = incoming.path();
        let taken = push::take_in(peer, part, &mut pace, &path);
        let written = tokio::time::timeout(limit, taken).await??;
        Ok(written.map(|()| incoming).map_err(|error| disk(&error)))
    }

    /// Handles a request and returns the parts of the answer.
    async fn answer(&mut self, request: Request) -> std::io::Result<Vec<Vec<u8>>> {
        let told = |(model, answer): (Option<ModelEntry>, Value)| (model, vec![text(&answer)]);
        let (model, answer) = match request {
            Request::Model(file) => told(models::asked(&self.state, &file).await),
            Request::Sent(file, incoming) => {
                let (model, answer) = models::sent(&self.state, (&file, incoming)).await;
                let status = if model.is_some() { 201 } else { 409 };
                let name = models::registered(&file);
                self.state.access().record(("frigate", "loopback"), ("PUSH", &name), status);
                told((model, answer))
            }
            Request::Image(header, tensor, room) => {
                let Some(model) = &self.model else {
                    // ZeroMQ reconnects by itself and unnoticed. After a disconnect a client asks for its model
                    // again; after an answer it never does.
                    return Err(broken("an image before a model was asked for"));
                };
                let (call, began) = (Call::of_image(self.state.tracing().tracer()), Instant::now());
                let found = self.detect(&call, model, (header, tensor));
                let found = found.instrument(call.span()).await;
                // The room is held while the task has the tensor.
                drop(room);
                call.image_answered(found.as_ref().err(), began.elapsed());
                return Ok(call.span().in_scope(|| self.boxes(found)));
            }
            Request::Refused(fault) => return Ok(self.boxes(Err(fault))),
        };
        self.model = model.map(|entry| entry.name().to_owned());
        Ok(answer)
    }

    async fn detect(
        &self,
        call: &Call,
        model: &str,
        image: (Header, Vec<u8>),
    ) -> std::result::Result<Rows, Fault> {
        let limit = Duration::from_millis(self.state.config().frigate_timeout_ms);
        let entry = self.state.catalog().get(model, None).await?;
        detect::detect(&self.state, (call, &entry), image, limit).await
    }

    /// A client always expects twenty rows; after an error all scores are zero.
    fn boxes(&mut self, found: std::result::Result<Rows, Fault>) -> Vec<Vec<u8>> {
        let mut description = json!({ "shape": [20, 6], "dtype": "float32" });
        let rows = found.unwrap_or_else(|fault| {
            let hint = fault.hint.unwrap_or_default();
            if self.said != fault.message {
                tracing::warn!(error = fault.message, hint, "a detector gets no boxes");
                self.said.clone_from(&fault.message);
            }
            description["error"] = fault.message.into();
            Rows::default()
        });
        let bytes = rows.as_flattened().iter().flat_map(|value| value.to_le_bytes());
        vec![text(&description), bytes.collect()]
    }
}

/// The description of a request, and the part that follows, if any.
async fn described<S: AsyncRead + AsyncWrite + Unpin>(
    peer: &mut Peer<S>,
) -> std::io::Result<(std::result::Result<Header, Fault>, Option<zmtp::Head>)> {
    let head = peer.request().await?;
    let header = peer.take(head, HEADER_BYTES_MAX).await?;
    let header = serde_json::from_slice(&header)
        .map_err(|e| Fault::bad_input(format!("the description is not valid: {e}")));
    if !head.more {
        return Ok((header, None));
    }
    let part = peer.part().await?;
    if part.more {
        return Err(broken("a third part, expected a description and a tensor or a model"));
    }
    Ok((header, Some(part)))
}

/// Whether bytes are a valid session of a detector: a greeting, then requests to the end.
#[cfg(feature = "planted")]
pub(crate) fn can_talk(bytes: &[u8]) -> bool {
    use futures_util::FutureExt;
    let talk = async {
        let mut peer = Peer::greet(tokio::io::join(bytes, tokio::io::sink())).await?;
        while peer.wait().await? {
            let (header, part) = described(&mut peer).await?;
            if let Some(part) = part {
                peer.take(part, HEADER_BYTES_MAX).await?;
            }
            header.map_err(|fault| broken(fault.message))?;
        }
        Ok::<(), std::io::Error>(())
    };
    // All bytes are available, so the session never waits.
    talk.now_or_never().is_some_and(|talked| talked.is_ok())
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
