//! A worker's end of one connection: greeting, heartbeats, orders, farewell.

use crate::config::WorkerConfig;
use crate::error::{Error, Result};
use crate::executor::{Executor, ExecutorStatus};
use crate::net::outside;
use crate::net::transfer::models::Fetcher;
use crate::net::transport::close::Close;
use crate::net::transport::endpoint::streams_for;
use crate::net::transport::shared_memory::{self, SharedMemory};
use crate::net::transport::wire;
use crate::net::worker::attempts::Attempts;
use crate::net::worker::loading::{Order, load_models};
use crate::net::worker::task::{WorkerSession, deliver, work};
use crate::net::worker::{STOP_TIMEOUT, Worker};
use crate::proto::frame;
use crate::proto::message::{AttemptId, Heartbeat, Hello, Kind, VERSION, VERSION_MIN, Welcome};
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

/// Time for the coordinator's welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the coordinator to dismiss a worker that holds nothing any more.
const DISMISSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Most streams that the coordinator may open, however many tasks it gives.
const STREAMS_MAX: u32 = 1 << 17;

/// How a session ended.
pub(crate) enum Ended {
    /// As wanted: by `shutdown`, or because the coordinator asked for it.
    Left,
    Lost {
        error: ConnectionError,
        greeted: bool,
    },
    /// A run does not stop, and ends only with the process.
    Stuck,
}

/// Serves one connection until it ends.
pub(crate) async fn serve(
    connection: &Connection,
    worker: &Worker,
    mut shutdown: Pin<&mut (impl Future<Output = ()> + Send)>,
) -> Ended {
    let greeting = tokio::time::timeout(WELCOME_TIMEOUT, greet(connection, worker));
    let greeted = tokio::select! {
        greeted = greeting => greeted,
        () = shutdown.as_mut() => return Ended::Left,
    };
    let (reports, control, welcome) = match greeted {
        Ok(Ok(streams)) => streams,
        Ok(Err(error)) => return lost(connection, &error, Close::Malformed, false),
        Err(_) => {
            let error = Error::Connection("no welcome".into());
            return lost(connection, &error, Close::Late, false);
        }
    };
    let _serving = worker.served.enter();
    tracing::info!(name = %worker.config.identity.name, "joined the coordinator");
    let (sender, frames) = mpsc::unbounded_channel();
    let attempts = &worker.attempts;
    attempts.connected(sender);
    let fetcher = Fetcher::new(connection.clone(), Arc::clone(&worker.executor));
    let session = Arc::new(WorkerSession::new(worker, fetcher));
    share_memory(&worker.config, &welcome, &session.shared_memory);
    // Attempts of another coordinator, or of this one before it gave the worker up, are useless.
    if !attempts.go_on(welcome.stint) {
        attempts.abandon_all();
    }
    let drain = Arc::new(Notify::new());
    // Dropping the set ends the Tokio tasks of this connection only.
    let mut tasks = JoinSet::new();
    tasks.spawn(write_reports(reports, frames));
    let interval = Duration::from_millis(u64::from(welcome.heartbeat_ms.max(1)));
    tasks.spawn(beat(Arc::clone(&session), interval));
    tasks.spawn(deliver(Arc::clone(&session)));
    tasks.spawn(Arc::clone(&worker.identity).keep_fresh(connection.clone()));
    tasks.spawn(obey(Arc::clone(&session), control, Arc::clone(&drain), connection.clone()));
    // A Tokio task of its own: this future may be the one that the process blocks on, and its
    // thread would have to be woken for every stream.
    let streams = streams_for(worker.config.places_of(worker.queues.len()));
    tasks.spawn(accept(Arc::clone(&session), streams, connection.clone()));
    let error = tokio::select! {
        error = connection.closed() => error,
        () = shutdown.as_mut() => return finish(connection, &session).await,
        () = drain.notified() => return finish(connection, &session).await,
        () = stuck(attempts) => return Ended::Stuck,
        () = session.warm_ups.hung.notified() => return Ended::Stuck,
    };
    match Close::given_by_peer(&error) {
        Some(Close::Farewell) => Ended::Left,
        Some(Close::Replaced) => Ended::Stuck,
        _ => Ended::Lost { error, greeted: true },
    }
}

/// Starts the tasks that the coordinator sends, until the connection ends. The coordinator may open
/// more streams as it sends more tasks, because models may have places of their own.
async fn accept(session: Arc<WorkerSession>, mut streams: u32, connection: Connection) {
    while let Ok((send, recv)) = connection.accept_bi().await {
        let held = u32::try_from(session.attempts.count()).unwrap_or(u32::MAX);
        // Streams that are on their way are not counted yet.
        if held > streams / 2 && streams < STREAMS_MAX {
            streams = streams.saturating_mul(2).min(STREAMS_MAX);
            connection.set_max_concurrent_bi_streams(VarInt::from_u32(streams));
        }
        tokio::spawn(work(Arc::clone(&session), send, recv));
    }
}

/// Resolves when an abandoned run was asked to stop and goes on all the same.
async fn stuck(attempts: &Attempts) {
    tokio::time::sleep(STOP_TIMEOUT).await;
    if !attempts.holds_abandoned() {
        std::future::pending().await
    }
}

/// Accepts the coordinator's invitation to share memory, if it is on this machine.
fn share_memory(config: &WorkerConfig, welcome: &Welcome, shared_memory: &Arc<SharedMemory>) {
    let bytes_max = config.shared_memory_bytes_max;
    let Some(offer) = welcome.link.as_ref().filter(|_| bytes_max > 0) else { return };
    if let Err(error) = shared_memory::accept_offer(offer, shared_memory, bytes_max) {
        tracing::debug!(%error, "no memory is shared with the coordinator");
    }
}

fn lost(connection: &Connection, error: &Error, close: Close, greeted: bool) -> Ended {
    tracing::warn!(%error, "the coordinator's greeting failed");
    // Closing here hides the reason that the peer may have given.
    let given = connection.close_reason();
    connection.close(close.code(), close.reason().as_bytes());
    let error = given.unwrap_or(ConnectionError::LocallyClosed);
    Ended::Lost { error, greeted }
}

async fn greet(
    connection: &Connection,
    worker: &Worker,
) -> Result<(SendStream, RecvStream, Welcome)> {
    let config = &worker.config;
    let mut status = status(&worker.executor).await;
    worker.warm_ups.hide(&mut status);
    let hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION,
        build: env!("CARGO_PKG_VERSION").into(),
        name: config.identity.name.clone(),
        pid: std::process::id(),
        incarnation: config.incarnation,
        slots: config.places(),
        threads: config.slots.max(1),
        status,
        input_bytes_max: u64::try_from(config.input_bytes_max).unwrap_or(u64::MAX),
        machine: config.machine.clone(),
        stint: worker.attempts.stint(),
    };
    let mut reports = connection.open_uni().await.map_err(wire::lost)?;
    wire::put_first(&reports);
    wire::write_report(&mut reports, Kind::Hello, &hello).await?;
    let mut control = connection.accept_uni().await.map_err(wire::lost)?;
    let welcome = wire::expect_report(&mut control, Kind::Welcome, "welcome").await?;
    Ok((reports, control, welcome))
}

/// Asks the executor on a blocking thread: reading sensors may take a while.
pub(crate) async fn status(executor: &Arc<dyn Executor>) -> ExecutorStatus {
    let executor = Arc::clone(executor);
    outside::blocking(move || executor.status()).await.unwrap_or_default()
}

async fn write_reports(mut reports: SendStream, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if reports.write_all(&frame).await.is_err() {
            return;
        }
    }
}

async fn beat(session: Arc<WorkerSession>, interval: Duration) {
    let mut ticks = tokio::time::interval(interval);
    // After a pause (a suspended laptop) one heartbeat says as much as many.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        session.shared_memory.tidy();
        session.input_cache.tidy();
        session.attempts.tidy();
        let mut status = status(&session.executor).await;
        session.warm_ups.hide(&mut status);
        for beat in Heartbeat::all(&session.attempts.holdings(), status) {
            session.report(Kind::Heartbeat, &beat);
        }
    }
}

/// Carries out the coordinator's orders. Orders about models of one device wait for each other.
async fn obey(
    session: Arc<WorkerSession>,
    mut control: RecvStream,
    drain: Arc<Notify>,
    connection: Connection,
) {
    let (loads, queue) = mpsc::unbounded_channel();
    let mut loader = JoinSet::new();
    loader.spawn(load_models(Arc::clone(&session), queue));
    loop {
        let order = match wire::read_report(&mut control).await {
            Ok(order) => order,
            Err(error @ Error::Frame(_)) => {
                tracing::warn!(%error, "malformed order");
                let close = Close::Malformed;
                return connection.close(close.code(), close.reason().as_bytes());
            }
            // The session sees the end of the connection by itself.
            Err(_) => return,
        };
        let order = match order {
            (kind @ Kind::Load, header) => frame::decode(kind, &header).map(Order::Load),
            (kind @ Kind::Unload, header) => frame::decode(kind, &header).map(Order::Unload),
            (Kind::Drain, _) => {
                drain.notify_one();
                continue;
            }
            (kind @ Kind::Recall, header) => {
                match frame::decode::<AttemptId>(kind, &header) {
                    Ok(id) => session.attempts.recall(id),
                    Err(error) => tracing::warn!(%error, "order ignored"),
                }
                continue;
            }
            (kind @ Kind::Stop, header) => {
                match frame::decode::<AttemptId>(kind, &header) {
                    Ok(id) => session.attempts.stop(id),
                    Err(error) => tracing::warn!(%error, "order ignored"),
                }
                continue;
            }
            (kind, _) => {
                tracing::warn!(?kind, "order ignored");
                continue;
            }
        };
        match order {
            Ok(order) => drop(loads.send(order)),
            Err(error) => tracing::warn!(%error, "order ignored"),
        }
    }
}

/// Finishes the held attempts. The coordinator closes once it has every answer: closing from here
/// could overtake the last ones.
async fn finish(connection: &Connection, session: &Arc<WorkerSession>) -> Ended {
    session.leave();
    session.report(Kind::Draining, &());
    let done = async {
        session.attempts.until_empty().await;
        tokio::time::sleep(DISMISSAL_TIMEOUT).await;
    };
    // Tasks that were under way when the coordinator heard of it are refused.
    tokio::select! {
        _ = connection.closed() => {}
        () = done => {}
    }
    Ended::Left
}
