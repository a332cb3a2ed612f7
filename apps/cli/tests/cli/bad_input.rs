//! Bad input gets a clear error: exit code, stable code, and a message that names what was wrong.

use crate::harness::{World, ZERO, digits, field, npy, npy_of, number};

/// `y = identity(w)` with w's bytes in another file.
pub(crate) fn external(location: &str) -> Vec<u8> {
    let entry = |key: &str, value: &str| {
        field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let tensor = [
        number(1, 2),
        number(2, 1),
        field(8, b"w"),
        entry("location", location),
        entry("length", "8"),
        number(14, 1),
    ]
    .concat();
    let node = [field(1, b"w"), field(2, b"y"), field(4, b"Identity")].concat();
    let dim = field(2, &field(1, &number(1, 2)));
    let ty = field(2, &field(1, &[number(1, 1), dim].concat()));
    let output = [field(1, b"y"), ty].concat();
    let graph = [field(1, &node), field(2, b"g"), field(5, &tensor), field(12, &output)].concat();
    [number(1, 8), field(7, &graph), field(8, &number(2, 17))].concat()
}

#[test]
fn models_that_are_none() {
    let world = World::new();
    let good = std::fs::read(digits()).expect("bundled");
    world.write("secret", [0; 8]);
    std::fs::create_dir(world.path("models")).expect("the folder is ours");
    let in_models = |name: &str, bytes: &[u8]| {
        world.write(&format!("models/{name}"), bytes).display().to_string()
    };
    let mut flipped = good.clone();
    flipped[..64].iter_mut().for_each(|byte| *byte ^= 0x5a);
    let cases = [
        ("/nonexistent/model.onnx".to_owned(), "file_not_found", "/nonexistent/model.onnx"),
        (in_models("empty.onnx", b""), "model_invalid", ""),
        (in_models("text.onnx", b"hello, this is no model"), "model_invalid", ""),
        (in_models("half.onnx", &good[..good.len() / 2]), "model_invalid", ""),
        (in_models("short.onnx", &good[..good.len() - 1]), "model_invalid", ""),
        (in_models("flipped.onnx", &flipped), "model_invalid", ""),
        (in_models("up.onnx", &external("../secret")), "model_external_data", "../secret"),
        (in_models("root.onnx", &external("/etc/passwd")), "model_external_data", "/etc/passwd"),
        (in_models("gone.onnx", &external("gone.bin")), "model_external_data", "gone.bin"),
    ];
    for (model, code, part) in &cases {
        for command in ["run", "bench", "inspect"] {
            let (given, message) = world.run(&[command, model, "--json"]).error(1);
            assert_eq!(&given, code, "{command} {model}: {message}");
            assert!(message.contains(part), "{command} {model}: {message:?} lacks {part:?}");
        }
    }
}

#[test]
fn names_that_are_empty() {
    let world = World::new();
    for args in [
        &["tasks", "show", ""][..],
        &["cancel", ""],
        &["result", ""],
        &["workers", "show", ""],
        &["workers", "drain", ""],
        &["workers", "revoke", ""],
        &["models", "rm", ""],
        &["models", "load", ""],
        &["token", "revoke", ""],
        &["submit", "--input", "x.npy", "--model", ""],
    ] {
        let (code, message) = world.run(&[args, &["--json"]].concat()).error(2);
        assert_eq!(code, "usage", "{args:?}");
        assert!(message.contains("it is empty"), "{args:?}: {message}");
    }
}

#[test]
fn a_deadline_out_of_range_is_told_the_range() {
    let world = World::new();
    for ms in ["0", "3600001"] {
        let args = ["submit", "--model", "m", "--input", "x.npy", "--deadline-ms", ms, "--json"];
        let (_, message) = world.run(&args).error(2);
        assert!(message.contains("expected 1 to 3600000"), "{message}");
    }
}

#[test]
fn a_backend_that_there_is_not() {
    let args = ["models", "deploy", "m", "--backend", "metal", "--json"];
    let (code, message) = World::new().run(&args).error(2);
    assert!(code == "usage" && message.contains("cpu, opencl, vulkan, cuda"), "{code}: {message}");
}

#[test]
fn no_truncation_of_a_model_panics() {
    let world = World::new();
    let good = std::fs::read(digits()).expect("bundled");
    for cut in (0..good.len()).step_by(good.len() / 24) {
        let model = world.write("cut.onnx", &good[..cut]).display().to_string();
        let (code, message) = world.run(&["inspect", &model, "--json"]).error(1);
        assert!(code.starts_with("model_"), "{cut} bytes: {code} {message}");
    }
}

#[test]
fn inputs_that_do_not_fit() {
    let world = World::new();
    let file = |name: &str, bytes: &[u8]| world.write(name, bytes).display().to_string();
    let good = file("good.npy", &npy(&[1, 1, 8, 8], &ZERO));
    let flat = file("flat.npy", &npy(&[64], &ZERO));
    let wide = file("wide.npy", &npy(&[1, 1, 4, 16], &ZERO));
    let ints = file("ints.npy", &npy_of("<i8", &[1, 1, 8, 8], vec![0; 512]));
    let complex = file("complex.npy", &npy_of("<c8", &[1, 1, 8, 8], vec![0; 512]));
    let torn = file("torn.npy", &npy(&[1, 1, 8, 8], &ZERO[..60]));
    let noise = file("noise.png", b"this is no image");
    // These pipes have no writer.
    let [tensor_pipe, picture_pipe] = ["pipe.npy", "pipe.png"].map(|name| {
        let path = world.path(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        path.display().to_string()
    });
    let cases: [(&[&str], &str, &[&str]); 13] = [
        (&[], "input_name", &["image"]),
        (&[&format!("picture={good}")], "input_name", &["picture", "image"]),
        (&[&flat], "input_shape", &["[64]", "8"]),
        (&[&wide], "input_shape", &["[1, 1, 4, 16]", "8"]),
        (&[&ints], "input_dtype", &["i64", "f32"]),
        (&[&complex], "npy_invalid", &["<c8", "numbers or booleans"]),
        (&[&torn], "npy_invalid", &["256", "240"]),
        (&[&noise], "image_undecodable", &["noise.png"]),
        (&[&tensor_pipe], "io", &["pipe.npy", "not a regular file"]),
        (&[&picture_pipe], "io", &["pipe.png", "not a regular file"]),
        (&["/nonexistent/x.npy"], "file_not_found", &["/nonexistent/x.npy"]),
        (&["/nonexistent/x.png"], "file_not_found", &["/nonexistent/x.png"]),
        (&["image=/nonexistent/x.png"], "file_not_found", &["/nonexistent/x.png"]),
    ];
    for (inputs, code, parts) in cases {
        let mut args = vec!["run", digits(), "--json"];
        inputs.iter().for_each(|input| args.extend(["--input", input]));
        let (given, message) = world.run(&args).error(1);
        assert_eq!(given, code, "{inputs:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{inputs:?}: {message:?} lacks {part:?}");
        }
    }
}

#[test]
fn devices_and_instructions_that_cannot_be_had() {
    let world = World::new();
    let bench = |flags: &[&str]| world.run(&[&["bench", digits(), "--json"], flags].concat());
    for device in ["gpu", "opencl:x", "vulkan:x", "", "cpu:-1"] {
        let (code, message) = bench(&["--device", device]).error(2);
        assert_eq!(code, "device_unknown", "{device}: {message}");
        assert!(message.contains("vulkan:0"), "{message:?} lacks the accepted form");
    }
    assert_eq!(bench(&["--device", "cpu:7"]).error(1).0, "device_missing");
    // Refused on every machine and by every build.
    for device in ["cuda:99", "opencl:99", "vulkan:99", "null"] {
        let (code, message) = bench(&["--device", device]).error(1);
        let known =
            ["device_missing", "device_not_compiled", "device_without_models", "device_broken"];
        assert!(known.contains(&code.as_str()), "{device}: {code} {message}");
    }
    assert_eq!(bench(&["--simd", "neon"]).error(2).0, "usage");
}

#[test]
fn command_lines_that_make_no_sense() {
    let world = World::new();
    for args in [
        &[][..],
        &["nope"],
        &["run"],
        &["run", digits(), "--threads", "0"],
        &["run", digits(), "--precision", "f64"],
        &["bench", digits(), "--runs", "many"],
        &["start", "--http", "nowhere"],
        &["start", "--workers", "-1"],
        &["stop", "--data", "a", "--server", "b"],
        &["status", "--server", "ftp://example.org"],
        &["submit", "--model", "digits"],
        &["models"],
    ] {
        let (code, _) = world.run(&[args, &["--json"]].concat()).error(2);
        assert_eq!(code, "usage", "{args:?}");
        let people = world.run(args);
        assert_eq!(people.code, Some(2), "{args:?}");
        assert!(people.stderr.starts_with("error: "), "{people:?}");
    }
}

#[test]
fn settings_that_are_wrong() {
    let world = World::new();
    let data = world.path("data");
    std::fs::create_dir(&data).expect("the folder is ours");
    for (text, part) in [("[http]\nprot = 80\n", "prot"), ("workers = 'x'\n", "workers")] {
        world.write("data/radeon-cluster.toml", text);
        let data = data.display().to_string();
        let (code, message) = world.run(&["start", "--data", &data, "--json"]).error(1);
        assert_eq!(code, "settings_invalid");
        assert!(message.contains(part) && message.contains("radeon-cluster.toml"), "{message}");
    }
    world.expect_no_processes();
}

#[test]
fn the_hidden_commands_say_how_they_are_meant() {
    let world = World::new();
    for command in ["worker", "coordinator"] {
        let (code, message) = world.run(&[command, "--json"]).error(2);
        assert_eq!(code, "usage");
        assert!(message.contains("started by"), "{message}");
    }
}
