//! Tasks as the cluster API describes them.

use crate::classes::{Classes, Found};
use crate::failure::{Failure, Result};
use crate::output::{self, Output};
use crate::outputs;
use crate::rest::{Client, segment};
use crate::wire::WireTensor;
use lgp_sdk::tensor::{Datum, NamedTensor};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the first request waits for the task's end, before the reason for waiting is fetched.
const SOON_MS: u64 = 1_000;
/// How long later requests wait.
const WAIT_MS: u64 = 10_000;
/// The pause between two requests for a task: a coordinator that is about to end, or has its limit of waiting clients,
/// answers at once.
const PAUSE: Duration = Duration::from_millis(200);
/// The number of workers for which the reason is shown why they do not take a task.
const WORKERS_TOLD: usize = 3;

/// Waits until a task's state is final, also while no coordinator leads. After a second, and on each change, the user
/// is told the reason for waiting, if `tell` is given.
pub(crate) fn wait(client: &Client, id: &str, tell: Option<Output>) -> Result<Value> {
    let path = format!("tasks/{}", segment(id));
    let mut told = String::new();
    let mut note = |what: String| {
        if let Some(out) = tell.filter(|_| what != told) {
            out.note(&what);
            told = what;
        }
    };
    let mut wait_ms = SOON_MS;
    loop {
        let asked = Instant::now();
        let answered = match client.get(&format!("{path}?wait_ms={wait_ms}")) {
            Err(failure) if failure.code == "busy" => client.get(&path),
            answered => answered,
        };
        let task: Value = match answered {
            Err(failure) if failure.code == "no_leader" => {
                note(format!("still waiting: {}", failure.message));
                std::thread::sleep(PAUSE);
                continue;
            }
            answered => answered?,
        };
        if !matches!(task["state"].as_str(), Some("queued" | "running")) {
            return Ok(task);
        }
        if tell.is_some() {
            // This request only informs the user; its failure says nothing about the task.
            let why: Value = client.get(&format!("{path}/why")).unwrap_or_default();
            note(format!("task {id} {}", reason(&why)));
        }
        wait_ms = WAIT_MS;
        std::thread::sleep(PAUSE.saturating_sub(asked.elapsed()));
    }
}

/// The reason why a task waits: the latest decisions about it.
fn reason(why: &Value) -> String {
    let decisions = output::array(&why["decisions"]);
    let now = decisions.last().map(|last| &last["at_ms"]);
    let of_now = decisions.iter().filter(|one| Some(&one["at_ms"]) == now);
    let texts: Vec<String> = of_now.map(|one| output::cell(&one["what"])).collect();
    let (workers, rest): (Vec<&String>, Vec<&String>) =
        texts.iter().partition(|text| text.starts_with("worker "));
    let Some(first) = rest.last() else { return "is not finished yet".to_owned() };
    if !first.starts_with("waits for a free device") {
        return (*first).clone();
    }
    let shown = workers.iter().take(WORKERS_TOLD).map(|text| format!("; {text}"));
    match workers.len() {
        0 => format!("{first}; there is no worker"),
        count if count > WORKERS_TOLD => {
            format!("{first}{} … of {count} workers", shown.collect::<String>())
        }
        _ => format!("{first}{}", shown.collect::<String>()),
    }
}

/// Reports a finished task: its outputs, or why it has none.
///
/// # Errors
/// `task_not_finished`, or the code of the task's own error.
pub(crate) fn report(
    task: &Value,
    folder: Option<&Path>,
    classes: &Classes,
    out: Output,
) -> Result<()> {
    let id = output::cell(&task["task_id"]);
    let outputs = outputs(task)?;
    let found = find(classes, &outputs)?;
    let written = match folder {
        Some(folder) => outputs::write(folder, &outputs)?,
        None => outputs::shown(&outputs),
    };
    let mut task = task.clone();
    if let Some(found) = &found {
        task["kind"] = json!(found.kind);
        task["top"] = json!(found.rows);
    }
    out.emit(&task, |task| {
        let number = |key: &str| task[key].as_f64().unwrap_or(0.0);
        let head = format!(
            "task {id} succeeded on {}: queued {:.2} ms, model {:.2} ms, overhead {:.2} ms\n",
            output::cell(&task["worker"]),
            number("queued_ms"),
            number("model_ms"),
            number("overhead_ms"),
        );
        head + &outputs::lines(&written) + &found.as_ref().map(Found::text).unwrap_or_default()
    })
}

/// The classes found in the outputs.
pub(crate) fn find(classes: &Classes, outputs: &[(String, Datum)]) -> Result<Option<Found>> {
    let tensors = outputs.iter().filter_map(|(name, value)| Some((name.as_str(), value.tensor()?)));
    classes.find(tensors)
}

/// The outputs of a finished task.
///
/// # Errors
/// `task_not_finished`, or the code of the task's own error.
pub(crate) fn outputs(task: &Value) -> Result<Vec<(String, Datum)>> {
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
    let tensors = tensors(task)?.into_iter().map(|x| (x.name, x.tensor.into()));
    Ok(tensors.collect())
}

fn tensors(task: &Value) -> Result<Vec<NamedTensor>> {
    let odd = |error: serde_json::Error| {
        Failure::new("bad_answer", format!("the task's outputs are damaged: {error}"))
    };
    let wire: Vec<WireTensor> = serde_json::from_value(task["outputs"].clone()).map_err(odd)?;
    wire.iter().map(WireTensor::tensor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_waits_for_is_said_in_a_line() {
        let line = |at_ms: u32, what: &str| json!({ "at_ms": at_ms, "what": what });
        let free = "waits for a free device; 3 tasks go before it";
        let full = |n: u32| line(9, &format!("worker w{n}: all of its slots are taken"));
        for (decisions, expected) in [
            (vec![line(0, "accepted"), line(9, "runs on worker w")], "runs on worker w".to_owned()),
            (vec![line(0, "accepted"), line(9, free)], format!("{free}; there is no worker")),
            (
                vec![line(0, "accepted"), line(9, free), full(1)],
                format!("{free}; worker w1: all of its slots are taken"),
            ),
            (vec![], "is not finished yet".to_owned()),
        ] {
            assert_eq!(reason(&json!({ "decisions": decisions })), expected);
        }
        let many: Vec<Value> = std::iter::once(line(9, free)).chain((0..9).map(full)).collect();
        assert!(reason(&json!({ "decisions": many })).ends_with("taken … of 9 workers"));
    }
}
