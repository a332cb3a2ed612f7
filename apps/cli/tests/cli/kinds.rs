//! Models whose values are not all tensors, and graphs inside nodes.

use crate::bad_input::external;
use crate::harness::{World, field, npy, number};
use serde_json::{Value, json};

/// `parts = [x, x]`, `empty = []`, `y = x`, for x of f32 `[2]`.
fn sequences() -> Vec<u8> {
    let tensor = field(1, &[number(1, 1), field(2, &field(1, &number(1, 2)))].concat());
    let sequence = field(4, &field(1, &field(1, &number(1, 1))));
    let value = |name: &str, ty: &[u8]| [field(1, name.as_bytes()), field(2, ty)].concat();
    let node = |inputs: &[&str], output: &str, op: &str| {
        let inputs = inputs.iter().flat_map(|name| field(1, name.as_bytes()));
        let rest = [field(2, output.as_bytes()), field(4, op.as_bytes())].concat();
        field(1, &inputs.chain(rest).collect::<Vec<u8>>())
    };
    let graph = [
        node(&["x", "x"], "parts", "SequenceConstruct"),
        node(&[], "empty", "SequenceEmpty"),
        node(&["x"], "y", "Relu"),
        field(2, b"g"),
        field(11, &value("x", &tensor)),
        field(12, &value("parts", &sequence)),
        field(12, &value("empty", &sequence)),
        field(12, &value("y", &tensor)),
    ]
    .concat();
    [number(1, 8), field(7, &graph), field(8, &number(2, 17))].concat()
}

#[test]
fn sequences_run_are_measured_and_are_described() {
    let world = World::new();
    let model = world.write("seq.onnx", sequences()).display().to_string();
    let x = world.write("x.npy", npy(&[2], &[1., -2.])).display().to_string();
    let report = world.run(&["run", &model, "--input", &x, "--json"]).json();
    let outputs = report["outputs"].as_array().expect("a list").iter();
    let outputs: Vec<_> = outputs.map(|o| json!([o["name"], o["kind"], o["items"]])).collect();
    let expected = [
        json!(["parts", "sequence", 2]),
        json!(["parts.0", "tensor", null]),
        json!(["parts.1", "tensor", null]),
        json!(["empty", "sequence", 0]),
        json!(["y", "tensor", null]),
    ];
    assert_eq!(outputs, expected);
    assert_eq!(report["outputs"][3]["file"], Value::Null);

    let bench = world.run(&["bench", &model, "--runs", "2", "--json"]).json();
    assert_eq!(bench["runs"], json!(2));
    let profile = world.run(&["profile", &model, "--runs", "2", "--json"]).json();
    let mut ops = profile["nodes"].as_array().expect("a list").iter().map(|node| &node["op"]);
    assert!(ops.any(|op| op == "SequenceConstruct"), "{profile}");

    let described = world.run(&["inspect", &model, "--json"]).json();
    let kinds = described["outputs"].as_array().expect("a list").iter().map(|o| &o["kind"]);
    assert_eq!(kinds.collect::<Vec<_>>(), ["sequence", "sequence", "tensor"]);
    let people = world.run(&["inspect", &model]).stdout;
    assert!(people.contains("parts  a sequence of f32"), "{people}");
}

#[test]
fn inspect_counts_the_bytes_beside_a_model() {
    let world = World::new();
    world.write("w.bin", [0; 8]);
    let bytes = external("w.bin");
    let model = world.write("net.onnx", &bytes).display().to_string();
    let report = world.run(&["inspect", &model, "--json"]).json();
    assert_eq!(report["bytes"], json!(bytes.len() + 8));
}
