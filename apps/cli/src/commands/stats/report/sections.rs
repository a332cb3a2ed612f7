//! The page's sections: each explains its numbers in a sentence, and says which are unknown.

use super::Told;
use crate::output;
use lgp_measure::report::{Section, Series};
use serde_json::Value;
use std::collections::BTreeMap;

/// In the order of the page.
pub(super) const ALL: [fn(&Told) -> Section; 6] =
    [tasks, devices, memory, communication, scaling, scheduler];

/// Stands for a missing number.
const UNKNOWN: &str = "not known";

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => UNKNOWN.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn digits(value: &Value, digits: usize) -> String {
    value.as_f64().map_or(UNKNOWN.to_owned(), |number| format!("{number:.digits$}"))
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or(UNKNOWN.to_owned(), output::bytes)
}

fn row<const N: usize>(cells: [String; N]) -> Vec<String> {
    cells.to_vec()
}

/// Each device with its worker.
fn each_device(told: &Told) -> impl Iterator<Item = (&Value, &Value)> {
    told.workers.iter().flat_map(|worker| {
        worker["devices"].as_array().into_iter().flatten().map(move |device| (worker, device))
    })
}

fn tasks(told: &Told) -> Section {
    let tasks = &told.stats["tasks"];
    let [done, failed] = ["succeeded", "failed"].map(|state| count(&tasks[state]));
    let words = match done {
        0 => "No task has succeeded yet, so latencies are not known.".to_owned(),
        _ => format!(
            "Of the tasks that have ended, {done} succeeded and {failed} failed; half of the latest took up \
             to {} ms.",
            digits(&told.stats["latency_ms"]["p50"], 2)
        ),
    };
    let states = ["submitted", "queued", "running", "succeeded", "failed", "cancelled"];
    let states = states.map(|state| row([state.to_owned(), text(&tasks[state])]));
    let times = [
        ("latency", "latency_ms"),
        ("waiting", "queued_ms"),
        ("in the model", "model_ms"),
        ("the rest", "overhead_ms"),
    ];
    let times = times.iter().filter(|_| done > 0).map(|(name, key)| {
        let cell = |part: &str| digits(&told.stats[*key][part], 3);
        row([(*name).to_owned(), cell("mean"), cell("p50"), cell("p95"), cell("p99"), cell("max")])
    });
    let headings = ["ms", "mean", "p50", "p95", "p99", "max"];
    Section::new("Tasks", &words)
        .table("Tasks by state", &["state", "tasks"], states.to_vec())
        .table("Times of tasks that succeeded, within 4 %", &headings, times.collect())
        .lines(
            "Tasks that ended, a second",
            "s",
            "tasks/s",
            &[over_time(told, "ended", "/ended_per_s")],
        )
        .lines(
            "Latency of the latest tasks",
            "s",
            "ms",
            &["p50", "p95", "p99"].map(|p| over_time(told, p, &format!("/latency_ms/{p}"))),
        )
}

/// A column of the history over the seconds since its first sample.
fn over_time(told: &Told, name: &str, column: &str) -> Series {
    let values = |at: &str| told.history.pointer(at).and_then(Value::as_array);
    let begin = told.history.pointer("/at_s/0").and_then(Value::as_f64).unwrap_or(0.);
    let pairs = values("/at_s").into_iter().flatten().zip(values(column).into_iter().flatten());
    let point = |(at, value): (&Value, &Value)| {
        (at.as_f64().unwrap_or(f64::NAN) - begin, value.as_f64().unwrap_or(f64::NAN))
    };
    Series::new(name, pairs.map(point).collect())
}

fn devices(told: &Told) -> Section {
    let ready = told.workers.iter().filter(|worker| worker["state"] == "ready").count();
    let devices = each_device(told).count();
    let words = format!(
        "{} of {} are ready, with {} in all.",
        ready,
        output::counted(told.workers.len() as u64, "worker"),
        output::counted(devices as u64, "device")
    );
    let rows = each_device(told).map(|(worker, device)| {
        let busy = device["utilisation"].as_f64();
        row([
            text(&worker["id"]),
            text(&device["device"]),
            text(&device["backend"]),
            text(&worker["state"]),
            format!("{} of {}", text(&device["running"]), text(&device["slots"])),
            digits(&device["load"], 2),
            busy.map_or(UNKNOWN.to_owned(), |busy| format!("{:.0} %", 100. * busy)),
            digits(&device["power_w"], 0),
            digits(&device["energy_j"], 0),
        ])
    });
    let headings =
        ["worker", "device", "backend", "state", "slots taken", "load", "busy", "watts", "joules"];
    let loads = each_device(told).filter_map(|(worker, device)| {
        let name = format!("{} {}", text(&worker["id"]), text(&device["device"]));
        Some((name, device["load"].as_f64()?))
    });
    Section::new("Devices", &words).table("Devices now", &headings, rows.collect()).bars(
        "Load of each device, 0 to 1",
        "",
        &loads.collect::<Vec<_>>(),
    )
}

fn memory(told: &Told) -> Section {
    let known = |device: &Value| device["vram_used_bytes"].as_u64();
    let all = each_device(told).count();
    let told_of = each_device(told).filter(|(_, device)| known(device).is_some()).count();
    let words = format!(
        "{told_of} of {all} devices tell what models have taken of their memory; what a worker's \
         process takes of its machine's RAM is not known to the coordinator."
    );
    let rows = each_device(told).map(|(worker, device)| {
        let share = known(device).zip(device["vram_total_bytes"].as_u64().filter(|b| *b > 0));
        let share = share.map(|(used, total)| 100. * used as f64 / total as f64);
        row([
            text(&worker["id"]),
            text(&device["device"]),
            bytes(&device["vram_used_bytes"]),
            bytes(&device["vram_total_bytes"]),
            share.map_or(UNKNOWN.to_owned(), |share| format!("{share:.1} %")),
            device["models"].as_array().map_or(0, Vec::len).to_string(),
        ])
    });
    let bars = each_device(told).filter_map(|(worker, device)| {
        let name = format!("{} {}", text(&worker["id"]), text(&device["device"]));
        Some((name, known(device)? as f64 / 1_048_576.))
    });
    let headings = ["worker", "device", "taken", "may take", "share", "models"];
    Section::new("Memory", &words).table("Memory of devices now", &headings, rows.collect()).bars(
        "Memory that is taken",
        "MiB",
        &bars.collect::<Vec<_>>(),
    )
}

fn communication(told: &Told) -> Section {
    let quic = |what: &str, direction: &str| {
        told.metrics.get(&format!("lgp_quic_{what}{{direction=\"{direction}\"}}"))
    };
    let of = |what: &str| quic(what, "sent").zip(quic(what, "received"));
    let bytes = of("bytes");
    // Counters of a connection and of its worker start when the worker joins.
    let connected =
        told.workers.iter().filter(|w| w["state"] == "ready" || w["state"] == "draining");
    let finished: u64 = connected.map(|worker| count(&worker["completed"])).sum();
    let words = match bytes {
        None => "What travels between coordinator and workers is not known: the coordinator does \
                 not tell it. How long round trips take is not known either."
            .to_owned(),
        Some((sent, received)) => format!(
            "The workers' present connections have carried {} to them and {} back over QUIC. How \
             long round trips take is not known; what a task takes besides waiting and the model is \
             its overhead.",
            output::bytes(sent as u64),
            output::bytes(received as u64)
        ),
    };
    let mut rows = Vec::new();
    for (name, pair) in [("bytes", bytes), ("datagrams", of("datagrams"))] {
        let cell = |number: Option<f64>| number.map_or(UNKNOWN.to_owned(), |n| format!("{n:.0}"));
        let (sent, received) = pair.unzip();
        rows.push(row([name.to_owned(), cell(sent), cell(received)]));
        if finished > 0 {
            let each = |number: Option<f64>| {
                number.map_or(UNKNOWN.to_owned(), |n| format!("{:.1}", n / finished as f64))
            };
            let name =
                format!("{name} for each task that they finished, heartbeats and models included");
            rows.push(row([name, each(sent), each(received)]));
        }
    }
    let transports = told.workers.iter().map(|worker| {
        row([text(&worker["id"]), text(&worker["transport"]), digits(&worker["last_seen_ms"], 0)])
    });
    let parts = [("waiting", "queued_ms"), ("model", "model_ms"), ("overhead", "overhead_ms")];
    let parts = parts
        .iter()
        .filter(|_| count(&told.stats["tasks"]["succeeded"]) > 0)
        .filter_map(|(name, key)| Some(((*name).to_owned(), told.stats[*key]["mean"].as_f64()?)));
    Section::new("Communication", &words)
        .table("Over QUIC", &["", "to workers", "from workers"], rows)
        .table(
            "How large tensors travel",
            &["worker", "by", "last heard of, ms ago"],
            transports.collect(),
        )
        .bars("Where a task's time goes, means", "ms", &parts.collect::<Vec<_>>())
}

fn scaling(told: &Told) -> Section {
    let completed: Vec<u64> = told.workers.iter().map(|w| count(&w["completed"])).collect();
    let (all, most) = (completed.iter().sum::<u64>(), completed.iter().copied().max());
    let uptime = told.stats["uptime_s"].as_f64().filter(|uptime| *uptime > 0.);
    let words = match (most.filter(|most| *most > 0), uptime) {
        (Some(most), Some(uptime)) => format!(
            "{} finished {} since joining: {:.2} for each of the {uptime:.0} s that the coordinator has \
             run. A worker that joined after the coordinator began had less time. Had each done as many \
             as the busiest one, there would be {:.0} % more. How fast one worker alone would be is not \
             known: radeon-cluster bench cluster measures it.",
            output::counted(completed.len() as u64, "worker"),
            output::counted(all, "task"),
            all as f64 / uptime,
            100. * ((most * completed.len() as u64) as f64 / all as f64 - 1.)
        ),
        _ => "No worker has finished a task yet, so nothing is known of scaling.".to_owned(),
    };
    let model_ms = told.stats["model_ms"]["mean"].as_f64().filter(|_| all > 0);
    let rows = told.workers.iter().zip(&completed).map(|(worker, completed)| {
        let done = *completed as f64;
        let rate = uptime.map_or(UNKNOWN.to_owned(), |uptime| format!("{:.2}", done / uptime));
        let slots = worker["slots"].as_f64().filter(|slots| *slots > 0.);
        let busy = model_ms.zip(uptime).zip(slots).map(|((ms, uptime), slots)| {
            format!("{:.1} %", 100. * done * ms / 1e3 / (uptime * slots))
        });
        let share = if all > 0 { format!("{:.1} %", 100. * done / all as f64) } else { "-".into() };
        let busy = busy.unwrap_or(UNKNOWN.to_owned());
        row([text(&worker["id"]), completed.to_string(), rate, share, text(&worker["slots"]), busy])
    });
    let bars: Vec<_> = told
        .workers
        .iter()
        .zip(&completed)
        .map(|(worker, done)| (text(&worker["id"]), *done as f64))
        .collect();
    let service = each_device(told).flat_map(|(worker, device)| {
        let models = device["service_ms"].as_object().into_iter().flatten();
        models.map(move |(model, ms)| {
            row([text(&worker["id"]), text(&device["device"]), model.clone(), digits(ms, 3)])
        })
    });
    let headings = [
        "worker",
        "tasks",
        "tasks for each second that the coordinator has run",
        "share",
        "slots",
        "share of its slots' time since the coordinator began, at the mean time in a model",
    ];
    Section::new("Scaling", &words)
        .table("Tasks by worker since it joined", &headings, rows.collect())
        .bars("Tasks by worker", "tasks", &bars)
        .table(
            "Mean time of a model on a device, recent tasks first",
            &["worker", "device", "model", "ms"],
            service.collect(),
        )
}

fn scheduler(told: &Told) -> Section {
    let stats = &told.stats;
    let words = format!(
        "The strategy is {}; {} tasks wait, {} of them for a free device alone, and {} attempts had to \
         be repeated.",
        text(&stats["balancing"]),
        count(&stats["tasks"]["queued"]),
        count(&stats["runnable"]),
        count(&stats["retries"])
    );
    let decisions = [
        ("attempts repeated", "retries"),
        ("attempts that got a rival", "hedges"),
        ("attempts that made room for more urgent ones", "yielded"),
        ("attempts that went to a faster device", "moved"),
        ("times a breaker opened", "breakers_opened"),
        ("answers refused because they came too late", "stale_completions"),
        ("tasks refused because the queue was full", "overloaded"),
        ("runs stopped at their limit", "overran"),
        ("runs that did not stop", "hangs"),
        ("tasks in a batch, mean", "batch_mean"),
    ];
    let decisions = decisions.map(|(name, key)| row([name.to_owned(), text(&stats[key])]));
    let found = [
        ("devices for a model", "capability_cache"),
        ("affinity", "affinity"),
        ("commits shared", "group_commit"),
        ("shared buffers used again", "shared_buffers"),
    ];
    let found = found.map(|(name, key)| {
        let [hits, of] = ["hits", "of"].map(|part| count(&stats[key][part]));
        let share = (of > 0).then(|| format!("{:.1} %", 100. * hits as f64 / of as f64));
        let share = share.unwrap_or_else(|| "nothing was looked for".to_owned());
        row([name.to_owned(), hits.to_string(), of.to_string(), share])
    });
    let batches = told.metrics.of("nv_inference_count").map(|(labels, inferences)| {
        let runs = told.metrics.get(&format!("nv_inference_exec_count{{{labels}}}"));
        let mean = runs.filter(|runs| *runs > 0.).map(|runs| format!("{:.2}", inferences / runs));
        let runs = runs.map_or(UNKNOWN.to_owned(), |runs| format!("{runs:.0}"));
        row([labels.to_owned(), format!("{inferences:.0}"), runs, mean.unwrap_or(UNKNOWN.into())])
    });
    let waiting = ["queued", "running"].map(|name| over_time(told, name, &format!("/{name}")));
    Section::new("Scheduler", &words)
        .table("Decisions since the start", &["", "times"], decisions.to_vec())
        .table("Found of what was looked for", &["", "found", "of", "share"], found.to_vec())
        .table(
            "Batches of inferences through the Open Inference Protocol",
            &["model", "inferences", "runs", "mean batch"],
            batches.collect(),
        )
        .lines("Tasks that wait and that run", "s", "tasks", &waiting)
        .table(
            "Where the latest tasks went",
            &["model", "worker", "device", "tasks", "attempts", "in the model, mean ms"],
            placements(told),
        )
}

/// The latest tasks by model, worker and device.
fn placements(told: &Told) -> Vec<Vec<String>> {
    let mut places: BTreeMap<[String; 3], (u64, u64, f64, u64)> = BTreeMap::new();
    for task in told.tasks.iter().filter(|task| !task["worker"].is_null()) {
        let place = [text(&task["model"]), text(&task["worker"]), text(&task["device"])];
        let (tasks, attempts, ms, timed) = places.entry(place).or_default();
        *tasks += 1;
        *attempts += count(&task["attempts"]);
        if let Some(model_ms) = task["model_ms"].as_f64() {
            *ms += model_ms;
            *timed += 1;
        }
    }
    let told = places.into_iter().map(|([model, worker, device], (tasks, attempts, ms, timed))| {
        let mean = if timed > 0 { format!("{:.3}", ms / timed as f64) } else { UNKNOWN.to_owned() };
        row([model, worker, device, tasks.to_string(), attempts.to_string(), mean])
    });
    told.collect()
}
