//! The coordinator's end of a worker's connection: greeting, reports, farewell.

use crate::error::{Error, Result};
use crate::net::coordinator::core_handle::{CoreHandle, Session};
use crate::net::identity::certificate::{names_worker, shown_by};
use crate::net::outside;
use crate::net::transport::close::Close;
use crate::net::transport::shared_memory::{Lender, SharedMemory};
use crate::net::transport::wire;
use crate::proto::frame;
use crate::proto::membership::{Join, Parting};
use crate::proto::message::{
    AttemptId, Heartbeat, Hello, Kind, Loaded, Place, VERSION, VERSION_MIN, Versions, Welcome,
};
use crate::proto::state::SessionId;
use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time for the greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the end of the reports to the end of the connection.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(200);
/// Most characters of the name of a worker's machine, and of its version.
const MACHINE_CHARS_MAX: usize = 128;
const VERSION_CHARS_MAX: usize = 64;
/// Most slots that a worker may claim.
const SLOTS_MAX: u32 = 4096;

/// Serves a worker's connection until it ends.
pub(crate) async fn serve(
    core: Arc<CoreHandle>,
    connection: Connection,
    epoch: u64,
    heartbeat: Duration,
    lender: Option<Arc<Lender>>,
) {
    let addr = connection.remote_address();
    let shared_memory = Arc::new(SharedMemory::default());
    // Every worker gets the offer; only one on this machine can accept it.
    let invitation = lender.map(|lender| lender.invite(&shared_memory));
    let link = invitation.as_ref().map(|invitation| invitation.offer.clone());
    let greeted = match tokio::time::timeout(GREETING_TIMEOUT, greet(&connection)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err((close, error))) => {
            tracing::warn!(%addr, %error, "worker refused");
            return connection.close(close.code(), close.reason().as_bytes());
        }
        Err(_) => return connection.close(Close::Late.code(), Close::Late.reason().as_bytes()),
    };
    let Greeted { join, version, reports, mut control } = greeted;
    let name = join.id.clone();
    let (orders, frames) = mpsc::unbounded_channel();
    let session = Session::new(connection.clone(), orders, Arc::clone(&shared_memory));
    let (number, stint) = match core.join(join, session) {
        Ok(joined) => joined,
        Err(close) => return connection.close(close.code(), close.reason().as_bytes()),
    };
    let heartbeat_ms = u32::try_from(heartbeat.as_millis()).unwrap_or(u32::MAX);
    let welcome = Welcome { version, epoch, heartbeat_ms, link, stint };
    let welcomed = wire::write_report(&mut control, Kind::Welcome, &welcome);
    if let Err(error) = wire::taken(welcomed).await {
        tracing::warn!(%addr, %error, "a worker was not welcomed");
        core.leave(number, &connection, Parting::Broken);
        return;
    }
    tracing::info!(worker = %name, %addr, "worker joined");
    let writer = tokio::spawn(outside::here(write_control(control, frames)));
    let error = listen(&core, number, reports, &shared_memory).await;
    writer.abort();
    if matches!(error, Error::Frame(_)) {
        connection.close(Close::Malformed.code(), Close::Malformed.reason().as_bytes());
    }
    // If a connection ends in order, its stream may end a moment earlier.
    let reason = tokio::time::timeout(FAREWELL_TIMEOUT, connection.closed()).await.ok();
    let parting = parting(reason.as_ref());
    let closed = core.leave(number, &connection, parting);
    connection.close(Close::Silent.code(), Close::Silent.reason().as_bytes());
    match (parting, closed) {
        // This side closes the connection of a worker that says that it leaves.
        (Parting::Farewell, _) | (_, Some(Close::Farewell)) => {
            tracing::info!(worker = %name, %addr, "worker left");
        }
        (_, Some(close)) => {
            tracing::info!(worker = %name, %addr, why = close.reason(), "worker sent away");
        }
        _ => tracing::info!(worker = %name, %addr, ?parting, %error, "worker gone"),
    }
}

fn parting(reason: Option<&ConnectionError>) -> Parting {
    match reason {
        Some(reason) if Close::given_by_peer(reason) == Some(Close::Farewell) => Parting::Farewell,
        Some(ConnectionError::ApplicationClosed(_)) => Parting::Ended,
        _ => Parting::Broken,
    }
}

struct Greeted {
    join: Join,
    version: u32,
    reports: RecvStream,
    control: SendStream,
}

async fn greet(connection: &Connection) -> Result<Greeted, (Close, Error)> {
    let late = |e: quinn::ConnectionError| (Close::Late, wire::lost(e));
    let mut reports = connection.accept_uni().await.map_err(late)?;
    let hello = hello(&mut reports).await?;
    let shown = shown_by(connection);
    if !shown.first().is_some_and(|cert| names_worker(cert, &hello.name)) {
        let what = format!("its certificate is not that of worker {}", hello.name);
        return Err((Close::Identity, Error::Connection(what)));
    }
    let control = connection.open_uni().await.map_err(late)?;
    wire::put_first(&control);
    let version = hello.version_max.min(VERSION);
    let join = Join {
        id: hello.name,
        incarnation: hello.incarnation,
        // A process id means something only on the machine it belongs to.
        pid: connection.remote_address().ip().to_canonical().is_loopback().then_some(hello.pid),
        slots: hello.slots.clamp(1, SLOTS_MAX),
        threads: hello.threads.clamp(1, SLOTS_MAX),
        status: hello.status,
        input_bytes_max: hello.input_bytes_max,
        machine: hello.machine.chars().take(MACHINE_CHARS_MAX).collect(),
        version: hello.build.chars().take(VERSION_CHARS_MAX).collect(),
        stint: hello.stint,
    };
    Ok(Greeted { join, version, reports, control })
}

/// The worker's first frame. Its versions are checked first: the rest may be of another version.
async fn hello(reports: &mut RecvStream) -> Result<Hello, (Close, Error)> {
    let malformed = |e: Error| (Close::Malformed, e);
    let (kind, header) = wire::read_report(reports).await.map_err(malformed)?;
    if kind != Kind::Hello {
        let given = format!("{kind:?}").to_lowercase();
        return Err(malformed(frame::FrameError::Unexpected { expected: "hello", given }.into()));
    }
    let decoded = frame::decode::<Versions>(kind, &header);
    let Versions { min, max } = decoded.map_err(|e| malformed(e.into()))?;
    if max < VERSION_MIN || min > VERSION {
        let what = format!("it speaks versions {min} to {max}, not {VERSION_MIN} to {VERSION}");
        return Err((Close::Version, Error::Connection(what)));
    }
    frame::decode(kind, &header).map_err(|e| malformed(e.into()))
}

async fn write_control(mut control: SendStream, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if control.write_all(&frame).await.is_err() {
            return;
        }
    }
}

/// Passes the worker's reports on until its stream ends; returns why it ended.
async fn listen(
    core: &Arc<CoreHandle>,
    session: SessionId,
    mut reports: RecvStream,
    shared_memory: &SharedMemory,
) -> Error {
    loop {
        let (kind, header) = match wire::read_report(&mut reports).await {
            Ok(report) => report,
            Err(error) => return error,
        };
        if kind == Kind::Heartbeat {
            let transport = shared_memory.tidy();
            core.with(|core, _| core.carried_by(session, transport));
        }
        if let Err(error) = pass_on(core, session, kind, &header) {
            return error;
        }
    }
}

fn pass_on(core: &Arc<CoreHandle>, session: SessionId, kind: Kind, header: &[u8]) -> Result<()> {
    match kind {
        Kind::Heartbeat => {
            let heartbeat: Heartbeat = frame::decode(kind, header)?;
            core.with(|core, now| core.heartbeat(now, session, heartbeat));
        }
        Kind::Released => {
            let id: AttemptId = frame::decode(kind, header)?;
            core.with(|core, now| core.released(now, session, id));
        }
        Kind::Loaded => {
            let Loaded { device, model, result, took_us } = frame::decode(kind, header)?;
            let took = took_us.map(Duration::from_micros);
            core.with(|core, now| core.loaded(now, session, device, &model, result, took));
        }
        Kind::Unloaded => {
            let Place { device, model } = frame::decode(kind, header)?;
            core.with(|core, now| core.unloaded(now, session, device, &model));
        }
        Kind::Draining => core.with(|core, _| core.worker_leaves(session)),
        other => {
            let given = format!("{other:?}").to_lowercase();
            return Err(frame::FrameError::Unexpected { expected: "report", given }.into());
        }
    }
    Ok(())
}
