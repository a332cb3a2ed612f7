//! `optimize`: what it makes, what it refuses, and how it goes on after an end.

use crate::harness::{World, digits, npy};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read;

/// The images that the bundled model was not trained on, and their digits: every fifth row.
fn write_samples(world: &World) {
    let gzipped = std::fs::read(digits().replace("digits.onnx", "digits.csv.gz")).expect("bundled");
    let mut text = String::new();
    GzDecoder::new(gzipped.as_slice()).read_to_string(&mut text).expect("CSV");
    let (mut pixels, mut labels, mut rows) = (Vec::new(), String::from("class\n"), 0);
    for line in text.lines().step_by(5) {
        let mut values: Vec<f32> =
            line.split(',').map(|it| it.parse().expect("a number")).collect();
        labels += &format!("{}\n", values.pop().expect("a label"));
        pixels.extend(values);
        rows += 1;
    }
    world.write("samples.npy", npy(&[rows, 1, 8, 8], &pixels));
    world.write("labels.csv", labels);
}

fn optimize(world: &World, flags: &[&str]) -> crate::harness::Outcome {
    let given = ["optimize", digits(), "--device", "cpu", "--json", "-o", "out.onnx"];
    world.run(&[&given, flags].concat())
}

#[test]
fn a_target_is_met_and_every_number_is_written() {
    let world = World::new();
    write_samples(&world);
    let samples = ["--calibration", "samples.npy", "--labels", "labels.csv", "--threads", "1"];
    let report = optimize(&world, &[&samples[..], &["--target", "memory"]].concat()).json();
    let number = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
    assert!(number("output_bytes") < number("input_bytes") / 4., "{report}");
    assert!(number("accuracy_after") >= number("accuracy_before") - 0.08);
    assert!(number("latency_ms_after") > 0. && number("output_error") > 0.);
    let written = std::fs::metadata(world.path("out.onnx")).expect("written").len();
    assert_eq!(report["output_bytes"], json!(written));
    let ledger = std::fs::read(world.path("out.ledger.json")).expect("written");
    let ledger: Value = serde_json::from_slice(&ledger).expect("JSON");
    assert_eq!(ledger["stages"], report["stages"]);
    assert_eq!(ledger["target"], json!("memory"));
    assert!(!world.path("out.progress").exists());
    // The result runs, and the same samples make the same file.
    let first = std::fs::read(world.path("out.onnx")).expect("written");
    world.run(&["inspect", "out.onnx", "--json"]).json();
    optimize(&world, &[&samples[..], &["--target", "memory"]].concat()).json();
    assert!(std::fs::read(world.path("out.onnx")).expect("written") == first);
}

#[test]
fn what_cannot_be_used_is_named() {
    let world = World::new();
    let zeros = |rows: usize| npy(&[rows, 1, 8, 8], &vec![0.; rows * 64]);
    world.write("two.npy", zeros(2));
    world.write("narrow.npy", npy(&[1, 1, 8, 7], &[0.; 56]));
    let mut broken = vec![0.; 128];
    broken[70] = f32::NAN;
    world.write("nan.npy", npy(&[2, 1, 8, 8], &broken));
    world.write("one.csv", "3\n");
    world.write("eleven.csv", "3\n11\n");
    std::fs::create_dir(world.path("empty")).expect("ours");
    world.write("own.onnx", std::fs::read(digits()).expect("bundled"));
    let cases: [(&[&str], i32, &str, &str); 9] = [
        (&[], 2, "usage", "--calibration"),
        (&["--calibration", "none"], 1, "file_not_found", "none"),
        (&["--calibration", "empty"], 1, "input_folder", "empty has no file"),
        (&["--calibration", "narrow.npy"], 1, "samples_unusable", "[1, 1, 8, 7]"),
        (
            &["--calibration", "nan.npy"],
            1,
            "samples_unusable",
            "element 70 of input 'image' is NaN",
        ),
        (
            &["--calibration", "two.npy", "--labels", "one.csv"],
            1,
            "samples_unusable",
            "1 labels for 2",
        ),
        (&["--calibration", "two.npy", "--labels", "eleven.csv"], 1, "samples_unusable", "11"),
        (&["--calibration", "two.npy", "--max-drop", "3"], 2, "usage", "the drop is 3"),
        (&["--calibration", "two.npy", "--target", "tiny"], 2, "usage", "tiny"),
    ];
    for (flags, code, kind, wanted) in cases {
        let (found, message) = optimize(&world, flags).error(code);
        assert!(found == kind && message.contains(wanted), "{flags:?}: {found}: {message}");
        assert!(!world.path("out.onnx").exists(), "{flags:?}");
    }
    let own = ["optimize", "own.onnx", "--calibration", "two.npy", "-o", "own.onnx", "--json"];
    let (_, message) = world.run(&own).error(2);
    assert!(message.contains("the model itself"), "{message}");
    assert!(
        std::fs::read(world.path("own.onnx")).expect("as before")
            == std::fs::read(digits()).expect("bundled")
    );
}

/// A folder of progress with the settings of another run, or with damage, is not believed.
#[test]
fn progress_that_is_damaged_is_made_anew() {
    let world = World::new();
    write_samples(&world);
    std::fs::create_dir(world.path("out.progress")).expect("ours");
    world.write("out.progress/stages.json", "{ half a fi");
    let report = optimize(&world, &["--calibration", "samples.npy", "--target", "speed"]).json();
    assert!(report["accuracy_before"].is_null() && report["output_error"].as_f64() <= Some(0.05));
    assert!(!world.path("out.progress").exists());
}
