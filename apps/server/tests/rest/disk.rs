//! A full disk: what does not fit is refused with the reason, and all else keeps working.
#![cfg(target_os = "linux")]

use crate::rig::{Answer, Options, Rig, onnx, request};
use axum::body::Body;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const MODELS: &str = "/api/v1/cluster/models";
const INFER: &str = r#"{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}"#;

/// A file system of a few MiB; dropping it unmounts it.
struct Disk(TempDir);

impl Disk {
    /// Fails if this process may not mount file systems.
    fn mount() -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(folder.path());
        let made = mount.output().map_err(|error| error.to_string())?;
        match made.status.success() {
            true => Ok(Self(folder)),
            false => Err(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        }
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Fills the disk except for `left` bytes.
    fn fill(&self, left: usize) {
        let mut file = File::create(self.filler()).unwrap();
        let mut takes = || (0..).take_while(|_| file.write_all(&[0; 4096]).is_ok()).count();
        // The writing thread may close its file a moment after the upload was refused.
        while takes() > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let length = file.metadata().unwrap().len();
        file.set_len(length - u64::try_from(left).unwrap()).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).output();
    }
}

/// All files and folders below a folder, recursively.
fn files(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        all.push(entry.path());
        files(&entry.path(), all);
    }
}

fn models(rig: &Rig) -> Vec<PathBuf> {
    let mut all = Vec::new();
    files(&rig.folder.path().join("models"), &mut all);
    all.sort();
    all
}

/// An upload with this many bytes of data.
fn parts(bytes: usize) -> axum::http::Request<Body> {
    let part = |head: &str, data: &[u8]| {
        [format!("--B\r\nContent-Disposition: form-data; {head}\r\n\r\n").as_bytes(), data, b"\r\n"]
            .concat()
    };
    let model = part(r#"name="model"; filename="m.onnx""#, &onnx());
    let data = part(r#"name="data"; filename="m.data""#, &vec![1; bytes]);
    let body = [model, data, b"--B--\r\n".to_vec()].concat();
    request("POST", &format!("{MODELS}/large"))
        .header("content-type", "multipart/form-data; boundary=B")
        .body(Body::from(body))
        .unwrap()
}

#[track_caller]
fn is_full(answer: &Answer, what: &str) {
    assert_eq!(answer.status, 507, "{what}: {}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], "disk_full", "{what}");
    let says = |key: &str, part: &str| error[key].as_str().is_some_and(|text| text.contains(part));
    assert!(says("message", "full") && says("hint", "free space"), "{what}: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_what_does_not_fit_and_serves_on() {
    let disk = match Disk::mount() {
        Ok(disk) => disk,
        Err(why) => return println!("skipped: mount: {why}"),
    };
    let options = Options { disk: Some(disk.0.path().to_owned()), ..Options::default() };
    let rig = Rig::with(options).await;
    let put = async |path: &str, body: Value| {
        let put = request("PUT", &format!("/api/v1/cluster/{path}"));
        rig.call(put.body(Body::from(body.to_string())).unwrap()).await
    };
    let before = models(&rig);
    let listed = rig.get(MODELS).await.json();
    // The full disk is noticed while the upload arrives, or when the model is copied into place and
    // does not fit twice.
    is_full(&rig.post(&format!("{MODELS}/noise"), vec![0; 6 << 20]).await, "a plain upload");
    is_full(&rig.call(parts(6 << 20)).await, "an upload in parts");
    for left in [0, 4096] {
        disk.fill(left);
        is_full(&rig.post(&format!("{MODELS}/small"), onnx()).await, "an upload that fits nowhere");
        if left == 0 {
            let deployment = json!({ "memory_bytes": 7 });
            is_full(&put("models/relu/deployment", deployment).await, "a deployment");
            let alias = json!({ "targets": [{ "model": "relu", "weight": 1 }] });
            is_full(&put("aliases/prod", alias).await, "an alias");
        }
        assert_eq!(models(&rig), before, "nothing is left of what was refused");
        disk.free();
    }
    disk.fill(0);
    assert_eq!(rig.get(MODELS).await.json(), listed);
    assert_eq!(rig.post("/v2/models/relu/infer", INFER).await.status, 200);
    for order in ["unload", "load"] {
        let answer = rig.post(&format!("/v2/repository/models/relu/{order}"), "").await;
        assert_eq!(answer.status, 200, "{order}: {}", answer.text());
    }
    rig.until("/v2/models/relu/ready", |answer| answer.status == 200).await;
    assert_eq!(rig.post("/v2/models/relu/infer", INFER).await.status, 200);
    // Deleting a model frees space, even on a completely full disk.
    let gone = rig.delete(&format!("{MODELS}/fails")).await;
    assert_eq!(gone.status, 200, "{}", gone.text());
    disk.free();
    let added = rig.post(&format!("{MODELS}/small"), onnx()).await;
    assert_eq!(added.status, 201, "{}", added.text());
    assert_eq!(rig.post("/v2/models/small/infer", INFER).await.status, 200);
    assert_eq!(rig.call(parts(1 << 20)).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_to_a_detector() {
    let disk = match Disk::mount() {
        Ok(disk) => disk,
        Err(why) => return println!("skipped: mount: {why}"),
    };
    let options = Options { disk: Some(disk.0.path().to_owned()), ..Options::default() };
    let rig = Rig::with(options).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(lgp_server::serve_frigate(listener, rig.state.clone(), std::future::pending()));
    let mut client = crate::frigate::Client::connect(addr).await;
    let before = models(&rig);
    let sends = json!({ "model_data": true, "model_name": "m.onnx" });
    disk.fill(0);
    for model in [crate::frigate::onnx("m"), vec![0; 6 << 20]] {
        let answer = client.tell(sends.clone(), &[&model]).await;
        assert_eq!(
            (&answer["model_saved"], &answer["model_loaded"]),
            (&json!(false), &json!(false))
        );
        assert!(answer["message"].as_str().unwrap().contains("disk"), "{answer}");
        assert_eq!(models(&rig), before, "nothing is left of what was refused");
    }
    // The connection continues, and the model is accepted once there is space.
    disk.free();
    let answer = client.tell(sends, &[&crate::frigate::onnx("m")]).await;
    assert_eq!(answer["model_saved"], true, "{answer}");
}
