//! Tasks whose workers report the nodes of their runs.

use crate::common::{Echo, Worker, config, coordinator, task};
use lgp_distributed::{Coordinator, CoordinatorConfig, Pki, TaskRecord, TaskSpec, TaskState};
use lgp_memory::{NamedTensor, Tensor};
use std::time::Duration;

/// The most nodes that are reported of a run.
const NODES: usize = 256;

async fn ran(coordinator: &Coordinator, spec: &TaskSpec) -> (TaskRecord, Option<usize>) {
    let record = coordinator.run(spec.clone()).await.unwrap();
    assert_eq!((record.state, record.outputs.as_ref()), (TaskState::Succeeded, Some(&spec.inputs)));
    let nodes = coordinator.run_trace(record.task_id, 1).map(|trace| trace.nodes.len());
    (record, nodes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_tells_what_a_run_was_made_of_where_that_is_asked_for() {
    let (coordinator, pki) = coordinator().await;
    let _worker = Worker::start(&coordinator, &pki, "w1", 1, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    let traced = TaskSpec { traced: true, ..task("echo") };
    let (record, nodes) = ran(&coordinator, &traced).await;
    assert_eq!(nodes, Some(NODES));
    assert_eq!(coordinator.run_trace(record.task_id, 1), None, "it is told once");
    assert_eq!(ran(&coordinator, &task("echo")).await.1, None);
    // A task with a time limit is not slowed down by tracing.
    let run_limit = Some(Duration::from_secs(60));
    assert_eq!(ran(&coordinator, &TaskSpec { run_limit, ..traced.clone() }).await.1, None);
    // Outputs and trace together would be too long for the header of one frame.
    let one = Tensor::from_slice([1], &[1f32]).unwrap();
    let many = (0..500).map(|at| NamedTensor::new(format!("{at:0>80}"), one.clone())).collect();
    assert_eq!(ran(&coordinator, &TaskSpec { inputs: many, ..traced }).await.1, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_traced_where_the_settings_limit_runs() {
    let pki = Pki::generate().unwrap();
    let limited = CoordinatorConfig { run_limit_s: 60, ..config() };
    let coordinator = Coordinator::start(limited, &pki).await.unwrap();
    let _worker = Worker::start(&coordinator, &pki, "w1", 1, &Echo::open());
    coordinator.wait_for_workers(1).await.unwrap();
    assert_eq!(ran(&coordinator, &TaskSpec { traced: true, ..task("echo") }).await.1, None);
}
