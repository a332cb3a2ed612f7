//! `convert`: its output, its messages, and the files that it never overwrites.

use crate::harness::{World, field, number};
use lgp_inference::{GraphBuilder, Model};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use serde_json::json;

const ELEMENTS: usize = 400;

/// `y = x + a + b + …`, each of 400 elements.
fn sums(weights: &[(&str, f32)]) -> Vec<u8> {
    let shape = Some(SymShape(vec![Dim::Known(ELEMENTS)]));
    let ty = TensorType { dtype: DType::F32, shape };
    let mut graph = GraphBuilder::new("sums");
    let mut y = graph.input("x", ty.clone());
    for (name, first) in weights {
        let mut values = vec![0.5f32; ELEMENTS];
        values[0] = *first;
        let w = Tensor::from_slice([ELEMENTS], &values).expect("the shape fits");
        let w = graph.initializer(*name, w);
        y = graph.node("Add", &[y, w], []);
    }
    graph.output("y", y, ty);
    graph.finish().expect("a sound graph").to_onnx().expect("a sound model")
}

#[test]
fn nothing_that_is_read_or_belongs_to_others_is_written_over() {
    let world = World::new();
    let at = |name: &str| world.path(name).display().to_string();
    let convert = |model: &str, output: &str, more: &[&str]| {
        let (model, output) = (at(model), at(output));
        world.run(&[&["convert", &model, "--output", &output, "--json"], more].concat())
    };
    world.write("one.onnx", sums(&[("w", 1.)]));
    // a.onnx has its weights in b.onnx.data, beside an unrelated b.onnx.
    convert("one.onnx", "b.onnx", &["--external-data"]).json();
    std::fs::rename(world.path("b.onnx"), world.path("a.onnx")).expect("ours");
    world.write("b.onnx", sums(&[("w", 2.)]));
    let a = Model::load(world.path("a.onnx")).expect("a sound model");
    let (_, message) = convert("one.onnx", "b.onnx", &["--external-data"]).error(1);
    assert!(message.contains("b.onnx.data is there already"), "{message}");

    let weights = at("b.onnx.data");
    for (model, output, more) in [
        ("one.onnx", "one.onnx", &[][..]),
        ("a.onnx", "b.onnx", &["--external-data"]),
        ("a.onnx", "b.onnx.data", &[]),
        ("one.onnx", "b.onnx.data", &["--weights", &weights]),
        ("one.onnx", "b.onnx", &["--weights", &weights, "--external-data"]),
    ] {
        let (_, message) = convert(model, output, more).error(2);
        assert!(message.contains("would replace the input"), "{model} {output}: {message}");
    }
    assert_eq!(Model::load(world.path("a.onnx")).expect("as before"), a);
}

#[test]
fn what_a_narrow_type_cannot_hold_is_said() {
    let world = World::new();
    let model = [("mask", -3.4e38), ("w", 1.), ("tiny", 1e-12)];
    let model = world.write("m.onnx", sums(&model)).display().to_string();
    let out = world.path("narrow.onnx").display().to_string();
    let args = ["convert", &model, "--dtype", "f16", "--output", &out];
    let report = world.run(&[&args[..], &["--json"]].concat()).json();
    let floats = &report["floats"];
    assert_eq!((&floats["converted"], &floats["zeroed"]), (&json!(1), &json!(0)), "{report}");
    let kept = floats["kept"].as_array().expect("a list").iter().map(|k| &k["initializer"]);
    assert_eq!(kept.collect::<Vec<_>>(), ["mask", "tiny"]);
    let people = world.run(&args);
    assert!(people.stdout.contains("stays f32: mask, for it has -3.4e38\n"), "{people:?}");
}

#[test]
fn inputs_with_a_default_are_kept_or_named() {
    let world = World::new();
    // Concatenated protobuf messages merge, so `w` becomes an input too.
    let dim = field(1, &[1 << 3, 0x90, 0x03]);
    let ty = field(1, &[number(1, 1), field(2, &dim)].concat());
    let input = field(11, &[field(1, b"w"), field(2, &ty)].concat());
    let model = [sums(&[("w", 1.)]), field(7, &input)].concat();
    let model = world.write("m.onnx", model).display().to_string();
    let out = world.path("out.onnx").display().to_string();
    let args = ["convert", &model, "--output", &out, "--json"];
    assert_eq!(world.run(&args).json()["fixed"], json!([]));
    let kept = Model::load(&out).expect("a sound model");
    assert_eq!(kept.defaults().iter().map(|spec| &spec.name).collect::<Vec<_>>(), ["w"]);
    let report = world.run(&[&args[..], &["--dtype", "f16"]].concat()).json();
    assert_eq!(report["fixed"], json!(["w"]));
    assert!(Model::load(&out).expect("a sound model").defaults().is_empty());
}
