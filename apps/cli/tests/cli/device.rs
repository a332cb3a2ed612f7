//! Models on the devices of OpenCL and Vulkan.

use crate::harness::{Cluster, World, ZERO, best, digits, eventually, npy, read_npy};
use serde_json::{Value, json};

/// Makes tests of functions that take a device that models run on: its id and its backend.
macro_rules! on_backends {
    ([$($backend:ident)+] $tests:tt) => { $(on_backends!(@on $backend $tests);)+ };
    (@on $backend:ident { $($test:ident)+ }) => {
        mod $backend {
            $(
                #[test]
                fn $test() {
                    let world = super::World::new();
                    if let Some(id) = super::device(&world, stringify!($backend)) {
                        super::$test(world, &id);
                    }
                }
            )+
        }
    };
}

on_backends!([opencl vulkan] {
    a_model_runs_there_and_each_node_says_where
    less_memory_than_weights_is_planned_and_profiled
    what_was_tuned_and_compiled_is_kept
    workers_compute_there
    a_worker_has_several_devices_with_models_of_their_own
});

/// The usable device of a backend; without one it prints that the test is skipped.
fn device(world: &World, backend: &str) -> Option<String> {
    let found = world.run(&["devices", "--json"]).json();
    let devices = found["devices"].as_array().expect("a list");
    let ways = devices.iter().flat_map(|device| device["ways"].as_array().into_iter().flatten());
    let of_backend =
        |way: &&Value| way["id"].as_str().is_some_and(|id| id.split(':').next() == Some(backend));
    let id = ways.filter(of_backend).find(|way| way["usable"] == true);
    if id.is_none() {
        println!("skipped: {backend}: no usable device");
    }
    Some(id?["id"].as_str()?.to_owned())
}

fn a_model_runs_there_and_each_node_says_where(world: World, id: &str) {
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let logits = |device: &str| {
        let run = ["run", digits(), "--input", &image, "--device", device, "--json"];
        assert_eq!(world.run(&run).json()["device"], json!(device));
        read_npy(&world.path("logits.npy")).1
    };
    let (there, here) = (logits(id), logits("cpu"));
    assert_eq!(best(&there), 0);
    for (a, b) in there.iter().zip(&here) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.), "{there:?} {here:?}");
    }

    let inspected = world.run(&["inspect", digits(), "--device", id, "--json"]).json();
    assert_eq!((&inspected["device"], &inspected["fallbacks"]), (&json!(id), &json!(0)));
    let nodes = inspected["placement"].as_array().expect("a list");
    assert!(!nodes.is_empty() && nodes.iter().all(|node| node["device"] == json!(id)));
    let people = world.run(&["inspect", digits(), "--device", id]).stdout;
    assert!(people.contains(&format!("compiled nodes run on {id}")), "{people}");

    let bench = ["bench", digits(), "--device", id, "--runs", "2", "--json"];
    assert_eq!(world.run(&bench).json()["device"], json!(id));
    let profile = ["profile", digits(), "--device", id, "--runs", "1", "--json"];
    let nodes = world.run(&profile).json()["nodes"].as_array().map_or(0, Vec::len);
    assert!(nodes > 0);

    let fast = ["run", digits(), "--input", &image, "--device", id, "--precision", "fast"];
    let (code, message) = world.run(&[&fast[..], &["--json"]].concat()).error(2);
    assert!(code == "usage" && message.contains("fast"), "{message}");
}

fn less_memory_than_weights_is_planned_and_profiled(world: World, id: &str) {
    let plan = |flags: &[&str]| {
        world.run(&[&["plan", digits(), "--device", id, "--json"], flags].concat()).json()
    };
    let all = plan(&[]);
    assert_eq!((&all["device"], &all["fits"]), (&json!(id), &json!(true)));
    assert_eq!(all["offload"]["streamed_bytes"], json!(0));
    assert!(all["optimal_batch"]["largest"].as_u64() > Some(1), "{all}");
    let smallest = all["offload"]["smallest_bytes"].as_u64().expect("a count").to_string();
    let small = plan(&["--vram", &smallest]);
    assert_eq!(
        (&small["fits"], &small["vram_bytes"]),
        (&json!(true), &json!(smallest.parse::<u64>().ok()))
    );
    assert!(small["offload"]["streamed_bytes"].as_u64() > Some(0), "{small}");
    assert!(small["offload"]["transfer_ms"].as_f64() > Some(0.), "{small}");
    let disk = plan(&["--vram", &smallest, "--host-memory", "1KiB"]);
    assert!(disk["offload"]["host_bytes"].as_u64() <= Some(1 << 10), "{disk}");
    assert!(disk["offload"]["from_disk_bytes"].as_u64() > Some(0), "{disk}");
    assert_eq!(plan(&["--vram", "2KiB"])["fits"], json!(false));

    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let logits = |flags: &[&str]| {
        let run = ["run", digits(), "--input", &image, "--device", id, "--json"];
        world.run(&[&run, flags].concat()).json();
        read_npy(&world.path("logits.npy")).1
    };
    let flags = ["--vram", &smallest, "--host-memory", "1KiB"];
    assert_eq!(logits(&flags[..2]), logits(&[]));
    assert_eq!(logits(&flags), logits(&[]));
    let run = ["run", digits(), "--input", &image, "--device", id, "--vram", "2KiB", "--json"];
    let (_, message) = world.run(&run).error(1);
    assert!(message.contains(&format!("{smallest} at least")), "{message}");

    let profile = ["profile", digits(), "--device", id, "--runs", "2", "--json"];
    let report = world.run(&profile).json();
    let phases = report["memory"]["phases"].as_array().expect("a list");
    assert_eq!(phases.len(), 6, "a load and a run, three times: {phases:?}");
    assert!(phases[1]["holders"]["arena"].as_u64() > Some(0), "{phases:?}");
    assert!(phases[1]["host_peaks"]["process"].as_u64() > Some(0), "{phases:?}");
    let file =
        |key: &str| std::fs::read_to_string(world.path(report[key].as_str().expect("a file")));
    let csv = file("memory_csv").expect("it was written");
    assert!(csv.starts_with("time_us,phase,memory,owner,owner_bytes,device_bytes"), "{csv}");
    assert!(file("memory_svg").expect("it was written").contains("arena"));
}

fn what_was_tuned_and_compiled_is_kept(world: World, id: &str) {
    let tune = ["tune", digits(), "--device", id, "--budget", "60", "--json"];
    let tuned = world.run(&tune).json();
    let nodes = tuned["nodes"].as_array().expect("a list");
    assert!(!nodes.is_empty());
    for node in nodes {
        let ms = |key: &str| node[key].as_f64().expect("a number");
        assert!(0. < ms("after_ms") && ms("after_ms") <= ms("before_ms"), "{node}");
    }
    assert!(nodes.iter().any(|node| node["tried"].as_u64() > Some(1)), "{nodes:?}");
    // Which nodes are faster on the CPU depends on the machine, but every node has kernels.
    let placement = &tuned["placement"];
    let moved = placement["on_host"].as_array().expect("a list").len() as u64;
    let ms = |key: &str| placement[key].as_f64().expect("a number");
    assert!(0. < ms("divided_ms") && ms("divided_ms") <= ms("device_ms"), "{placement}");
    let inspected = world.run(&["inspect", digits(), "--device", id, "--json"]).json();
    assert_eq!(inspected["fallbacks"], 0);
    let places = inspected["placement"].as_array().expect("a list");
    let measured = places.iter().filter(|place| place["measured"] == true).count() as u64;
    assert_eq!(measured, moved, "{inspected}");
    let kept = std::fs::read_dir(world.path("radeon-cluster/devices")).expect("it was made");
    let kept: Vec<_> = kept.map(|file| file.expect("readable").path()).collect();
    let count =
        |kind: &str| kept.iter().filter(|p| p.extension().is_some_and(|e| e == kind)).count();
    assert!(count("program") > nodes.len() && count("json") == 1, "{kept:?}");

    let people = world.run(&["tune", digits(), "--device", id, "--budget", "1"]).stdout;
    assert!(people.contains("all of them: "), "{people}");
    let (code, _) = world.run(&["tune", digits(), "--device", "cpu", "--json"]).error(1);
    assert_eq!(code, "device_without_schedules");
}

fn workers_compute_there(world: World, id: &str) {
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let cluster = Cluster::start_with(world, &["--workers", "1", "--device", id]);
    let worker = &cluster.run(&["workers"]).json()[0];
    assert_eq!((&worker["device"], &worker["backend"]), (&json!(id), &json!(id.split(':').next())));
    let out = cluster.world.path("out").display().to_string();
    let submit = ["submit", "--model", "digits", "--input", &image, "--wait", "--output-dir", &out];
    assert_eq!(cluster.run(&submit).json()["state"], json!("succeeded"));
    assert_eq!(best(&read_npy(&cluster.world.path("out/logits.npy")).1), 0);
    let bytes = |key: &str| cluster.run(&["workers"]).json()[0][key].as_u64();
    // Heartbeats report it.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while bytes("vram_used_bytes") < Some(1) && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let (used, total) = (bytes("vram_used_bytes"), bytes("vram_total_bytes"));
    assert!(Some(0) < used && used <= total, "{used:?} of {total:?}");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn a_list_of_devices_is_what_a_model_may_take() {
    let world = World::new();
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let list = "opencl:0,opencl:1";
    let args = ["run", digits(), "--input", &image, "--device", list, "--json"];
    let mut run = world.command(&args);
    let output = run.env("POCL_DEVICES", "pthread pthread").output().expect("the binary starts");
    let report: Value = match (output.status.code(), serde_json::from_slice(&output.stdout)) {
        (Some(0), Ok(report)) => report,
        _ => {
            let why: Value = serde_json::from_slice(&output.stderr).expect("an error in JSON");
            assert_eq!(why["error"]["code"], "device_missing", "{why}");
            return println!("skipped: opencl: {}", why["error"]["message"]);
        }
    };
    assert_eq!(report["device"], json!(list));
    assert_eq!(best(&read_npy(&world.path("logits.npy")).1), 0);
    let mixed = ["run", digits(), "--input", &image, "--device", "cpu,cpu", "--json"];
    assert_eq!(world.run(&mixed).error(2).0, "usage");
}

fn a_worker_has_several_devices_with_models_of_their_own(world: World, id: &str) {
    let list = format!("cpu,{id}");
    let (code, message) =
        world.run(&["start", "--device", &format!("{id},{id}"), "--json"]).error(2);
    assert!(code == "usage" && message.contains("twice"), "{message}");
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let cluster = Cluster::start_with(world, &["--workers", "1", "--device", &list]);
    let devices = cluster.run(&["workers"]).json()[0]["devices"].clone();
    let names: Vec<&str> = (0..2).filter_map(|at| devices[at]["device"].as_str()).collect();
    assert_eq!(names, ["cpu", id]);
    // The less loaded device depends on the machine, so the devices take turns.
    let http = cluster.endpoint["http"].as_str().expect("a URL");
    ureq::put(format!("{http}/api/v1/cluster/config/balancing"))
        .header("authorization", &cluster.bearer())
        .send_json(json!({ "strategy": "round_robin" }))
        .expect("a known strategy");
    let submit = ["submit", "--model", "digits", "--input", &image, "--wait"];
    for _ in 0..4 {
        assert_eq!(cluster.run(&submit).json()["state"], json!("succeeded"));
    }
    let devices = cluster.run(&["workers"]).json()[0]["devices"].clone();
    let measured = |at: usize| devices[at]["service_ms"]["digits/1"].as_f64() > Some(0.0);
    assert!(measured(0) && measured(1), "{devices}");
    assert!((0..2).all(|at| devices[at]["models"] == json!(["digits/1"])), "{devices}");
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

#[test]
fn models_make_room_for_one_another() {
    let world = World::new();
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    // The memory is enough for one model, not for two.
    let start = ["start", "--workers", "1", "--device", "cpu", "--http", "127.0.0.1:0"];
    let data = world.path("data").display().to_string();
    let start = [
        &start[..],
        &["--grpc", "127.0.0.1:0", "--quic", "127.0.0.1:0", "--data", &data, "--json"],
    ]
    .concat();
    let report = world.run(&["plan", digits(), "--json"]).json();
    let bytes = report["memory"]["peak_bytes"].as_u64().or(report["peak_bytes"].as_u64());
    let bytes = bytes.unwrap_or_else(|| panic!("no peak in {report}"));
    let mut command = world.command(&start);
    let output = command.env("RADEON_MODEL_MEMORY_BYTES", (bytes * 3 / 2).to_string()).output();
    assert!(output.expect("the binary starts").status.success());
    let run = |args: &[&str]| world.run(&[args, &["--data", &data, "--json"]].concat());
    run(&["models", "add", "other", digits()]).json();
    let held = || {
        let workers = run(&["workers"]).json();
        let models = workers[0]["models"].as_array().map_or(0, Vec::len);
        let (used, total) = (&workers[0]["vram_used_bytes"], &workers[0]["vram_total_bytes"]);
        assert!(used.as_u64() <= total.as_u64() && total.is_u64(), "{workers}");
        models
    };
    for name in ["other", "digits", "other", "digits"] {
        let submit = run(&["submit", "--model", name, "--input", &image, "--wait"]).json();
        assert_eq!(submit["state"], json!("succeeded"), "{submit}");
        // A heartbeat from before the change may list both for a moment.
        eventually("one model is there", || held() == 1);
        // The evicted model is still available.
        let models = run(&["models", "ls"]).json();
        let ready = |model: &Value| model["state"] == "ready";
        assert!(models.as_array().is_some_and(|all| all.iter().all(ready)), "{models}");
    }
    let huge = run(&["models", "deploy", "other", "--memory", "1GiB"]).json();
    assert_eq!(huge["deployment"]["memory_bytes"], json!(1 << 30));
    run(&["stop"]).json();
    world.expect_no_processes();
}
