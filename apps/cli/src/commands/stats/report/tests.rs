//! The page for busy clusters, for idle ones, and for odd answers.

use super::*;

fn busy() -> Told {
    let times = json!({"count": 9, "mean": 2.5, "p50": 2.0, "p95": 4.0, "p99": 5.0, "max": 6.0});
    let device = json!({
        "device": "cuda:0", "backend": "cuda", "running": 1, "slots": 2, "load": 0.5, "models": ["m/1"],
        "vram_used_bytes": 1u64 << 30, "vram_total_bytes": 4u64 << 30, "utilisation": null,
        "power_w": 120.4, "energy_j": null, "service_ms": {"m/1": 2.25},
    });
    let worker = |id: &str, completed: u64| {
        json!({
            "id": id, "state": "ready", "completed": completed, "slots": 2, "transport": "quic",
            "last_seen_ms": 12, "devices": [device],
        })
    };
    Told {
        stats: json!({
            "uptime_s": 10.0,
            "tasks": {"submitted": 94, "queued": 3, "running": 1, "succeeded": 88, "failed": 1, "cancelled": 1},
            "runnable": 2, "retries": 4, "batch_mean": 1.5, "balancing": "adaptive",
            "latency_ms": times, "queued_ms": times, "model_ms": times, "overhead_ms": times,
            "capability_cache": {"hits": 3, "of": 4},
        }),
        history: json!({
            "at_s": [100.0, 102.0, 104.0], "ended_per_s": [0.0, 2.0, 3.0], "queued": [0, 1, 2],
            "running": [1, 1, 1],
            "latency_ms": {"p50": [null, 2.0, 3.0], "p95": [null, 3.0, 4.0], "p99": [null, 4.0, 5.0]},
        }),
        workers: vec![worker("local-1", 6), worker("<img src=x onerror=alert(1)>", 4)],
        tasks: vec![
            json!({"model": "m/1", "worker": "local-1", "device": "cuda:0", "attempts": 2, "model_ms": 2.0}),
            json!({"model": "m/1", "worker": "local-1", "device": "cuda:0", "attempts": 1, "model_ms": 4.0}),
            json!({"model": "m/1", "worker": null, "device": null, "attempts": 0, "model_ms": null}),
        ],
        metrics: Metrics::read(
            "lgp_quic_bytes{direction=\"sent\"} 2048\nlgp_quic_bytes{direction=\"received\"} 1024\n\
             nv_inference_count{model=\"<b>\",version=\"1\"} 6\n\
             nv_inference_exec_count{model=\"<b>\",version=\"1\"} 4\n",
        ),
    }
}

#[test]
fn a_busy_cluster_is_told_in_words_and_numbers() {
    let page = page(&busy(), "http://127.0.0.1:1", "2026-01-01T00:00:00Z");
    for part in [
        "Of the tasks that have ended, 88 succeeded and 1 failed; half of the latest took up to 2.00 ms.",
        "2 of 2 workers are ready, with 2 devices in all.",
        "2 of 2 devices tell what models have taken",
        "25.0 %",
        "carried 2.0 KiB to them and 1.0 KiB back over QUIC",
        "2 workers finished 10 tasks since joining: 1.00 for each of the 10 s that the coordinator has run",
        "there would be 20 % more",
        "<td>204.8</td><td>102.4</td>",
        "The strategy is adaptive; 3 tasks wait, 2 of them",
        "<td>2</td><td>3</td><td>3.000</td>",
        "<td>6</td><td>4</td><td>1.50</td>",
        "75.0 %",
        "<td>120</td>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(page.matches("<polyline").count(), 6);
    assert_eq!(page.matches("<h2>").count(), 6);
    for foreign in ["<img", "<b>", "<script", "https:", "src=\"", "href="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
}

#[test]
fn traffic_is_of_the_tasks_of_those_that_are_connected() {
    let mut told = busy();
    told.workers[1]["state"] = json!("draining");
    let both = page(&told, "http://127.0.0.1:1", "now");
    assert!(both.contains("<td>204.8</td><td>102.4</td>"), "{both}");
    for gone in ["away", "lost"] {
        told.workers[1]["state"] = json!(gone);
        let page = page(&told, "http://127.0.0.1:1", "now");
        assert!(page.contains("<td>341.3</td><td>170.7</td>"), "{gone}: {page}");
    }
    told.workers[0]["state"] = json!("lost");
    let none = page(&told, "http://127.0.0.1:1", "now");
    assert!(!none.contains("for each task that they finished"), "{none}");
}

#[test]
fn what_is_not_known_is_said() {
    let told = Told {
        stats: json!({}),
        history: json!({}),
        workers: Vec::new(),
        tasks: Vec::new(),
        metrics: Metrics::default(),
    };
    let page = page(&told, "http://127.0.0.1:1", "now");
    for part in [
        "an unknown time after its coordinator started",
        "No task has succeeded yet, so latencies are not known.",
        "0 of 0 workers are ready",
        "What travels between coordinator and workers is not known",
        "nothing is known of scaling",
        "The strategy is not known",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert!(!page.contains("NaN") && !page.contains("<svg"));
}
