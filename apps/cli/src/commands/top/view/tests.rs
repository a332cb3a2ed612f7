//! The terminal's contents, at 80 × 24 characters and at other sizes.

use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

fn snapshot() -> Snapshot {
    let times = |p50: f64| json!({ "p50": p50, "p95": p50 * 2.0, "p99": p50 * 3.0 });
    let device = json!({
        "device": "opencl:0", "name": "AMD Radeon RX 580", "running": 2, "utilisation": 0.97,
        "power_w": 142.25, "temperature_c": 71.0, "vram_used_bytes": 1u64 << 30, "vram_total_bytes": 8u64 << 30,
        "taken_out": null });
    let out =
        json!({ "device": "opencl:1", "taken_out": "3 runs on it did not stop", "running": 0 });
    let worker = |id: &str, state: &str, devices: Value| {
        json!({
            "id": id, "state": state, "device": "opencl:0", "running": 2, "queued": 1, "load": 0.5,
            "vram_used_bytes": 1u64 << 30, "vram_total_bytes": 8u64 << 30, "last_seen_ms": 1200,
            "devices": devices,
            "unused": [{ "id": "pci:0000:02:00.0", "name": "AMD Radeon RX 570",
                "reason": "rusticl is off", "hint": "export RUSTICL_ENABLE=radeonsi" }] })
    };
    Snapshot {
        server: "http://127.0.0.1:8000".to_owned(),
        coordinator: json!({ "version": "0.1.0" }),
        health: json!({ "status": "degraded" }),
        stats: json!({
            "uptime_s": 185.4, "tasks_per_s": 12.34,
            "workers": { "ready": 1, "draining": 0, "lost": 1 },
            "tasks": { "queued": 7, "running": 2, "succeeded": 1234, "failed": 1 },
            "queued_by_model": { "digits/1": 4, "gone/2": 3 },
            "latency_ms": times(1.5), "queued_ms": times(0.5), "model_ms": times(1.0),
            "overhead_ms": times(0.25) }),
        history: json!({
            "ended_per_s": [0.0, 4.0, 8.0, 16.0], "latency_ms": { "p95": [null, 1.0, 2.0, 3.0] } }),
        workers: vec![
            worker("farm-1", "ready", json!([device, out])),
            worker("farm-2", "lost", json!([])),
        ],
        models: vec![
            json!({ "name": "digits", "version": 1, "state": "ready", "workers": ["farm-1"] }),
        ],
        tasks: vec![json!({ "task_id": "7-12", "model": "digits/1", "state": "succeeded",
            "worker": "farm-1", "queued_ms": 0.5, "model_ms": 1.04 })],
        logs: vec![
            json!({ "at": "2026-01-02T03:04:05.678901Z", "level": "info", "text": "worker joined" }),
            json!({ "at": "2026-01-02T03:04:06.678901Z", "level": "warn", "text": "a \u{1b}[2J lost" }),
        ],
    }
}

/// The screen's text after `act` on the view.
fn screen(width: u16, height: u16, act: impl FnOnce(&mut View)) -> String {
    let mut view = View::new(snapshot());
    act(&mut view);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
    terminal.draw(|frame| view.draw(frame)).expect("it draws");
    terminal.backend().to_string()
}

#[test]
fn each_page_fits_an_old_terminal() {
    for (page, name) in (0..).zip(["workers", "devices", "models", "tasks", "log"]) {
        insta::assert_snapshot!(name, screen(80, 24, |view| view.turn(page)));
    }
}

#[test]
fn a_coordinator_that_is_gone_is_told() {
    let shown = screen(80, 24, |view| {
        view.miss("cannot reach http://127.0.0.1:8000".to_owned());
        view.age_s = 9;
    });
    assert!(shown.contains("heard 9 s ago, asking again: cannot reach"), "{shown}");
    assert!(shown.contains("farm-1"), "what was heard last stays");
    let shown = screen(80, 24, |view| {
        view.miss("gone".to_owned());
        view.hear(snapshot());
    });
    assert!(shown.contains("q quit") && !shown.contains("gone:"), "{shown}");
}

#[test]
fn any_size_is_drawn_and_every_row_is_reached() {
    for (width, height) in [(1, 1), (10, 3), (40, 8), (200, 60)] {
        screen(width, height, |view| view.move_by(1000));
    }
    let mut view = View::new(snapshot());
    view.turn(-1);
    assert_eq!(view.page, pages::COUNT - 1);
    let last = screen(80, 9, |view| {
        view.turn(1);
        view.move_by(1000);
    });
    assert!(last.contains("farm-2       pci:0000:0"), "the last row is in view: {last}");
    assert!(last.contains("RX 570: not used: rusticl is off"), "and told in full: {last}");
    assert_eq!((View::rows_shown(24), View::rows_shown(3)), (16, 1));
}

#[test]
fn a_pipe_gets_all_pages_at_once() {
    insta::assert_snapshot!(pages::text(&snapshot()));
}
