//! `run`, `bench` and `inspect` on model files, without a cluster.

use crate::harness::{World, ZERO, best, digits, npy, npy_of, read_npy};
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, TensorType};
use serde_json::json;
use std::process::Stdio;

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

/// `a/b = relu(x)` and `a:b = relu(y)`: output names that cannot be file names.
fn two_inputs(world: &World) -> String {
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Symbol("n".into())])) };
    let mut graph = GraphBuilder::new("two");
    for (input, output) in [("x", "a/b"), ("y", "a:b")] {
        let value = graph.input(input, ty.clone());
        let value = graph.node("Relu", &[value], []);
        graph.output(output, value, ty.clone());
    }
    let model = graph.finish().expect("a sound graph");
    text(&world.write("two.onnx", model.to_onnx().expect("a sound model")))
}

#[test]
fn run_writes_what_the_model_says() {
    let world = World::new();
    let image = text(&world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)));
    let out = text(&world.path("out"));
    for input in [image.clone(), format!("image={image}")] {
        let report =
            world.run(&["run", digits(), "--input", &input, "--output-dir", &out, "--json"]).json();
        assert_eq!(report["outputs"][0]["shape"], json!([1, 10]));
        assert_eq!(report["outputs"][0]["file"], json!(format!("{out}/logits.npy")));
        assert_eq!((&report["device"], &report["precision"]), (&json!("cpu"), &json!("f32")));
    }
    let (shape, logits) = read_npy(&world.path("out/logits.npy"));
    assert_eq!((shape.as_str(), best(&logits)), ("1, 10", 0));
}

#[test]
fn an_answer_is_told_where_its_files_cannot_be_written() {
    let world = World::new();
    let image = text(&world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)));
    std::fs::create_dir(world.path("logits.npy")).expect("the folder is ours");
    let outcome = world.run(&["run", digits(), &image, "--json"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let told: serde_json::Value = serde_json::from_str(&outcome.stderr).expect("JSON");
    let message = told["error"]["message"].as_str().expect("a text");
    assert!(message.contains("logits.npy"), "{message}");
    assert_eq!(told["error"]["hint"], json!("--output-dir DIR says where the outputs go"));
    let report: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert_eq!(report["outputs"][0]["shape"], json!([1, 10]));
    assert!(report["outputs"][0]["file"].is_null(), "{report}");
    // With an explicit folder the files are required.
    let outcome = world.run(&["run", digits(), &image, "--output-dir", ".", "--json"]);
    assert_eq!(outcome.error(1).0, "io");
}

#[test]
fn run_takes_several_inputs_and_odd_names() {
    let world = World::new();
    let model = two_inputs(&world);
    let x = format!("x={}", text(&world.write("x.npy", npy(&[2], &[-1., 2.]))));
    // Big-endian, as some other machine would write it.
    let body = [3f32, -4.].iter().flat_map(|value| value.to_be_bytes()).collect();
    let y = format!("y={}", text(&world.write("y.npy", npy_of(">f4", &[2], body))));
    world.run(&["run", &model, "--input", &x, "--input", &y, "--threads", "1", "--json"]).json();
    assert_eq!(read_npy(&world.path("a_b.npy")), ("2,".to_owned(), vec![0., 2.]));
    assert_eq!(read_npy(&world.path("a_b_.npy")), ("2,".to_owned(), vec![3., 0.]));
}

#[test]
fn run_takes_images() {
    let world = World::new();
    let mut picture = image::GrayImage::new(16, 16);
    for (x, y, pixel) in picture.enumerate_pixels_mut() {
        let at = (y / 2 * 8 + x / 2) as usize;
        pixel.0 = [(ZERO[at] * 15.9375) as u8];
    }
    picture.save(world.path("zero.png")).expect("the folder is ours");
    // A copy of the model, with a configuration that scales pixels to its range.
    let model = text(&world.write("digits.onnx", std::fs::read(digits()).expect("bundled")));
    world.write("digits.toml", "scale = 0.0627451\n");
    let zero = text(&world.path("zero.png"));
    world.run(&["run", &model, "--input", &zero, "--json"]).json();
    assert_eq!(best(&read_npy(&world.path("logits.npy")).1), 0);
}

#[test]
fn bench_reports_the_promised_keys() {
    let world = World::new();
    let report =
        world.run(&["bench", digits(), "--batch", "3", "--runs", "5", "--threads", "1", "--json"]);
    let report = report.json();
    let keys: Vec<&String> = report.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        [
            "batch",
            "config",
            "date",
            "device",
            "kind",
            "latency_ms",
            "load_ms",
            "machine",
            "model",
            "peak_rss_bytes",
            "precision",
            "runs",
            "samples",
            "threads",
            "version"
        ]
    );
    assert_eq!(
        (&report["batch"], &report["runs"], &report["threads"]),
        (&json!(3), &json!(5), &json!(1))
    );
    let latency = |key: &str| report["latency_ms"][key].as_f64().expect("a number");
    assert!(0.0 < latency("min") && latency("min") <= latency("p50"));
    assert!(latency("p50") <= latency("p95") && latency("p95") <= latency("p99"));
    assert!(report["peak_rss_bytes"].as_u64() > Some(1 << 20));
}

#[test]
fn inspect_describes_the_model() {
    let world = World::new();
    let report = world.run(&["inspect", digits(), "--json"]).json();
    assert_eq!(report["inputs"][0]["name"], json!("image"));
    assert_eq!(report["inputs"][0]["dtype"], json!("f32"));
    assert_eq!(
        report["inputs"][0]["shape"].as_array().expect("a rank")[1..],
        json!([1, 8, 8]).as_array().expect("three")[..]
    );
    assert_eq!(report["outputs"][0]["name"], json!("logits"));
    let ops = report["ops"].as_object().expect("an object").values();
    assert_eq!(json!(ops.filter_map(serde_json::Value::as_u64).sum::<u64>()), report["nodes"]);
    assert!(report["parameters"].as_u64() > Some(1000));
    assert_eq!((&report["runs"], &report["reason"]), (&json!(true), &json!(null)));
    let people = world.run(&["inspect", digits()]);
    assert!(people.stdout.contains("image") && people.stdout.contains("Conv"), "{people:?}");
}

#[test]
fn plan_says_what_fits() {
    let world = World::new();
    let report = world.run(&["plan", digits(), "--vram", "1MiB", "--batch", "2", "--json"]).json();
    let keys: Vec<&String> = report.as_object().expect("an object").keys().collect();
    insta::assert_snapshot!("plan_keys", format!("{keys:#?}"));
    let bytes = |key: &str| report[key].as_u64().expect("a count");
    let parts = ["weights_bytes", "input_bytes", "output_bytes", "arena_bytes", "scratch_bytes"];
    assert_eq!(parts.iter().map(|key| bytes(key)).sum::<u64>(), bytes("peak_bytes"));
    assert!(bytes("lower_bound_bytes") <= bytes("arena_bytes"));
    assert_eq!((&report["fits"], &report["vram_bytes"]), (&json!(true), &json!(1 << 20)));
    let best = report["optimal_batch"]["largest"].as_u64().expect("a count");
    let plan = |batch: u64| {
        let batch = batch.to_string();
        let args = ["plan", digits(), "--vram", "1MiB", "--batch", &batch, "--json"];
        world.run(&args).json()["fits"].clone()
    };
    assert_eq!((plan(best), plan(best + 1)), (json!(true), json!(false)));
    let people = world.run(&["plan", digits(), "--vram", "1KiB"]);
    assert!(people.stdout.contains("does not fit into 1.0 KiB"), "{people:?}");
    let (code, _) = world.run(&["plan", digits(), "--vram", "much", "--json"]).error(2);
    assert_eq!(code, "usage");
}

#[cfg(target_arch = "x86_64")]
fn has_bf16() -> bool {
    std::is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_bf16() -> bool {
    false
}

#[test]
fn plan_does_not_praise_a_batch_that_is_refused() {
    let world = World::new();
    let dims = vec![Dim::Symbol("n".into()), Dim::Symbol("w".into())];
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
    let mut graph = GraphBuilder::new("one");
    let x = graph.input("x", ty.clone());
    let shape = lgp_memory::Tensor::from_slice([2], &[1i64, 1]).expect("two numbers");
    let shape = graph.initializer("shape", shape);
    let y = graph.node("Reshape", &[x, shape], []);
    let y = graph.node("Relu", &[y], []);
    graph.output("y", y, ty);
    let model = graph.finish().expect("a sound graph").to_onnx().expect("a sound model");
    let model = text(&world.write("one.onnx", model));
    let plan = |batch: &str| {
        let args = ["plan", &model, "--vram", "1MiB", "--batch", batch];
        (world.run(&[&args[..], &["--json"]].concat()).json(), world.run(&args).stdout)
    };
    let (one, people) = plan("1");
    assert_eq!((&one["fits"], &one["batch_refused"]), (&json!(true), &json!(false)));
    assert_eq!(one["assumed"], json!([{ "input": "x", "axis": 1, "dimension": "w" }]));
    assert_eq!(one["optimal_batch"]["largest"], json!(1));
    assert!(people.contains("dimension 1 (w) of 'x' is open, and planned as 1"), "{people}");
    let (four, people) = plan("4");
    assert_eq!((&four["fits"], &four["batch_refused"]), (&json!(null), &json!(true)));
    assert!(people.contains("refuses that batch"), "{people}");
}

#[test]
fn precisions_and_instructions_agree_about_a_digit() {
    let world = World::new();
    let image = text(&world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)));
    let mut exact = Vec::new();
    for flags in [
        ["--simd", "scalar"],
        ["--simd", "avx2"],
        ["--simd", "auto"],
        ["--precision", "fast"],
        ["--precision", "int8"],
    ] {
        let args = [&["run", digits(), "--input", &image, "--json"], &flags[..]].concat();
        let report = world.run(&args).json();
        let logits = read_npy(&world.path("logits.npy")).1;
        assert_eq!(best(&logits), 0, "{flags:?}");
        if flags[0] == "--precision" {
            assert_eq!(report["precision"], json!(flags[1]));
            // Lower precision gives other numbers, if the machine has the instructions.
            let other = flags[1] == "int8" || has_bf16();
            assert_eq!(logits != exact, other, "{flags:?}: {logits:?}, exactly {exact:?}");
        } else {
            exact = logits;
        }
    }
    let profile = ["profile", digits(), "--runs", "1", "--precision", "int8", "--json"];
    let profile = world.run(&profile).json();
    let operators = profile["operators"].as_array().expect("a list");
    assert!(operators.iter().any(|op| op["op"] == "QMatMul"), "{profile}");
    let output = world
        .command(&["run", digits(), "--input", &image, "--json"])
        .env("RADEON_SIMD", "neon")
        .output()
        .expect("the binary starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("RADEON_SIMD"), "{said}");
}

#[test]
fn profile_names_the_nodes_and_writes_its_files() {
    let world = World::new();
    let out = text(&world.path("new/folder"));
    let args = ["profile", digits(), "--runs", "2", "--output-dir", &out];
    let report = world.run(&[&args[..], &["--json"]].concat()).json();
    let nodes = report["nodes"].as_array().expect("a list");
    let time: f64 = nodes.iter().filter_map(|node| node["ms"].as_f64()).sum();
    let total = report["total_ms"].as_f64().expect("a number");
    assert!(0. < time && time <= total * 1.001, "{time} of {total} ms");
    let operators = report["operators"].as_array().expect("a list");
    let counted: u64 = operators.iter().filter_map(|op| op["nodes"].as_u64()).sum();
    assert_eq!(json!(counted), json!(nodes.len()));
    assert_eq!(report["trace"], json!(format!("{out}/digits.trace.json")));
    let trace = std::fs::read_to_string(world.path("new/folder/digits.trace.json"));
    let trace: serde_json::Value =
        serde_json::from_str(&trace.expect("it is written")).expect("JSON");
    let events = trace["traceEvents"].as_array().or_else(|| trace.as_array());
    assert!(events.is_some_and(|events| events.len() >= nodes.len()), "{trace}");
    let svg = std::fs::read_to_string(world.path("new/folder/digits.svg")).expect("it is written");
    assert!(svg.contains("<svg"), "{svg}");
    let people = world.run(&args);
    for part in ["operator", "nodes", "between nodes", "digits.svg"] {
        assert!(people.stdout.contains(part), "{people:?} lacks {part}");
    }
    let file = text(&world.write("file", "in the way"));
    let (code, message) =
        world.run(&["profile", digits(), "--output-dir", &file, "--json"]).error(1);
    assert!(message.contains("file"), "{code}: {message}");
}

#[test]
fn run_writes_strings_as_json() {
    let world = World::new();
    let ty = |dtype| TensorType { dtype, shape: Some(SymShape(vec![Dim::Known(2)])) };
    let mut graph = GraphBuilder::new("words");
    let x = graph.input("x", ty(DType::F32));
    let words = graph.node("Cast", &[x], [("to", lgp_inference::Attr::Int(8))]);
    graph.output("words", words, ty(DType::Str));
    let model = graph.finish().expect("a sound graph").to_onnx().expect("a sound model");
    let model = text(&world.write("words.onnx", model));
    let x = text(&world.write("x.npy", npy(&[2], &[1.5, -2.])));
    let report = world.run(&["run", &model, "--input", &x, "--json"]).json();
    let file = report["outputs"][0]["file"].as_str().expect("a path");
    assert!(file.ends_with("words.json"), "{report}");
    let written = std::fs::read_to_string(world.path("words.json")).expect("it is written");
    let written: serde_json::Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(written, json!(["1.5", "-2.0"]));
}

#[test]
fn inspect_shows_what_the_passes_do() {
    let world = World::new();
    let report = world.run(&["inspect", digits(), "--passes", "--json"]).json();
    let passes = report["passes"].as_array().expect("a list");
    assert!(passes.windows(2).all(|w| w[0]["nodes_after"] == w[1]["nodes_before"]));
    assert!(passes.iter().any(|pass| pass["name"] == json!("channels-last")));
    let people = world.run(&["inspect", digits(), "--passes"]);
    assert!(people.stdout.contains("channels-last"), "{people:?}");
}

#[test]
fn missing_operators_are_named_all_at_once() {
    let world = World::new();
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Known(2)])) };
    let mut graph = GraphBuilder::new("strange");
    let x = graph.input("x", ty.clone());
    let y = graph.node("Frobnicate", &[x], []);
    let z = graph.node("Defenestrate", &[y], []);
    graph.output("z", z, ty);
    let model = graph.finish().expect("a sound graph").to_onnx().expect("a sound model");
    let model = text(&world.write("strange.onnx", model));
    let report = world.run(&["inspect", &model, "--json"]).json();
    assert_eq!(report["runs"], json!(false));
    let (code, message) = world.run(&["run", &model, "--json"]).error(1);
    assert_eq!(code, "model_unsupported");
    for name in ["Frobnicate", "Defenestrate"] {
        assert!(message.contains(name), "{message}");
        assert!(report["reason"].as_str().is_some_and(|reason| reason.contains(name)));
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let world = World::new();
    for args in [&["inspect", digits()][..], &["inspect", digits(), "--json"], &["--help"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = world
            .command(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("the binary starts");
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{args:?}");
    }
}
