//! `run` and `submit` of many files: one row each, class names, and a bad file among them.

use crate::harness::{self, Cluster, World, ZERO, best, digits, npy, read_npy, signal};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;

/// A folder with two pictures of a zero, an invalid picture, and an unrelated file.
fn folder(world: &World) -> String {
    let folder = world.path("photos");
    std::fs::create_dir_all(&folder).expect("ours");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).expect("ours");
    write("a.npy", &npy(&[1, 1, 8, 8], &ZERO));
    write("b.npy", &npy(&[1, 1, 8, 8], &ZERO));
    write("c.png", b"this is no picture");
    write("notes.txt", b"");
    folder.display().to_string()
}

/// The bundled model with the file beside it that names its classes.
fn named(world: &World) -> String {
    let bytes = std::fs::read(digits()).expect("bundled");
    let config = std::fs::read(Path::new(digits()).with_extension("toml")).expect("bundled");
    world.write("digits.toml", config);
    world.write("digits.onnx", bytes).display().to_string()
}

/// The file name, the state and the first class of each result.
fn told(rows: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let name = |row: &Value| text(&row["file"]).rsplit('/').next().unwrap_or_default().to_owned();
    let row = |row: &Value| (name(row), text(&row["state"]), text(&row["top"][0][0]["label"]));
    let mut all: Vec<_> = rows.as_array().expect("a list").iter().map(row).collect();
    all.sort();
    all
}

fn expected() -> Vec<(String, String, String)> {
    let row = |name: &str, state: &str, label: &str| {
        (name.to_owned(), state.to_owned(), label.to_owned())
    };
    vec![
        row("a.npy", "succeeded", "0"),
        row("b.npy", "succeeded", "0"),
        row("c.png", "failed", "-"),
    ]
}

#[test]
fn run_takes_a_folder_and_goes_on_after_a_bad_file() {
    let world = World::new();
    let (photos, model) = (folder(&world), named(&world));
    let out = world.path("out").display().to_string();
    for batch in ["1", "2"] {
        let run = ["run", &model, &photos, "--batch", batch, "-t", "1", "-o", &out, "--json"];
        let outcome = world.run(&run);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let rows: Value = serde_json::from_str(&outcome.stdout).expect("one JSON value");
        assert_eq!(told(&rows), expected());
        assert_eq!(
            (&rows[0]["kind"], &rows[2]["error"]["code"]),
            (&json!("score"), &json!("image_undecodable"))
        );
        assert!(outcome.stderr.contains("1 of 3 files failed"), "{outcome:?}");
        for name in ["a", "b"] {
            let logits = read_npy(&world.path(&format!("out/{name}.logits.npy"))).1;
            assert_eq!(best(&logits), 0);
        }
    }
    let people = world.run(&["run", &model, &photos, "--threads", "1"]);
    let note = format!("1 other in {photos} was left out (.txt)");
    assert!(people.stderr.contains(&note), "{people:?}");
    // Text output has one line for each file; without a folder no outputs are written.
    let [a, b] = ["a.npy", "b.npy"].map(|name| format!("{photos}/{name}"));
    let people = world.run(&["run", &model, &a, &b, "--top", "2", "--threads", "1"]);
    assert_eq!(people.code, Some(0), "{people:?}");
    let lines: Vec<&str> = people.stdout.lines().collect();
    assert!(lines.len() == 3 && lines[0].contains("class"), "{people:?}");
    assert!(lines[1].starts_with(&a) && lines[1].contains(&format!("{a}  0 ")), "{people:?}");
    assert!(!world.path("logits.npy").exists() && !world.path("a.logits.npy").exists());
}

#[test]
fn classes_have_the_names_that_are_asked_for() {
    let world = World::new();
    let image = world.write("zero.npy", npy(&[1, 1, 8, 8], &ZERO)).display().to_string();
    let names = ["nought", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let good = world.write("names.txt", names.join("\n")).display().to_string();
    let few = world.write("few.txt", "cat\ndog\n").display().to_string();
    let run = |flags: &[&str]| {
        world.run(&[&["run", digits(), &image, "-t", "1", "--json"], flags].concat())
    };
    let report = run(&["--labels", &good, "--top", "1"]).json();
    assert_eq!(report["top"][0].as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&report["top"][0][0]["label"], &report["kind"]),
        (&json!("nought"), &json!("score"))
    );
    // The file beside the bundled model names its classes.
    let report = run(&[]).json();
    assert_eq!(report["top"][0].as_array().map(Vec::len), Some(5));
    let (code, message) = run(&["--labels", &few]).error(1);
    assert!(code == "no_classes" && message.contains("2 names"), "{code}: {message}");
    let (code, message) = run(&["--labels", "none.txt"]).error(1);
    assert!(code == "file_not_found" && message.contains("none.txt"), "{code}: {message}");
    let doubles = ZERO.iter().flat_map(|value| f64::from(*value).to_le_bytes()).collect();
    let doubles = world.write("f8.npy", harness::npy_of("<f8", &[1, 1, 8, 8], doubles));
    let refused = world.run(&["run", digits(), &doubles.display().to_string(), "--json"]);
    assert_eq!(refused.error(1).0, "input_dtype");
    assert!(refused.stderr.contains(".astype('float32')"), "{refused:?}");
}

#[test]
fn submit_takes_a_folder_and_names_the_classes() {
    let cluster = Cluster::start(World::new(), "1");
    let photos = folder(&cluster.world);
    let out = cluster.world.path("out").display().to_string();
    let outcome = cluster.run(&["submit", "-m", "digits", &photos, "-w", "-o", &out]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let rows: Value = serde_json::from_str(&outcome.stdout).expect("one JSON value");
    assert_eq!(told(&rows), expected());
    assert_eq!(best(&read_npy(&cluster.world.path("out/a.logits.npy")).1), 0);
    let one = format!("{photos}/a.npy");
    let done = cluster.run(&["submit", "-m", "digits", "-i", &one, "-w", "--top", "1"]).json();
    assert_eq!(done["top"][0][0]["label"], json!("0"));
    let id = done["task_id"].as_str().expect("an id").to_owned();
    assert_eq!(cluster.run(&["result", &id]).json()["top"][0][0]["label"], json!("0"));
    // A coordinator that is found by its address gives the same names.
    let key = cluster.key_file();
    let http = cluster.endpoint["http"].as_str().expect("a URL");
    let there =
        ["submit", "-m", "digits", &one, &one, "-w", "-s", http, "--key-file", &key, "--json"];
    assert_eq!(cluster.world.run(&there).json()[1]["top"][0][0]["label"], json!("0"));

    let url = format!("{http}/api/v1/cluster/models/digits");
    let get = |url: &str| -> Value {
        let mut answer =
            ureq::get(url).header("authorization", cluster.bearer()).call().expect("200");
        answer.body_mut().read_json().expect("JSON")
    };
    assert_eq!(get(&url)["labels"].as_array().map(Vec::len), Some(10));
    assert!(
        get(&url)["scaling"]["scale"].as_f64().is_some_and(|scale| (0.06..0.07).contains(&scale))
    );

    // Unknown names that are close to known ones.
    for (args, meant) in [
        (&["submit", "-m", "digist", &one][..], "digits"),
        (&["models", "load", "digit"], "digits"),
        (&["result", &format!("{id}z")], &id),
    ] {
        let refused = cluster.run(args);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(&format!("did you mean {meant}?")), "{refused:?}");
    }
}

#[test]
fn who_waits_is_told_for_what_and_which_tasks_go_on() {
    let cluster = Cluster::start(World::new(), "0");
    let photos = folder(&cluster.world);
    std::fs::remove_file(cluster.world.path("photos/c.png")).expect("ours");
    let data = cluster.endpoint["data"].as_str().expect("a path");
    let one = format!("{photos}/a.npy");
    let waits = cluster.world.spawn(&["submit", "-m", "digits", &one, "-w", "--data", data]);
    let folder = cluster.world.spawn(&["submit", "-m", "digits", &photos, "-w", "--data", data]);
    harness::eventually("three tasks wait", || {
        cluster.run(&["tasks", "--state", "queued"]).json().as_array().map(Vec::len) == Some(3)
    });
    // Longer than the delay of the notice about waiting.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let [single, several] = [waits, folder].map(|child| {
        signal(child.id(), Signal::INT);
        let output = harness::output(child);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    });
    for part in ["waits for a free device", "there is no worker", "goes on"] {
        assert!(single.contains(part), "{single} lacks {part}");
    }
    assert!(several.contains("interrupted: tasks ") && several.contains(" go on"), "{several}");
    cluster.run(&["stop", "--now"]).json();
}
