//! The coordinator's end of a worker's connection: greeting, reports, farewell.

use crate::error::{Error, Result};
use crate::net::close::Close;
use crate::net::lane::{Berth, Door};
use crate::net::shared::{Session, Shared};
use crate::net::{tls, wire};
use crate::proto::frame;
use crate::proto::membership::Join;
use crate::proto::message::{
    AttemptId, Heartbeat, Hello, Kind, LaneOffer, Loaded, Place, VERSION, VERSION_MIN, Versions,
    Welcome,
};
use crate::proto::state::SessionId;
use quinn::{Connection, RecvStream, SendStream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Time for the greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the end of the reports to the end of the connection.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(200);
/// Slots that are believed of a worker.
const SLOTS_MAX: u32 = 4096;

/// Serves a worker's connection until it ends.
pub(super) async fn serve(
    shared: Arc<Shared>,
    connection: Connection,
    epoch: u64,
    heartbeat: Duration,
    door: Option<Arc<Door>>,
) {
    let addr = connection.remote_address();
    let berth = Arc::new(Berth::default());
    // Every worker is told; only one on this machine can come.
    let invitation = door.map(|door| door.invite(&berth));
    let lane = invitation.as_ref().map(|invitation| invitation.offer.clone());
    let greeting = greet(&connection, epoch, heartbeat, lane);
    let greeted = match tokio::time::timeout(GREETING_TIMEOUT, greeting).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err((close, error))) => {
            tracing::warn!(%addr, %error, "worker refused");
            return connection.close(close.code(), close.reason().as_bytes());
        }
        Err(_) => return connection.close(Close::Late.code(), Close::Late.reason().as_bytes()),
    };
    let name = greeted.join.id.clone();
    let (control, frames) = mpsc::unbounded_channel();
    let session = Session::new(connection.clone(), control, Arc::clone(&berth));
    let number = match shared.join(greeted.join, session) {
        Ok(number) => number,
        Err(close) => return connection.close(close.code(), close.reason().as_bytes()),
    };
    tracing::info!(worker = %name, %addr, "worker joined");
    let writer = tokio::spawn(write_control(greeted.control, frames));
    let error = listen(&shared, number, greeted.reports, &berth).await;
    writer.abort();
    if matches!(error, Error::Frame(_)) {
        connection.close(Close::Malformed.code(), Close::Malformed.reason().as_bytes());
    }
    // Of a connection that ends in order, the stream may end a moment earlier.
    let reason = tokio::time::timeout(FAREWELL_TIMEOUT, connection.closed()).await;
    let farewell = reason.is_ok_and(|r| Close::given_by_peer(&r) == Some(Close::Farewell));
    shared.leave(number, farewell);
    connection.close(Close::Silent.code(), Close::Silent.reason().as_bytes());
    tracing::info!(worker = %name, %addr, farewell, %error, "worker gone");
}

struct Greeted {
    join: Join,
    reports: RecvStream,
    control: SendStream,
}

async fn greet(
    connection: &Connection,
    epoch: u64,
    heartbeat: Duration,
    lane: Option<LaneOffer>,
) -> Result<Greeted, (Close, Error)> {
    let late = |e: quinn::ConnectionError| (Close::Late, wire::lost(e));
    let mut reports = connection.accept_uni().await.map_err(late)?;
    let hello = hello(&mut reports).await?;
    let shown = tls::shown_by(connection);
    if !shown.first().is_some_and(|cert| tls::names_worker(cert, &hello.name)) {
        let what = format!("its certificate is not that of worker {}", hello.name);
        return Err((Close::Identity, Error::Connection(what)));
    }
    let heartbeat_ms = u32::try_from(heartbeat.as_millis()).unwrap_or(u32::MAX);
    let welcome = Welcome { version: hello.version_max.min(VERSION), epoch, heartbeat_ms, lane };
    let mut control = connection.open_uni().await.map_err(late)?;
    wire::put_first(&control);
    wire::write_report(&mut control, Kind::Welcome, &welcome)
        .await
        .map_err(|e| (Close::Late, e))?;
    let join = Join {
        id: hello.name,
        incarnation: hello.incarnation,
        // A process id means something only on the machine it belongs to.
        pid: connection.remote_address().ip().to_canonical().is_loopback().then_some(hello.pid),
        slots: hello.slots.clamp(1, SLOTS_MAX),
        threads: hello.threads.clamp(1, SLOTS_MAX),
        status: hello.status,
        input_bytes_max: hello.input_bytes_max,
    };
    Ok(Greeted { join, reports, control })
}

/// The worker's first word. Its versions are looked at first: the rest may be of another one.
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

/// Passes on what the worker reports until its stream ends; answers why it ended.
async fn listen(
    shared: &Arc<Shared>,
    session: SessionId,
    mut reports: RecvStream,
    berth: &Berth,
) -> Error {
    loop {
        let (kind, header) = match wire::read_report(&mut reports).await {
            Ok(report) => report,
            Err(error) => return error,
        };
        if kind == Kind::Heartbeat {
            let transport = berth.tidy();
            shared.with(|core, _| core.carried_by(session, transport));
        }
        if let Err(error) = pass_on(shared, session, kind, &header) {
            return error;
        }
    }
}

fn pass_on(shared: &Arc<Shared>, session: SessionId, kind: Kind, header: &[u8]) -> Result<()> {
    match kind {
        Kind::Heartbeat => {
            let heartbeat: Heartbeat = frame::decode(kind, header)?;
            shared.with(|core, now| core.heartbeat(now, session, heartbeat));
        }
        Kind::Released => {
            let id: AttemptId = frame::decode(kind, header)?;
            shared.with(|core, now| core.released(now, session, id));
        }
        Kind::Loaded => {
            let Loaded { device, model, result, took_us } = frame::decode(kind, header)?;
            let took = took_us.map(Duration::from_micros);
            shared.with(|core, now| core.loaded(now, session, device, &model, result, took));
        }
        Kind::Unloaded => {
            let Place { device, model } = frame::decode(kind, header)?;
            shared.with(|core, now| core.unloaded(now, session, device, &model));
        }
        Kind::Draining => shared.with(|core, _| core.worker_leaves(session)),
        other => {
            let given = format!("{other:?}").to_lowercase();
            return Err(frame::FrameError::Unexpected { expected: "report", given }.into());
        }
    }
    Ok(())
}
