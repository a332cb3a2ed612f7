//! Benchmarks of the cluster alone, under load, and of its core.

use super::Noop;
use crate::bench::run::Run;
use crate::bench::table::{Column, tabulate};
use anyhow::{Result, ensure};
use serde_json::Value;

fn row(name: &str, at: &str) -> (String, String) {
    (name.to_owned(), at.to_owned())
}

fn none_lost(rounds: &[Value], at: &str) -> Result<()> {
    for round in rounds {
        let lost = round.pointer(at).and_then(Value::as_u64);
        ensure!(lost == Some(0), "lost tasks: {round}");
    }
    Ok(())
}

/// Bursts of tasks, also larger than the queue.
pub(super) fn burst(run: &mut Run, noop: &Noop) -> Result<String> {
    const COLUMNS: [Column; 7] = [
        Column::lower("accepting a task", "us", "/accept_us_per_task").digits(1),
        Column::lower("all accepted after", "s", "/accepted_s").digits(3),
        Column::lower("all ended after", "s", "/drained_s").digits(3),
        Column::higher("tasks", "1/s", "/tasks_per_s"),
        Column::lower("latency p99", "ms", "/latency_us/p99").scale(1e-3),
        Column::plain("refusals", "", "/refusals"),
        Column::lower("lost", "", "/lost"),
    ];
    let queue = noop.tasks(10_000);
    let answers = noop.several(3, &["burst", "--tasks", &queue, "--queue", &queue])?;
    for at in ["/within/lost", "/beyond/lost"] {
        none_lost(&answers, at)?;
    }
    let rows = [
        row(&format!("{queue} at once, into a queue for as many"), "/within"),
        row("three times as many as the queue takes", "/beyond"),
    ];
    let text = "Nobody waits before all are submitted. Who is refused (`Overloaded`, with a time) comes \
                again after that time.\n\n";
    Ok(text.to_owned() + &tabulate(run, "burst", &answers, &rows, &COLUMNS)?)
}

/// Bytes and time around a task.
pub(super) fn overhead(run: &mut Run, noop: &Noop) -> Result<String> {
    const WIRE: [Column; 6] = [
        Column::lower("sent to the worker", "bytes", "/sent_bytes"),
        Column::lower("received", "bytes", "/received_bytes"),
        Column::lower("datagrams sent", "", "/sent_datagrams").digits(2),
        Column::lower("datagrams received", "", "/received_datagrams").digits(2),
        Column::lower("processor time, load generator included", "us", "/coordinator_cpu_us")
            .digits(1),
        Column::lower("wall time", "us", "/wall_us").digits(1),
    ];
    const FRAME: [Column; 4] = [
        Column::lower("frame of the task, without its 64 bytes", "bytes", "/task_bytes"),
        Column::lower("frame of the answer", "bytes", "/answer_bytes"),
        Column::lower("writing both", "ns", "/encode_ns"),
        Column::lower("reading both", "ns", "/decode_ns"),
    ];
    const SUBMIT: [Column; 4] = [
        Column::lower("accepted, one by one", "us", "/single_us").digits(2),
        Column::lower("accepted, as one batch", "us", "/batch_us").digits(2),
        Column::lower("ended, one by one", "us", "/single_until_ended_us").digits(1),
        Column::lower("ended, as one batch", "us", "/batch_until_ended_us").digits(1),
    ];
    let answers = noop.several(3, &["overhead", "--tasks", &noop.tasks(50_000)])?;
    let wire = [row("1 in flight", "/wire/0"), row("64 in flight", "/wire/1")];
    let mut text =
        "UDP payload at the coordinator for a task with 64 bytes of input and no output; \
                    acknowledgements, heartbeats and encryption included.\n\n"
            .to_owned();
    text += &tabulate(run, "a task", &answers, &wire, &WIRE)?;
    text += "\n";
    let frames = noop.beside("frames", &[])?;
    text += &tabulate(run, "a task", &frames, &[row("frames", "")], &FRAME)?;
    text += "\n";
    text += &tabulate(run, "a task of 1000", &answers, &[row("submission", "/submit")], &SUBMIT)?;
    Ok(text)
}

/// Resident memory by the number of workers, and whether it grows.
pub(super) fn memory(run: &mut Run, noop: &Noop, tasks: usize) -> Result<String> {
    const WORKERS: [Column; 4] = [
        Column::lower("resident when ready", "MB", "/rss_bytes_ready").digits(1).scale(1e-6),
        Column::lower("after a half", "MB", "/steps/0/rss_bytes").digits(1).scale(1e-6),
        Column::lower("after all tasks", "MB", "/steps/1/rss_bytes").digits(1).scale(1e-6),
        Column::lower("a task", "us", "/steps/1/us_per_task").digits(1),
    ];
    const STEPS: [Column; 2] = [
        Column::lower("a task", "us", "/us_per_task").digits(2),
        Column::lower("resident", "MB", "/rss_bytes").digits(1).scale(1e-6),
    ];
    let each = noop.tasks(100_000);
    let mut text = format!(
        "The process of the coordinator, which is the load generator too; all workers are in another \
         one. 64 tasks in flight, {each} tasks for each row. Goal: 30 MB with 50 workers.\n\n"
    );
    let mut rows = Vec::new();
    let mut answers = vec![Value::Null; noop.rounds(3)];
    for workers in ["1", "10", "50"] {
        let arguments = ["memory", "--workers", workers, "--tasks", &each, "--steps", "2"];
        let found = noop.several(answers.len(), &arguments)?;
        for (answer, found) in answers.iter_mut().zip(found) {
            answer[workers] = found;
        }
        rows.push(row(&format!("{workers} workers"), &format!("/{workers}")));
    }
    text += &tabulate(run, "memory", &answers, &rows, &WORKERS)?;
    text += &format!("\nOne run of {tasks} tasks with one worker, a row for each tenth:\n\n");
    let flat = noop.json(&["memory", "--tasks", &tasks.to_string(), "--steps", "10"])?;
    let rows: Vec<_> =
        (0..10).map(|n| row(&format!("tenth {:2}", n + 1), &format!("/steps/{n}"))).collect();
    text += &tabulate(run, "tasks", &[flat], &rows, &STEPS)?;
    Ok(text)
}

/// The cost of one event among many workers and tasks.
pub(super) fn crowd(run: &mut Run, noop: &Noop) -> Result<String> {
    const MEDIANS: [Column; 6] = [
        Column::lower("a worker comes", "us", "/join/p50").digits(1),
        Column::lower("goes", "us", "/leave/p50").digits(1),
        Column::lower("heartbeat", "us", "/heartbeat/p50").digits(1),
        Column::lower("submit", "us", "/submit/p50").digits(1),
        Column::lower("end, and the next begins", "us", "/end/p50").digits(1),
        Column::lower("cancel", "us", "/cancel/p50").digits(1),
    ];
    const TAILS: [Column; 6] = [
        Column::lower("a worker comes, p99", "us", "/join/p99").digits(1),
        Column::lower("goes, p99", "us", "/leave/p99").digits(1),
        Column::lower("heartbeat, p99", "us", "/heartbeat/p99").digits(1),
        Column::lower("submit, p99", "us", "/submit/p99").digits(1),
        Column::lower("end, and the next begins, p99", "us", "/end/p99").digits(1),
        Column::lower("cancel, p99", "us", "/cancel/p99").digits(1),
    ];
    let answers = noop.beside("crowd", &[if noop.quick { "20" } else { "1000" }])?;
    let sizes = answers.first().and_then(|first| first["sizes"].as_array());
    let name =
        |size: &Value| format!("{} workers, {} tasks wait", size["workers"], size["waiting"]);
    let named = sizes.into_iter().flatten().map(name).enumerate();
    let rows: Vec<_> = named.map(|(at, name)| (name, format!("/sizes/{at}"))).collect();
    let text = "The core alone, by `least_loaded`: each worker has two slots, and all are taken. Each \
                event until nothing more is wanted of it.\n\n";
    let medians = tabulate(run, "the core", &answers, &rows, &MEDIANS)?;
    Ok(text.to_owned() + &medians + "\n" + &tabulate(run, "the core", &answers, &rows, &TAILS)?)
}

/// Workers that sleep instead of computing.
pub(super) fn scaling(run: &mut Run, noop: &Noop) -> Result<String> {
    const COLUMNS: [Column; 5] = [
        Column::higher("tasks", "1/s", "/tasks_per_s"),
        Column::higher("of workers × 1/15 ms", "%", "/efficiency").digits(1).scale(1e2),
        Column::higher("of what the sleeps really took", "%", "/efficiency_of_time_slept")
            .digits(1)
            .scale(1e2),
        Column::lower("overhead p50", "us", "/overhead_us/p50"),
        Column::lower("overhead p99", "us", "/overhead_us/p99"),
    ];
    let tasks = if noop.quick { "20" } else { "200" };
    let answers = noop.several(3, &["scaling", "--tasks", tasks, "--workers", "1,5,10,20,50"])?;
    let rows: Vec<_> = (["1", "5", "10", "20", "50"].iter().enumerate())
        .map(|(at, workers)| row(&format!("{workers} sleepers"), &format!("/rows/{at}")))
        .collect();
    let text = format!(
        "A task sleeps 15 ms at a worker of one slot; {tasks} tasks for each worker. Goal: 95 %.\n\n"
    );
    Ok(text + &tabulate(run, "workers", &answers, &rows, &COLUMNS)?)
}

/// A killed worker, and a killed coordinator with durable tasks.
pub(super) fn faults(run: &mut Run, noop: &Noop) -> Result<String> {
    const RATES: [Column; 6] = [
        Column::higher("before", "1/s", "/before/tasks_per_s"),
        Column::higher("during", "1/s", "/during/tasks_per_s"),
        Column::higher("after", "1/s", "/after/tasks_per_s"),
        Column::lower("p99 before", "ms", "/before/latency_us/p99").digits(1).scale(1e-3),
        Column::lower("p99 during", "ms", "/during/latency_us/p99").digits(1).scale(1e-3),
        Column::lower("p99 after", "ms", "/after/latency_us/p99").digits(1).scale(1e-3),
    ];
    const WORKER: [Column; 4] = [
        Column::lower("noticed after", "ms", "/noticed_ms"),
        Column::lower("another ready after", "ms", "/replaced_ms"),
        Column::plain("tasks redone", "", "/redone"),
        Column::lower("lost", "", "/lost"),
    ];
    const COORDINATOR: [Column; 5] = [
        Column::lower("ready again after", "ms", "/ready_ms"),
        Column::lower("first task ended after", "ms", "/first_end_ms"),
        Column::lower("nine tenths of the rate after", "ms", "/recovered_ms"),
        Column::plain("durable tasks accepted before", "", "/accepted_before"),
        Column::lower("lost", "", "/lost"),
    ];
    // A shorter run does not show the rate recover.
    let seconds = "3";
    let (mut worker, mut coordinator) = (Vec::new(), Vec::new());
    for _ in 0..noop.rounds(3) {
        worker.push(noop.json(&["faults", "--seconds", seconds])?);
        let folder = noop.folder("restart")?;
        coordinator.push(noop.json(&["restart", "--seconds", seconds, "--durable", &folder])?);
    }
    for answers in [&worker, &coordinator] {
        none_lost(answers, "/lost")?;
    }
    let killed = [row("a worker of two is killed", "")];
    let mut text = "64 tasks in flight. A killed worker is noticed by its silence, and another one is \
                    started then. A killed coordinator is started anew at once, on its journal; every \
                    task that it had accepted is asked for.\n\n"
        .to_owned();
    text += &tabulate(run, "fault", &worker, &killed, &RATES)?;
    text += "\n";
    text += &tabulate(run, "fault", &worker, &killed, &WORKER)?;
    text += "\n";
    let killed = [row("the coordinator is killed", "")];
    text += &tabulate(run, "fault", &coordinator, &killed, &RATES)?;
    text += "\n";
    text += &tabulate(run, "fault", &coordinator, &killed, &COORDINATOR)?;
    Ok(text)
}

/// Large inputs beside a bare stream.
pub(super) fn transfer(run: &mut Run, noop: &Noop) -> Result<String> {
    const SIDES: [Column; 3] = [
        Column::higher("inputs", "MB/s", "/mb_per_s"),
        Column::lower("p50", "us", "/latency_us/p50"),
        Column::lower("p99", "us", "/latency_us/p99"),
    ];
    const RATIO: [Column; 1] = [Column::higher("of the bare stream", "×", "/ratio").digits(2)];
    let turns = if noop.quick { "2" } else { "10" };
    let answers = noop.several(3, &["transfer", "--turns", turns, "--tasks", "50"])?;
    let rows = [
        row("a task, inputs by QUIC", "/quic"),
        row("a task, inputs in shared memory", "/shared"),
        row("a bare QUIC stream", "/bare"),
    ];
    let mut text =
        "Inputs of 602,112 bytes, one at a time, to another process; in turns of 50. The \
                    bare stream's receiver reads each into one buffer. Goal: 0.8 × by QUIC.\n\n"
            .to_owned();
    text += &tabulate(run, "transfer", &answers, &rows, &SIDES)?;
    text += "\n";
    text += &tabulate(run, "transfer", &answers, &rows[..2], &RATIO)?;
    Ok(text)
}
