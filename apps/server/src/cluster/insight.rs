//! A model's use of time and memory: a run measured node by node, and a plan of its memory.

use super::models::named;
use crate::catalog::ModelEntry;
use crate::extract::Params;
use crate::fault::{ClusterError, Fault};
use crate::faults;
use crate::state::ServerState;
use axum::Json;
use axum::extract::State;
use lgp_distributed::{RunTrace, ms};
use lgp_sdk::cluster::{TaskRecord, TaskSpec};
use lgp_sdk::model::ValueSpec;
use lgp_sdk::tensor::{DType, NamedTensor, Shape, Tensor};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The time limit of the two runs together.
const PROFILE: Duration = Duration::from_secs(120);

/// `POST models/{model}[/versions/{version}]/profile`: times of a run's nodes on a device that serves the model.
/// Inputs are zeros, of size 1 in open dimensions.
pub(crate) async fn profile(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let (name, version) = named(&params)?;
    let entry = state.catalog().named(name, version).await?.entry().clone();
    let (spec, began) = (spec(&state, &entry)?, Instant::now());
    // The first run on a device compiles its kernels, which later runs do not.
    ran(&state, spec.clone()).await?;
    let record = ran(
        &state,
        TaskSpec { traced: true, deadline: Some(PROFILE.saturating_sub(began.elapsed())), ..spec },
    )
    .await?;
    let trace = state.coordinator().run_trace(record.task_id, record.attempts);
    let Some(RunTrace { waited, nodes }) = trace else {
        let message = "the worker told of no nodes: runs that are limited are not measured";
        return Err(Fault::unavailable("not_measured", message)
            .hint("leave run_limit_s and the model's own limit out, or use radeon-cluster profile FILE")
            .into());
    };
    let nodes = nodes.iter().map(|node| {
        let [start_ms, took_ms] =
            [node.start_ns, node.took_ns].map(|ns| ms(Duration::from_nanos(ns)));
        json!({ "name": node.name, "op": node.op, "start_ms": start_ms, "ms": took_ms })
    });
    Ok(Json(json!({
        "model": record.model.to_string(),
        "worker": record.worker,
        "device": record.device.as_deref(),
        "waited_ms": ms(waited),
        "model_ms": record.model_ms,
        "nodes": nodes.collect::<Vec<_>>(),
    })))
}

/// `GET models/{model}[/versions/{version}]/plan`: the memory of a run, with each tensor's place and lifetime. A
/// separate process loads the model for it.
pub(crate) async fn plan(
    State(state): State<ServerState>,
    params: Params,
) -> Result<Json<Value>, ClusterError> {
    let (name, version) = named(&params)?;
    let entry = state.catalog().named(name, version).await?.entry().clone();
    let is_model = entry.ensemble().is_none();
    let driver = state.driver().filter(|_| is_model).ok_or_else(|| unplanned(&entry))?;
    let path = state.catalog().path(&entry).await?;
    let mut planned = driver.plan(path).await.map_err(|error| faults::driver(&error))?;
    // Replaces the file's path, which clients must not see.
    planned["model"] = json!(entry.model().to_string());
    Ok(Json(planned))
}

fn unplanned(entry: &ModelEntry) -> Fault {
    Fault::unsupported(format!("the memory of {} cannot be planned here", entry.model()))
        .hint("radeon-cluster plan FILE does it for a model's file; an ensemble's models have plans of their own")
}

/// A task with zeros as inputs.
fn spec(state: &ServerState, entry: &ModelEntry) -> Result<TaskSpec, Fault> {
    if entry.ensemble().is_some() {
        let message =
            format!("{} is an ensemble: its models are measured, each by itself", entry.model());
        return Err(Fault::unsupported(message));
    }
    let mut room = state.coordinator().config().input_bytes_max;
    let inputs = entry.all_inputs().iter().map(|input| zeros(input, &mut room));
    let spec = TaskSpec::new(entry.model().clone(), inputs.collect::<Result<_, _>>()?);
    // The affinity sends both runs to one device, if it is free.
    let affinity = Some(format!("profile of {}", entry.model()));
    Ok(TaskSpec { deadline: Some(PROFILE), affinity, ..spec })
}

fn zeros(input: &ValueSpec, room: &mut usize) -> Result<NamedTensor, Fault> {
    let dims = input.ty.shape.iter().flat_map(|shape| &shape.0);
    let shape = Shape::from(dims.map(|dim| dim.known().unwrap_or(1)).collect::<Vec<_>>());
    let bytes = shape.byte_len(input.ty.dtype).ok().filter(|bytes| *bytes <= *room);
    let Some(bytes) = bytes.filter(|_| input.ty.dtype != DType::Str) else {
        let message =
            format!("input {:?} cannot be made of zeros: it is text, or too large", input.name);
        return Err(Fault::unsupported(message).hint("radeon-cluster profile FILE takes inputs"));
    };
    *room -= bytes;
    let tensor = Tensor::zeros(input.ty.dtype, shape).map_err(Fault::internal)?;
    Ok(NamedTensor::new(&input.name, tensor))
}

async fn ran(state: &ServerState, spec: TaskSpec) -> Result<TaskRecord, Fault> {
    let record = state.coordinator().run(spec).await.map_err(faults::cluster)?;
    faults::task(&record).map_or(Ok(record), Err)
}
