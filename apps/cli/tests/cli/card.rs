//! A card of this machine's processor.

use crate::doctor;
use crate::harness::{World, digits};

#[test]
fn the_processor_is_tried_and_measured() {
    let world = World::new();
    let args = ["card", "--json", "--quick", "-o", "mine", "--model", digits()];
    let told = doctor::run(&world, &args).json();
    let text = std::fs::read_to_string(world.path("mine/card.json")).expect("written");
    let card: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(told["card"], card);
    assert_eq!((&card["schema"], &card["quick"]), (&1.into(), &true.into()));
    let processor = &card["devices"][0];
    assert_eq!(processor["id"], "cpu");
    let checks = processor["checks"].as_array().expect("an array");
    assert_eq!(checks.len(), 6, "{checks:#?}");
    assert!(checks.iter().all(|check| check["passed"] == true), "{checks:#?}");
    let note = checks[5]["note"].as_str().expect("a text");
    assert!(note.ends_with("of 360 digits right") && !note.starts_with("0 "), "{note}");
    let measured = processor["measured"].as_array().expect("an array");
    // Three kinds of copies, five networks, the bundled model and the given one.
    assert_eq!(measured.len(), 10, "{measured:#?}");
    for one in measured {
        let (runs, min, median) = (&one["runs"], one["min_ms"].as_f64(), one["median_ms"].as_f64());
        assert!(runs.as_u64() > Some(0) && min > Some(0.0) && median >= min, "{one}");
    }
    assert_eq!(processor["failures"], serde_json::json!([]));
    let page = std::fs::read_to_string(world.path("mine/card.md")).expect("written");
    assert!(page.contains("## cpu: ") && page.contains("| gemm-96 |"), "{page}");
    for name in ["/home/", world.folder.path().to_str().expect("text")] {
        assert!(!text.contains(name) && !page.contains(name), "{name}");
    }
    let (code, _) = doctor::run(&world, &args).error(1);
    assert_eq!(code, "file_exists");
}

#[test]
fn a_model_that_is_none_leaves_no_folder() {
    let world = World::new();
    let args = ["card", "--json", "--quick", "-o", "mine", "--model", "/nonexistent.onnx"];
    assert_eq!(world.run(&args).error(1).0, "file_not_found");
    assert!(!world.path("mine").exists());
}
