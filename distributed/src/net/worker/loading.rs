//! Models at a worker's devices: loaded, warmed up and unloaded as the coordinator says.

use crate::error::Result;
use crate::executor::ExecError;
use crate::net::outside;
use crate::net::worker::task::WorkerSession;
use crate::net::worker::warm_up;
use crate::proto::message::{Kind, Load, Loaded, Place};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// An order about a model.
pub(crate) enum Order {
    Load(Load),
    Unload(Place),
}

impl Order {
    fn device(&self) -> u32 {
        match self {
            Self::Load(load) => load.device,
            Self::Unload(place) => place.device,
        }
    }
}

/// Carries out orders: those of one device one after another, those of several devices side by side. An
/// order that has begun goes on when the connection is lost: the next one hears of the models in memory.
pub(crate) async fn load_models(
    session: Arc<WorkerSession>,
    mut queue: mpsc::UnboundedReceiver<Order>,
) {
    let mut devices = HashMap::new();
    let mut lines = JoinSet::new();
    while let Some(order) = queue.recv().await {
        // Orders for devices that do not exist are refused in a queue of their own.
        let device = position(&session, order.device()).ok();
        let line = devices.entry(device).or_insert_with(|| {
            let (line, orders) = mpsc::unbounded_channel();
            lines.spawn(carry_out(Arc::clone(&session), device, orders));
            line
        });
        // The line lasts as long as this does.
        let _ = line.send(order);
    }
}

async fn carry_out(
    session: Arc<WorkerSession>,
    device: Option<usize>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    while let Some(order) = orders.recv().await {
        // An order of an earlier connection may be under way.
        let turn = session.warm_ups.turn(device.unwrap_or(usize::MAX)).await;
        let session = Arc::clone(&session);
        let carried = tokio::spawn(async move {
            match order {
                Order::Load(order) => take(&session, order).await,
                Order::Unload(place) => let_go(&session, place).await,
            }
            drop(turn);
        });
        if let Err(error) = carried.await {
            tracing::error!(%error, "an order was not carried out");
        }
    }
}

async fn take(session: &WorkerSession, order: Load) {
    let loaded = load(session, &order).await.map_err(ExecError::shortened);
    let Load { device, model, .. } = order;
    let took = loaded.as_ref().ok().and_then(|loaded| loaded.took);
    let took_us = took.and_then(|took| u64::try_from(took.as_micros()).ok());
    let result = loaded.map(|loaded| loaded.bytes);
    // After a reconnect, the coordinator reads the models in the status.
    if session.fetcher.connection().close_reason().is_none() {
        session.report(Kind::Loaded, &Loaded { device, model, result, took_us });
    }
}

async fn let_go(session: &WorkerSession, place: Place) {
    let (executor, at) = (Arc::clone(&session.executor), position(session, place.device));
    let model = place.model.clone();
    if let Ok(at) = &at {
        session.warm_ups.forget(*at, &model);
    }
    let unload = move || at.map(|at| executor.unload(at, &model));
    match outside::blocking(unload).await {
        Ok(_) => session.report(Kind::Unloaded, &place),
        // The model may still be there: the coordinator asks again.
        Err(error) => tracing::error!(%error, "a model was not let go of"),
    }
}

fn position(session: &WorkerSession, device: u32) -> Result<usize, ExecError> {
    let (at, count) = (usize::try_from(device).unwrap_or(usize::MAX), session.devices());
    if at < count { Ok(at) } else { Err(ExecError::failed(format!("device {at} of {count}"))) }
}

/// A model that is loaded.
struct Loading {
    /// Bytes of device memory that it takes, where known.
    bytes: Option<u64>,
    /// The time inside the executor, unless it was loaded already.
    took: Option<Duration>,
}

/// Loads a model at one of the worker's devices.
async fn load(session: &WorkerSession, order: &Load) -> Result<Loading, ExecError> {
    let Load { device, model, .. } = order;
    let fetched = session.fetcher.ensure(model).await;
    fetched.inspect_err(|error| tracing::warn!(%model, %error, "a model was not fetched"))?;
    let at = position(session, *device)?;
    // An order may come twice.
    let cold = !order.warm_up.is_empty() && !session.warm_ups.is_warm(at, model);
    if cold {
        session.warm_ups.begin(at, model);
    }
    let loaded = load_at(session, at, order, cold).await;
    match (&loaded, cold) {
        (Ok(_), true) => session.warm_ups.done(at, model),
        (Err(_), true) => session.warm_ups.forget(at, model),
        _ => {}
    }
    loaded
}

async fn load_at(
    session: &WorkerSession,
    at: usize,
    order: &Load,
    cold: bool,
) -> Result<Loading, ExecError> {
    let model = &order.model;
    let (executor, model) = (Arc::clone(&session.executor), model.clone());
    let load = move || {
        let devices = executor.status().devices;
        let there = devices.get(at).is_some_and(|device| device.models.contains(&model));
        let began = Instant::now();
        executor.load(at, &model)?;
        let took = (!there).then(|| began.elapsed());
        Ok(Loading { bytes: executor.footprint(at, &model), took })
    };
    let ended = outside::blocking(load).await;
    let loading = ended.unwrap_or_else(|error| Err(ExecError::failed(error.to_string())))?;
    if !cold {
        return Ok(loading);
    }
    let about = (session.input_bytes_max, &session.warm_ups.hung);
    if let Err(error) = warm_up::run(&session.executor, at, order, about).await {
        let (executor, model) = (Arc::clone(&session.executor), order.model.clone());
        // The coordinator is told why the runs failed, not of this.
        let _ = outside::blocking(move || executor.unload(at, &model)).await;
        return Err(error);
    }
    Ok(loading)
}
