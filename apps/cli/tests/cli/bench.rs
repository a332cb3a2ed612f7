//! `bench`: its kinds, and the comparison with an earlier run.

use crate::harness::{Cluster, World, digits};
use serde_json::{Value, json};

/// The values of a quantity, which must exist.
#[track_caller]
fn values<'a>(report: &'a Value, name: &str) -> &'a Vec<Value> {
    let sample = &report["samples"][name];
    let values = sample["values"].as_array().unwrap_or_else(|| panic!("{name} in {report}"));
    assert!(!values.is_empty() && sample["unit"].is_string(), "{name}: {sample}");
    assert!(["lower", "higher", "neither"].contains(&sample["better"].as_str().expect("text")));
    values
}

/// Runs a kind quickly, and checks the parts that all kinds share.
#[track_caller]
fn quick(world: &World, kind: &str, flags: &[&str]) -> Value {
    let run = world.run(&[&["bench", kind, "--quick", "--json"], flags].concat());
    let report = run.json();
    assert_eq!(report["kind"], json!(kind));
    assert_eq!(report["version"], json!(env!("CARGO_PKG_VERSION")));
    assert!(report["date"].as_str().is_some_and(|date| date.ends_with('Z')), "{report}");
    assert!(report["machine"]["cores"].as_u64() > Some(0) && report["config"].is_object());
    report
}

#[test]
fn a_word_of_the_six_is_a_kind_and_a_path_is_a_model() {
    let world = World::new();
    let bundled = quick(&world, "local", &["--runs", "3"]);
    assert_eq!((&bundled["model"], &bundled["runs"]), (&json!("digits"), &json!(3)));
    assert_eq!(values(&bundled, "latency").len(), 3);
    let bytes = std::fs::read(digits()).expect("bundled");
    world.write("cluster", bytes);
    let report = world.run(&["bench", "./cluster", "--runs", "2", "--json"]).json();
    assert_eq!((&report["kind"], &report["model"]), (&json!("local"), &json!("./cluster")));
    let same = world.run(&["bench", "local", "cluster", "--runs", "2", "--json"]).json();
    assert_eq!(same["config"], report["config"]);
    let outcome = world.run(&["bench", "clusters", "--json"]);
    assert_eq!(outcome.error(1).0, "file_not_found");
}

#[test]
fn a_run_is_compared_with_an_earlier_one_by_intervals() {
    let world = World::new();
    let local = |flags: &[&str]| {
        world.run(&[&["bench", digits(), "--threads", "1", "--json"], flags].concat())
    };
    let first = local(&["--runs", "30", "-o", "first.json"]).json();
    let file = std::fs::read(world.path("first.json")).expect("written");
    assert_eq!(serde_json::from_slice::<Value>(&file).expect("JSON"), first);
    let earlier = |factor: f64| {
        let mut changed = first.clone();
        let latency = changed["samples"]["latency"]["values"].as_array_mut().expect("values");
        for value in latency {
            *value = json!(value.as_f64().expect("a number") * factor);
        }
        world.write("earlier.json", changed.to_string())
    };
    let beside = ["--runs", "20", "--baseline", "earlier.json"];

    // Far more than a busy machine changes a median.
    earlier(100.);
    let faster = local(&beside).json();
    let latency = &faster["comparison"]["metrics"]["latency"];
    assert_eq!(latency["verdict"], json!("faster"), "{latency}");
    assert!(latency["high"].as_f64() < Some(0.5) && latency["low"].as_f64() > Some(0.));
    let load = &faster["comparison"]["metrics"]["load"];
    assert_eq!((&load["verdict"], &load["low"]), (&json!("too few values"), &Value::Null));
    assert_eq!(faster["comparison"]["same_machine"], json!(true));
    assert_eq!(faster["comparison"]["same_version"], json!(true));

    earlier(0.01);
    let slower = local(&beside);
    assert_eq!(slower.code, Some(1), "{slower:?}");
    let report: Value = serde_json::from_str(&slower.stdout).expect("the whole result");
    assert_eq!(report["comparison"]["regressions"], json!(["latency"]));
    let error: Value = serde_json::from_str(slower.stderr.trim()).expect("one error");
    assert_eq!(error["error"]["code"], json!("regression"));
    let text = world.run(&["bench", digits(), "--threads", "1", "--baseline", "earlier.json"]);
    assert!(text.stdout.contains("slower") && text.stdout.contains("interval"), "{text:?}");

    let (code, message) = local(&["--batch", "2", "--baseline", "earlier.json"]).error(1);
    assert_eq!(code, "other_config");
    assert!(message.contains("inputs was"), "{message}");
    let memory = world.run(&["bench", "memory", "--baseline", "earlier.json", "--json"]);
    assert_eq!(memory.error(1).0, "other_kind");
    world.write("earlier.json", "{}");
    assert_eq!(local(&beside).error(1).0, "bad_baseline");
    // Refused before the model is loaded, which does not exist here.
    for (flag, file, code) in
        [("--baseline", "earlier.json", "bad_baseline"), ("-o", "none/a.json", "file_not_found")]
    {
        let refused = world.run(&["bench", "local", "nobody.onnx", flag, file, "--json"]);
        let (found, message) = refused.error(1);
        assert!(found == code && !message.contains("nobody"), "{found}: {message}");
    }
    // Also refused before the device is looked up, which is unknown here.
    let flags = ["--device", "nobody:0", "--baseline", "earlier.json"];
    let refused = world.run(&[&["bench", "cluster", "--json"], &flags[..]].concat());
    assert_eq!(refused.error(1).0, "bad_baseline");
    assert_eq!(local(&["--tolerance", "much"]).error(2).0, "usage");
}

#[test]
fn memory_and_devices_are_measured() {
    let world = World::new();
    let memory = quick(&world, "memory", &[]);
    for name in [
        "pool allocation",
        "pool hits",
        "arena range",
        "device half allocation",
        "device oldest free",
        "device random fragmentation",
        "device random_defragmented moved",
        "load_and_run peak_rss",
        "load_and_run load",
    ] {
        assert_eq!(values(&memory, name).len(), 4, "{name}");
    }
    let peak = values(&memory, "load_and_run peak_rss")[0].as_f64();
    assert!(peak > Some(1e6), "{peak:?}");

    // The processor's OpenCL compiles slowly, and is tested as a device elsewhere.
    let mut command = world.command(&["bench", "devices", "--quick", "--json"]);
    let output = command.env("OCL_ICD_VENDORS", world.folder.path()).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let devices: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for name in ["to", "from", "gemm node", "conv node", "digits"] {
        let values = values(&devices, &format!("cpu {name}"));
        assert!(values.len() == 5 && values.iter().all(|v| v.as_f64() > Some(0.)), "{values:?}");
    }
    assert_eq!(devices["config"]["devices"][0], json!("cpu"));
    assert!(devices["devices_not_used"].is_array());
}

#[test]
fn a_cluster_scales_and_serves_and_leaves_nothing() {
    let world = World::new();
    let cluster = quick(&world, "cluster", &["--device", "cpu"]);
    for workers in [1, 2] {
        assert_eq!(values(&cluster, &format!("{workers} throughput")).len(), 4);
        for name in ["latency p99", "model p50", "overhead p95"] {
            assert_eq!(values(&cluster, &format!("{workers} {name}")).len(), 4);
        }
    }
    let scaling = cluster["scaling"].as_array().expect("a row for each number");
    assert_eq!(scaling.len(), 2);
    assert!((scaling[0]["efficiency"].as_f64().expect("a number") - 1.).abs() < 1e-9);
    let serving = quick(&world, "serving", &["--rate", "50", "--connections", "4"]);
    for protocol in ["http", "grpc"] {
        for name in ["closed rate", "closed p50", "open rate", "open p99", "open errors"] {
            assert_eq!(values(&serving, &format!("{protocol} {name}")).len(), 4);
        }
    }
    world.expect_no_processes();
}

#[test]
fn a_running_cluster_is_measured_and_stays() {
    let cluster = Cluster::start(World::new(), "1");
    let serving = cluster.run(&["bench", "serving", "--quick", "--rate", "50"]).json();
    assert_eq!(serving["config"]["temporary"], json!(false));
    values(&serving, "grpc closed p95");
    let unknown = cluster.run(&["bench", "serving", "--quick", "--model", "nobody"]);
    let (code, message) = unknown.error(1);
    assert_eq!(code, "not_served");
    assert!(message.contains("nobody"), "{message}");
    let server = cluster.endpoint["http"].as_str().expect("an address");
    let http = ["bench", "serving", "--quick", "--rate", "50", "--json", "--server", server];
    let http = cluster.world.run(&http).json();
    assert_eq!(http["grpc_measured"], json!(false));
    assert_eq!(http["config"]["protocols"], json!(["http"]));
    assert_eq!(cluster.workers("ready").len(), 1);
}

#[test]
fn the_demo_is_measured_several_times() {
    let world = World::new();
    let report = quick(&world, "end-to-end", &[]);
    for name in ["whole", "throughput", "accuracy", "latency p50", "model p95", "overhead p99"] {
        assert_eq!(values(&report, name).len(), 4);
    }
    assert_eq!(report["lost"], json!(0));
    world.expect_no_processes();
}
