//! Tasks as the cluster API describes them.

use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::outputs;
use crate::rest::{Client, segment};
use crate::wire::WireTensor;
use lgp_sdk::NamedTensor;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the coordinator is asked to wait for the end of a task before it answers.
const WAIT_MS: u64 = 20_000;
/// Between two questions about a task: a coordinator that is about to end, or that has as many who wait
/// as it may, answers at once.
const PAUSE: Duration = Duration::from_millis(200);

/// Waits until a task's state does not change any more, also while no coordinator leads.
pub(crate) fn wait(client: &Client, id: &str, out: Output) -> Result<Value> {
    let path = format!("tasks/{}", segment(id));
    let waiting = format!("{path}?wait_ms={WAIT_MS}");
    let mut told = false;
    loop {
        let asked = Instant::now();
        let answered = match client.get(&waiting) {
            Err(failure) if failure.code == "busy" => client.get(&path),
            answered => answered,
        };
        let task: Value = match answered {
            Err(failure) if failure.code == "no_leader" => {
                if !std::mem::replace(&mut told, true) {
                    out.note(format!("still waiting: {}", failure.message));
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            answered => answered?,
        };
        if !matches!(task["state"].as_str(), Some("queued" | "running")) {
            return Ok(task);
        }
        std::thread::sleep(PAUSE.saturating_sub(asked.elapsed()));
    }
}

/// Reports a finished task: its outputs, or why it has none.
///
/// # Errors
/// `task_not_finished`, or the code of the task's own error.
pub(crate) fn report(task: &Value, folder: Option<&Path>, out: Output) -> Result<()> {
    let id = output::cell(&task["task_id"]);
    match task["state"].as_str() {
        Some("succeeded") => {}
        Some(state @ ("queued" | "running")) => {
            return Err(Failure::new("task_not_finished", format!("task {id} is {state}"))
                .hint("wait for it with: radeon-cluster result --wait ID"));
        }
        state => {
            let error = &task["error"];
            let code = error["code"].as_str().unwrap_or("task_failed").to_owned();
            let state = state.unwrap_or("in an unknown state");
            let reason = error["message"].as_str().unwrap_or("without a reason");
            return Err(Failure::new(code, format!("task {id} {state}: {reason}")));
        }
    }
    let tensors = tensors(task)?;
    let written = match folder {
        Some(folder) => {
            let named = |x: &NamedTensor| (x.name.clone(), x.tensor.clone().into());
            outputs::write(folder, &tensors.iter().map(named).collect::<Vec<_>>())?
        }
        None => Vec::new(),
    };
    out.emit(task, |task| {
        let number = |key: &str| task[key].as_f64().unwrap_or(0.0);
        let head = format!(
            "task {id} succeeded on {}: queued {:.2} ms, model {:.2} ms, overhead {:.2} ms\n",
            output::cell(&task["worker"]),
            number("queued_ms"),
            number("model_ms"),
            number("overhead_ms"),
        );
        let tail = match folder {
            Some(_) => outputs::lines(&written),
            None => outputs::previews(&tensors),
        };
        head + &tail
    })
}

fn tensors(task: &Value) -> Result<Vec<NamedTensor>> {
    let odd = |error: serde_json::Error| {
        Failure::new("bad_answer", format!("the task's outputs are damaged: {error}"))
    };
    let wire: Vec<WireTensor> = serde_json::from_value(task["outputs"].clone()).map_err(odd)?;
    wire.iter().map(WireTensor::tensor).collect()
}
