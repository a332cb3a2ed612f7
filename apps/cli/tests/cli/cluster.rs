//! The life of a cluster: start, use, stop.

use crate::bad_input::external;
use crate::harness::{
    self, Cluster, Outcome, World, ZERO, best, digits, eventually, npy, read_npy, signal, start,
};
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, TensorType};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

#[test]
fn a_cluster_starts_serves_and_stops() {
    let cluster = Cluster::start(World::new(), "2");
    let endpoint = cluster.endpoint.as_object().expect("an object");
    assert_eq!(endpoint.keys().collect::<Vec<_>>(), ["data", "grpc", "http", "pid", "quic"]);
    assert!(endpoint["grpc"].as_str().is_some_and(|grpc| grpc.starts_with("http://127.0.0.1:")));
    assert_eq!(cluster.workers("ready").len(), 2);
    let status = cluster.run(&["status"]).json();
    assert_eq!((&status["status"], &status["pid"]), (&json!("ok"), &endpoint["pid"]));
    assert_eq!(status["grpc"], endpoint["grpc"]);
    let models = cluster.run(&["models", "ls"]).json();
    assert_eq!((&models[0]["name"], &models[0]["state"]), (&json!("digits"), &json!("ready")));

    submit_and_fetch(&cluster);
    refusals(&cluster);

    // The cluster is found by its address and by its folder.
    let http = endpoint["http"].as_str().expect("a URL");
    let key = cluster.key_file();
    let by_address = ["status", "--detailed", "--server", http];
    let stranger = cluster.world.run(&[&by_address[..], &["--json"]].concat());
    assert_eq!(stranger.error(1).0, "unauthorized");
    let by_address = [&by_address[..], &["--key-file", &key]].concat();
    let detailed = cluster.world.run(&[&by_address[..], &["--json"]].concat()).json();
    assert_eq!(detailed["worker_list"].as_array().map(Vec::len), Some(2));
    let people = cluster.world.run(&by_address);
    assert!(people.stdout.contains("digits/1 (ready)"), "{people:?}");

    let stopped = cluster.run(&["stop"]).json();
    assert_eq!(stopped["stopped"], endpoint["http"]);
    let (code, message) = cluster.run(&["stop"]).error(1);
    assert_eq!(code, "not_running");
    assert!(message.contains(endpoint["data"].as_str().expect("a path")));
    for command in [&["status"][..], &["workers"], &["tasks"], &["models", "ls"]] {
        assert_eq!(cluster.run(command).error(1).0, "not_running", "{command:?}");
    }
    cluster.world.expect_no_processes();
}

fn submit_and_fetch(cluster: &Cluster) {
    let world = &cluster.world;
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let out = world.path("out").display().to_string();
    let submit = ["submit", "--model", "digits", "--input", &image];
    let done = cluster.run(&[&submit[..], &["--wait", "--output-dir", &out]].concat()).json();
    assert_eq!(done["state"], json!("succeeded"));
    assert_eq!(best(&read_npy(&world.path("out/logits.npy")).1), 0);

    let keyed = [&submit[..], &["--key", "k1", "--priority", "high"]].concat();
    let first = cluster.run(&keyed).json();
    let id = first["task_id"].as_str().expect("an id");
    assert_eq!(cluster.run(&keyed).json()["task_id"], first["task_id"], "the same task");
    let result = cluster.run(&["result", id, "--wait"]).json();
    assert_eq!(result["outputs"][0]["shape"], json!([1, 10]));
    let shown = cluster.run(&["tasks", "show", id]).json();
    assert_eq!((&shown["state"], &shown["priority"]), (&json!("succeeded"), &json!("high")));
    assert_eq!(cluster.run(&["tasks"]).json().as_array().map(Vec::len), Some(2));
    // The task has ended, so cancelling changes nothing and is no error.
    assert_eq!(cluster.run(&["cancel", id]).json()["state"], json!("succeeded"));
    assert_eq!(cluster.run(&["tasks", "retry", id]).error(1).0, "inputs_gone");

    let other = world.write("one.npy", npy(&[1, 1, 8, 8], &[1.; 64])).display().to_string();
    let conflict = ["submit", "--model", "digits", "--input", &other, "--key", "k1"];
    assert_eq!(cluster.run(&conflict).error(1).0, "conflict");
}

fn refusals(cluster: &Cluster) {
    let world = &cluster.world;
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let flat = world.write("flat.npy", npy(&[64], &ZERO)).display().to_string();
    let text = world.write("text.onnx", "this is no model").display().to_string();
    let submit = |model: &str, input: &str, flags: &[&str]| {
        let args = ["submit", "--model", model, "--input", input];
        cluster.run(&[&args[..], flags].concat()).error(1)
    };
    let (_, message) = submit("nope", &image, &[]);
    assert!(message.contains("nope"), "{message}");
    let (_, message) = submit("digits", &flat, &[]);
    assert!(message.contains("64") && message.contains('8'), "{message}");
    let (_, message) = submit("digits", &format!("x={image}"), &[]);
    assert!(message.contains("'x'") && message.contains("image"), "{message}");
    let (code, message) = submit("digits", &image, &["--depends-on", "0-99"]);
    assert_eq!(code, "unknown_task", "{message}");
    for id in ["0-99", "../workers", "x y"] {
        let (_, message) = cluster.run(&["result", id]).error(1);
        assert!(message.contains("task"), "{id}: {message}");
    }
    let (_, message) = cluster.run(&["models", "add", "text", &text]).error(1);
    assert!(message.contains("ONNX"), "{message}");
    assert_eq!(cluster.run(&["models", "add", "x", "/nonexistent"]).error(1).0, "file_not_found");
    let (_, message) = cluster.run(&["models", "rm", "nope"]).error(1);
    assert!(message.contains("nope"), "{message}");
}

#[test]
fn models_come_go_and_outlive_their_coordinator() {
    let cluster = Cluster::start(World::new(), "1");
    let added = cluster.run(&["models", "add", "mine", digits()]).json();
    assert_eq!((&added["version"], &added["state"]), (&json!(1), &json!("ready")));
    assert_eq!(cluster.run(&["models", "unload", "mine"]).json()["name"], json!("mine"));
    assert_eq!(cluster.run(&["models", "load", "mine"]).json()["state"], json!("ready"));
    cluster.run(&["stop"]).json();

    let cluster = Cluster::start(cluster.world, "1");
    let models = cluster.run(&["models", "ls"]).json();
    let ready = models.as_array().expect("an array").iter().filter(|m| m["state"] == "ready");
    assert_eq!(ready.count(), 2, "{models}");
    cluster.run(&["models", "rm", "mine"]).json();
    assert_eq!(cluster.run(&["models", "ls"]).json().as_array().map(Vec::len), Some(1));
    cluster.run(&["stop", "--now"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn an_alias_leads_to_models_and_answers_are_kept() {
    let cluster = Cluster::start(World::new(), "1");
    cluster.run(&["models", "add", "mine", digits()]).json();
    let made = cluster.run(&["models", "alias", "set", "prod", "mine/1:1", "digits:3"]).json();
    assert_eq!(made["targets"][1], json!({"model": "digits", "version": null, "weight": 3}));
    assert_eq!(submit_zero_waits(&cluster, "prod"), json!("succeeded"));
    let listed = cluster.run(&["models", "alias", "ls"]).json();
    assert_eq!(listed[0]["name"], json!("prod"));
    let (code, message) = cluster.run(&["models", "add", "prod", digits()]).error(1);
    assert!(code == "conflict" && message.contains("is an alias"), "{code}: {message}");
    let (code, message) = cluster.run(&["models", "alias", "set", "mine", "digits:1"]).error(1);
    assert!(code == "conflict" && message.contains("is a model"), "{code}: {message}");
    assert_eq!(cluster.run(&["models", "alias", "set", "a", "digits"]).error(2).0, "usage");
    let kept = cluster.run(&["models", "deploy", "mine", "--cache", "1MiB"]).json();
    assert_eq!(kept["deployment"]["cache_bytes"], json!(1 << 20));
    what_is_said_of_a_model_stays_until_it_is_cleared(&cluster);

    cluster.run(&["stop"]).json();
    let cluster = Cluster::start(cluster.world, "1");
    assert_eq!(submit_zero_waits(&cluster, "prod"), json!("succeeded"));
    let removed = cluster.run(&["models", "alias", "rm", "prod"]).json();
    assert_eq!(removed, json!({"name": "prod", "removed": true}));
    assert_eq!(submit_zero(&cluster, "prod").error(1).0, "unknown_model");
    cluster.run(&["stop", "--now"]).json();
    cluster.world.expect_no_processes();
}

/// Uses a model whose answers are cached.
fn what_is_said_of_a_model_stays_until_it_is_cleared(cluster: &Cluster) {
    let deploy = |flags: &[&str]| cluster.run(&[&["models", "deploy", "mine"], flags].concat());
    for (flags, cache, limit) in [
        (&["--run-limit-ms", "60000"][..], json!(1 << 20), json!(60_000)),
        (&["--cache", "2MiB", "--clear", "backend,family"], json!(2 << 20), json!(60_000)),
        (&["--clear", "cache_bytes"], json!(null), json!(60_000)),
        (&["--cache", "1MiB", "--clear", "run_limit_ms"], json!(1 << 20), json!(null)),
    ] {
        let said = deploy(flags).json()["deployment"].clone();
        assert_eq!((&said["cache_bytes"], &said["run_limit_ms"]), (&cache, &limit), "{flags:?}");
    }
    for (flags, exit, part) in [
        (&[][..], 2, "nothing is to be changed"),
        (
            &["--cache", "1MiB", "--clear", "cache_bytes"],
            2,
            "cache_bytes is given a value and is in --clear",
        ),
        (&["--clear", "cache"], 1, "unknown field `cache`"),
    ] {
        let (code, message) = deploy(flags).error(exit);
        assert!(message.contains(part), "{flags:?}: {code}: {message}");
    }
}

#[test]
fn a_worker_stays_that_has_a_model_which_a_new_one_cannot_load() {
    let cluster = Cluster::start(World::new(), "1");
    cluster.run(&["models", "add", "mine", digits()]).json();
    let before = cluster.workers("ready");
    let file = cluster.world.path("data/models/mine/1/model.onnx");
    std::fs::remove_file(&file).expect("the folder is ours");
    std::fs::write(&file, "no model").expect("the folder is ours");
    let (code, message) = cluster.run(&["restart"]).error(1);
    assert_eq!(code, "model_unloadable", "{message}");
    assert!(message.contains("mine/1") && message.contains("0 of 1"), "{message}");
    eventually("the new one has left", || cluster.workers("ready") == before);
    assert_eq!(submit_zero_waits(&cluster, "mine"), json!("succeeded"));
    // A worker that replaces a killed one cannot leave, and no request waits for it in vain.
    signal(before[0], Signal::KILL);
    eventually("the model is known not to load", || {
        let listed = cluster.run(&["models", "ls"]).json();
        let mine = listed.as_array().expect("an array").iter().find(|m| m["name"] == "mine");
        let mine = mine.expect("it is registered");
        mine["state"] == "unavailable"
            && mine["reason"].as_str().is_some_and(|r| r.contains("ONNX"))
    });

    // Without the model the restart succeeds.
    cluster.run(&["models", "rm", "mine"]).json();
    assert_eq!(cluster.run(&["restart"]).json(), json!({"restarted": 1, "ended": []}));
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn weights_travel_with_a_model_and_versions_serve_side_by_side() {
    let cluster = Cluster::start(World::new(), "1");
    let world = &cluster.world;
    std::fs::create_dir(world.path("weights")).expect("the folder is ours");
    world.write("weights/w.bin", [0; 8]);
    let net = world.write("net.onnx", external("./weights/w.bin")).display().to_string();
    let gone = world.write("gone.onnx", external("gone.bin")).display().to_string();
    let (code, message) = cluster.run(&["models", "add", "gone", &gone]).error(1);
    assert_eq!(code, "model_external_data", "{message}");
    // A user's version takes the name of the bundled model, which still serves.
    let added = cluster.run(&["models", "add", "digits", &net]).json();
    assert_eq!((&added["version"], &added["state"]), (&json!(2), &json!("ready")));

    // A request to a version uses that version's description, not the newest one's.
    assert_eq!(submit_zero(&cluster, "digits").error(1).0, "input_name");
    assert_eq!(submit_zero_waits(&cluster, "digits/1"), json!("succeeded"));
    assert_eq!(submit_zero(&cluster, "digits/3").error(1).0, "model_unknown");
    assert_eq!(submit_zero(&cluster, "digits/x").error(2).0, "usage");

    // An invalid file among the models keeps no coordinator from starting.
    let bad = world.path("data/models/bad/1");
    std::fs::create_dir_all(&bad).expect("the folder is ours");
    std::fs::write(bad.join("model.onnx"), "no model").expect("the folder is ours");
    cluster.run(&["stop"]).json();
    let cluster = Cluster::start(cluster.world, "1");
    let states = |expected: [&str; 3]| {
        eventually("models are as they were asked for", || {
            let models = cluster.run(&["models", "ls"]).json();
            let models = models.as_array().expect("an array").iter();
            models.map(|m| m["state"].as_str().expect("text")).collect::<Vec<_>>() == expected
        });
    };
    states(["unavailable", "ready", "ready"]);
    let listed = cluster.run(&["models", "ls"]).json();
    let reason = listed[0]["reason"].as_str().expect("text");
    assert!(listed[0]["name"] == "bad" && reason.contains("ONNX"), "{listed}");
    cluster.run(&["models", "unload", "digits/1"]).json();
    states(["unavailable", "unavailable", "ready"]);
    assert_eq!(submit_zero(&cluster, "digits/1").error(1).0, "model_not_ready");
    let loaded = cluster.run(&["models", "load", "digits/1"]).json();
    assert_eq!((&loaded["version"], &loaded["state"]), (&json!(1), &json!("ready")));
    cluster.run(&["models", "deploy", "digits", "--versions", "latest:1"]).json();
    states(["unavailable", "unavailable", "ready"]);
    cluster.run(&["models", "rm", "bad"]).json();
    let removed = cluster.run(&["models", "rm", "digits/2"]).json();
    assert_eq!(removed, json!({"name": "digits", "version": 2, "removed": true}));
    for wrong in ["digits/x", "digits/0", "digits/1/2"] {
        let (code, message) = cluster.run(&["models", "load", wrong]).error(2);
        assert!(code == "usage" && message.contains("expected a number from 1"), "{message}");
    }
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn inputs_beyond_a_frame_are_taken_durable_or_not() {
    let cluster = Cluster::start(World::new(), "1");
    let world = &cluster.world;
    let of = |dim| TensorType { dtype: DType::F32, shape: Some(SymShape(vec![dim])) };
    let mut graph = GraphBuilder::new("most");
    let x = graph.input("x", of(Dim::Symbol("n".into())));
    let y = graph.node("ReduceMax", &[x], []);
    graph.output("y", y, of(Dim::Known(1)));
    let model = graph.finish().expect("a sound graph").to_onnx().expect("a sound model");
    let model = world.write("most.onnx", model).display().to_string();
    cluster.run(&["models", "add", "most", &model]).json();
    // 68 MB, of which the last element is the greatest.
    let mut values = vec![-1.0; 17_000_000];
    values[16_999_999] = 7.5;
    let file = world.write("large.npy", npy(&[17_000_000], &values)).display().to_string();
    for durable in [&[][..], &["--durable"]] {
        let submit = ["submit", "--model", "most", "--input", &file, "--wait"];
        let done = cluster.run(&[&submit[..], durable].concat()).json();
        assert_eq!(
            (&done["state"], &done["outputs"][0]["data"]),
            (&json!("succeeded"), &json!([7.5]))
        );
    }
    let inputs = world.path("data/tasks.journal.inputs");
    eventually("its inputs go with the durable task", || {
        std::fs::read_dir(&inputs).expect("a folder").next().is_none()
    });
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

fn submit_zero(cluster: &Cluster, model: &str) -> Outcome {
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    cluster.run(&["submit", "--model", model, "--input", &image])
}

fn submit_zero_waits(cluster: &Cluster, model: &str) -> Value {
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let submit = ["submit", "--model", model, "--input", &image, "--wait"];
    cluster.run(&submit).json()["state"].clone()
}

#[test]
fn a_stop_that_waits_says_for_what() {
    let cluster = Cluster::start(World::new(), "1");
    // A hung worker: queued tasks cannot run, and the coordinator does not know for how long.
    cluster.workers("ready").into_iter().for_each(|pid| signal(pid, Signal::STOP));
    let data = cluster.endpoint["data"].as_str().expect("a path");
    submit_zero(&cluster, "digits").json();
    let mut stop = cluster.world.spawn(&["stop", "--data", data]);
    let mut line = String::new();
    let stderr = stop.stderr.take().expect("a pipe");
    BufReader::new(stderr).read_line(&mut line).expect("a line");
    assert!(line.contains("waiting for tasks") && line.contains("--now"), "{line}");
    cluster.run(&["stop", "--now"]).json();
    assert!(harness::output(stop).status.success());
    cluster.world.expect_no_processes();
}

#[test]
fn a_stop_does_not_wait_for_workers_that_are_not_to_come() {
    let cluster = Cluster::start(World::new(), "0");
    submit_zero(&cluster, "digits").json();
    let image = cluster.world.path("zero.npy").display().to_string();
    cluster.run(&["submit", "--model", "digits", "--input", &image, "--durable"]).json();
    // The durable task does not count: the next coordinator has it.
    assert_eq!(cluster.run(&["stop"]).json()["given_up"], json!(1));
    cluster.world.expect_no_processes();
}

#[test]
fn a_coordinator_for_every_address_has_local_workers_too() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let quic = ["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--quic", "0.0.0.0:0"];
    world.run(&[&["start", "--json", "--data", &data][..], &quic].concat()).json();
    world.run(&["stop", "--data", &data, "--json"]).json();
    world.expect_no_processes();
}

#[test]
fn a_folder_has_one_coordinator() {
    let cluster = Cluster::start(World::new(), "1");
    let (code, message) = start(&cluster.world, &["--workers", "1"]).error(1);
    assert_eq!(code, "already_running");
    assert!(message.contains(&format!("pid {}", cluster.pid())), "{message}");
    assert_eq!(cluster.run(&["status"]).json()["status"], json!("ok"), "the first one is well");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn flags_before_a_subcommand_count() {
    let cluster = Cluster::start(World::new(), "1");
    let world = &cluster.world;
    let http = cluster.endpoint["http"].as_str().expect("a URL");
    let key = cluster.key_file();
    let elsewhere = world.path("elsewhere").display().to_string();
    for (group, rest) in [
        ("workers", &["show", "0-99"][..]),
        ("workers", &["drain", "0-99"][..]),
        ("workers", &["revoked"][..]),
        ("tasks", &["show", "0-99"][..]),
        ("tasks", &["compact"][..]),
        ("tasks", &[][..]),
    ] {
        let run = |flags: &[&str], more: &[&str]| {
            world.run(&[&[group, "--json"][..], flags, rest, more].concat())
        };
        // No coordinator runs there, wherever the flag stands.
        assert_eq!(run(&["--data", &elsewhere], &[]).error(1).0, "not_running", "{group} {rest:?}");
        assert_eq!(run(&[], &["--data", &elsewhere]).error(1).0, "not_running", "{group} {rest:?}");
        let found = run(&["--server", http, "--key-file", &key], &[]);
        assert!(!found.stderr.contains("not_running"), "{group} {rest:?}: {found:?}");
        let both = run(&["--server", http], &["--data", &elsewhere]);
        assert_eq!(both.error(2).0, "usage", "{group} {rest:?}");
    }
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_port_in_use_is_said_and_leaves_nothing() {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let tcp = tcp.local_addr().expect("bound").to_string();
    let udp = udp.local_addr().expect("bound").to_string();
    let any = "127.0.0.1:0";
    for (http, quic, taken) in [(tcp.as_str(), any, &tcp), (any, udp.as_str(), &udp)] {
        // The sockets must outlive the attempts.
        let world = World::new();
        let data = world.path("data").display().to_string();
        let listeners = (std::net::TcpListener::bind(&tcp), std::net::UdpSocket::bind(&udp));
        for flags in [&[][..], &["--foreground"]] {
            let args = [
                "start",
                "--json",
                "--data",
                &data,
                "--http",
                http,
                "--grpc",
                "127.0.0.1:0",
                "--quic",
                quic,
            ];
            let outcome = world.run(&[&args[..], flags].concat());
            let (code, message) = outcome.error(1);
            assert_eq!(code, "address_in_use", "{message}");
            assert!(message.contains(taken.as_str()), "{message}");
            world.expect_no_processes();
        }
        drop(listeners);
    }
}

#[test]
fn an_address_for_everyone_is_refused() {
    let world = World::new();
    let data = world.path("data").display().to_string();
    let args = [
        "start",
        "--json",
        "--data",
        &data,
        "--http",
        "0.0.0.0:0",
        "--grpc",
        "127.0.0.1:0",
        "--quic",
        "127.0.0.1:0",
    ];
    assert_eq!(world.run(&args).error(1).0, "address_not_loopback");
    world.expect_no_processes();
}

#[test]
fn signals_end_a_coordinator_in_the_foreground() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let world = World::new();
        let data = world.path("data").display().to_string();
        let any = "127.0.0.1:0";
        let args = [
            "start",
            "--foreground",
            "--json",
            "--data",
            &data,
            "--http",
            any,
            "--grpc",
            any,
            "--quic",
            any,
        ];
        let mut child = world.spawn(&args);
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let endpoint: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(endpoint["pid"], json!(child.id()));
        crate::harness::signal(child.id(), signal);
        let output = harness::output(child);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        world.expect_no_processes();
    }
}

#[test]
fn an_address_where_nobody_listens() {
    let world = World::new();
    let (code, message) =
        world.run(&["status", "--json", "--server", "http://127.0.0.1:1"]).error(1);
    assert_eq!(code, "unreachable");
    assert!(message.contains("127.0.0.1:1"), "{message}");
    assert_eq!(world.run(&["status", "--json"]).error(1).0, "not_running");
}

#[test]
fn workers_come_go_and_are_replaced_while_requests_go_on() {
    let cluster = Cluster::start(World::new(), "2");
    let image = cluster.world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let before = cluster.workers("ready");
    let submit = ["submit", "--model", "digits", "--input", &image, "--wait"];
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| {
            for _ in 0..40 {
                assert_eq!(cluster.run(&submit).json()["state"], json!("succeeded"));
            }
        });
        assert_eq!(cluster.run(&["restart"]).json(), json!({"restarted": 2, "ended": []}));
        requests.join().expect("no request fails");
    });
    let after = cluster.workers("ready");
    assert!(after.len() == 2 && after.iter().all(|pid| !before.contains(pid)), "{after:?}");

    let workers = cluster.run(&["workers"]).json();
    let first = workers[0]["id"].as_str().expect("a name").to_owned();
    let shown = cluster.run(&["workers", "show", &first]).json();
    assert_eq!(shown["devices"].as_array().map(Vec::len), Some(1), "{shown}");
    let metrics = cluster.run(&["workers", "metrics", &first]).json();
    assert_eq!(metrics["id"], json!(first));
    cluster.run(&["workers", "drain", &first]).json();
    let listed = cluster.run(&["workers"]).json();
    assert!(listed.as_array().expect("an array").iter().all(|w| w["id"] != json!(first)));
    let (code, _) = cluster.run(&["workers", "shutdown", &first]).error(1);
    assert!(code.contains("unknown_worker"), "{code}");

    assert_eq!(cluster.run(&["scale", "--workers", "1"]).json()["workers"], json!(1));
    crate::harness::eventually("one is left", || cluster.workers("ready").len() == 1);
    let stats = cluster.run(&["stats"]).json();
    assert!(stats["tasks"]["succeeded"].as_u64() >= Some(40), "{stats}");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}
