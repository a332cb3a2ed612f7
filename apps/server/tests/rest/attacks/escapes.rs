//! Attacks with names that are paths or commands, and with data that is code.

use super::MODELS;
use crate::frigate;
use crate::rig::{Rig, onnx, request};
use axum::body::Body;
use lgp_server::ServerConfig;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// All files and folders of the cluster, recursively.
fn files(rig: &Rig) -> Vec<String> {
    fn below(folder: &std::path::Path, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            all.push(entry.path().display().to_string());
            below(&entry.path(), all);
        }
    }
    let mut all = Vec::new();
    below(rig.folder.path(), &mut all);
    all.retain(|path| !path.ends_with("audit.log"));
    all.sort();
    all
}

/// The file that an attack would make, with a unique name.
fn prey() -> String {
    format!("lgp-escaped-{}", std::process::id())
}

/// The places of a file with this name: in the server's working directory (this process's), in the cluster's
/// folder, or above either.
fn made(rig: &Rig, name: &str) -> BTreeSet<PathBuf> {
    let here = std::env::current_dir().unwrap();
    let below = files(rig).into_iter().map(PathBuf::from).filter(|path| path.ends_with(name));
    let above = rig.folder.path().ancestors().skip(1).chain(here.ancestors());
    below.chain(above.map(|folder| folder.join(name))).filter(|path| path.exists()).collect()
}

/// Checks that no attack made a file, and that the check would find one in each place.
fn nothing_is_made(rig: &Rig) {
    assert_eq!(made(rig, &prey()), BTreeSet::new());
    let folder = rig.folder.path();
    let trap = folder.file_name().unwrap().to_str().unwrap().replace('.', "lgp-trap-");
    let models = folder.join("models");
    for place in [folder, &models, folder.parent().unwrap(), Path::new(".")] {
        let path = place.join(&trap);
        std::fs::write(&path, "").unwrap();
        let seen = made(rig, &trap);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(seen.len(), 1, "{path:?}: {seen:?}");
    }
}

/// A pickle that makes the file when it is loaded.
fn pickle() -> String {
    format!("cposix\nsystem\n(S'touch {}'\ntR.", prey())
}

/// Names reached a shell in Triton (CVE-2025-23316), and paths in Ollama (CVE-2024-37032).
#[tokio::test(flavor = "multi_thread")]
async fn names_are_neither_commands_nor_paths() {
    let rig = Rig::start().await;
    let before = files(&rig);
    for name in [
        "..",
        "..%2FPREY",
        "..%2F..%2FPREY",
        "%2Fetc%2Fpasswd",
        "a%2Fb",
        "%3B%20touch%20PREY",
        "%24%28touch%20PREY%29",
        "%60touch%20PREY%60",
        "a%00b",
        "%2E%2E%2F",
        "sha256:..%2F..%2FPREY",
        "-rf",
        ".hidden",
        &"a".repeat(65),
    ] {
        let name = name.replace("PREY", &prey());
        for (method, path) in [
            ("POST", format!("{MODELS}/{name}")),
            ("DELETE", format!("{MODELS}/{name}")),
            ("POST", format!("{MODELS}/{name}/load")),
            ("POST", format!("{MODELS}/{name}/versions/1/load")),
            ("POST", format!("/v2/models/{name}/infer")),
            ("POST", format!("/v2/repository/models/{name}/unload")),
            ("GET", format!("/v2/models/{name}/versions/..%2F1")),
        ] {
            let Ok(asked) = request(method, &path).body(Body::from(onnx())) else { continue };
            let answer = rig.call(asked).await;
            let status = answer.status.as_u16();
            assert!(
                [400, 404, 405].contains(&status),
                "{method} {path}: {status} {}",
                answer.text()
            );
        }
    }
    assert_eq!(files(&rig), before);
    nothing_is_made(&rig);
}

/// Archives that get unpacked (CVE-2024-45436) and pickles that get run (CVE-2025-32434): here both are only bytes.
#[tokio::test(flavor = "multi_thread")]
async fn archives_and_pickles_are_no_models() {
    let rig = Rig::start().await;
    let before = files(&rig);
    let mut zip =
        b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x0d\0\0\0".to_vec();
    // PyTorch's checkpoints are such archives, with a pickle inside.
    let checkpoint =
        [&zip[..26], &[16, 0, 0, 0], b"archive/data.pkl", pickle().as_bytes()].concat();
    zip.extend_from_slice(format!("../../{}X", prey()).as_bytes());
    zip[26] = u8::try_from(prey().len() + 6).unwrap();
    for (kind, body) in [
        ("a zip", zip),
        ("a checkpoint", checkpoint),
        ("a pickle", pickle().into_bytes()),
        ("gzip", vec![0x1f, 0x8b, 8, 0]),
    ] {
        let answer = rig.post(&format!("{MODELS}/evil"), body).await;
        assert_eq!(answer.status, 400, "{kind}: {}", answer.text());
    }
    let task = rig.post("/api/v1/cluster/tasks", pickle()).await;
    assert_eq!(task.status, 400, "{}", task.text());
    // File names in a form are not used as paths.
    for name in ["../", "../../", "/tmp/"].map(|path| format!("{path}{}", prey())) {
        let head = |name: &str, file: &str| {
            format!(
                "--B\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\r\n"
            )
        };
        let model = [head("model", &name).as_bytes(), &onnx(), b"\r\n"].concat();
        let data = [head("data", &name).as_bytes(), b"0123\r\n--B--\r\n"].concat();
        let form = request("POST", &format!("{MODELS}/evil"))
            .header("content-type", "multipart/form-data; boundary=B")
            .body(Body::from([model, data].concat()));
        let answer = rig.call(form.unwrap()).await;
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
    }
    assert_eq!(files(&rig), before);
    nothing_is_made(&rig);
}

/// vLLM loaded pickles that came over ZeroMQ (CVE-2025-32444).
#[tokio::test(flavor = "multi_thread")]
async fn pickles_over_zeromq_are_not_loaded() {
    let (rig, addr) = frigate::start(ServerConfig::default()).await;
    let before = files(&rig);
    let model = json!({ "model_data": true, "model_name": "m.onnx" }).to_string();
    let named = json!({ "model_request": true, "model_name": pickle() }).to_string();
    let image = |dtype: &str| json!({ "shape": [1, 1, 2, 7], "dtype": dtype }).to_string();
    let (object, pickled) = (image("object"), image("pickle"));
    let evil = pickle().into_bytes();
    for parts in [
        vec![&evil[..]],
        vec![&evil[..], &evil[..]],
        vec![model.as_bytes(), &evil[..]],
        vec![named.as_bytes()],
        vec![object.as_bytes(), &evil[..]],
        vec![pickled.as_bytes(), &evil[..]],
    ] {
        let mut client = frigate::Client::connect(addr).await;
        // The server answers with an error or closes the connection.
        if let Ok(answer) = client.ask(&parts).await {
            let said = String::from_utf8_lossy(&answer[0]).into_owned();
            assert!(!said.contains("true"), "{said}");
        }
    }
    let asks = json!({ "model_request": true, "model_name": "m.onnx" });
    let answer = frigate::Client::connect(addr).await.tell(asks, &[]).await;
    assert_eq!(answer["model_available"], false, "it serves as before, and was given no model");
    assert_eq!(files(&rig), before);
    nothing_is_made(&rig);
}
