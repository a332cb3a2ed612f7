//! Data folders of earlier versions: each keeps serving with its models, tasks and keys. `tests/data/make.sh` adds a
//! version's own folder.

use crate::harness::{Cluster, World, eventually};
use flate2::Crc;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packed folders.
fn kept() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let entries = std::fs::read_dir(folder).expect("it is in the tree").flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "the folder of the first version is in the tree");
    found
}

/// A world whose `data` folder is unpacked from `packed`.
fn unpacked(packed: &Path) -> World {
    let world = World::new();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(packed).arg("--no-same-owner").arg("-C").arg(world.folder.path());
    assert!(tar.status().expect("tar is there").success());
    world
}

#[test]
fn folders_of_earlier_versions_serve_on() {
    for packed in kept() {
        let world = unpacked(&packed);
        let key = std::fs::read_to_string(world.path("data/kept.key")).expect("packed");
        let image = world.path("data/image.npy").display().to_string();
        let data = world.path("data").display().to_string();
        // The folder's own file has all other settings.
        let endpoint = world.run(&["start", "--json", "--data", &data]).json();
        let cluster = Cluster { world, endpoint };
        assert_eq!(cluster.workers("ready").len(), 1, "the folder's settings say so");
        let models = cluster.run(&["models", "ls"]).json();
        let mut models: Vec<(String, u64)> = models
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| (it["name"].as_str().unwrap().to_owned(), it["version"].as_u64().unwrap()))
            .collect();
        models.sort();
        let named = |name: &str, version| (name.to_owned(), version);
        assert_eq!(models, [named("added", 1), named("added", 2), named("digits", 1)]);
        // The key of an earlier task leads to that task, with its outputs.
        let again = |key: &str| {
            let submit = ["submit", "--model", "digits", "--input", &image, "--durable", "--key"];
            cluster.run(&[&submit[..], &[key]].concat()).json()["task_id"].clone()
        };
        let done = again("done");
        let tasks = cluster.run(&["tasks"]).json();
        assert_eq!(tasks.as_array().map(Vec::len), Some(2), "none is new: {tasks}");
        let done = cluster.run(&["tasks", "show", done.as_str().expect("an id")]).json();
        assert!(done["state"] == "succeeded" && done["attempts"] == 1, "{done}");
        // The queued task runs now.
        let queued = again("queued");
        eventually("the task that was queued ends", || {
            let shown = cluster.run(&["tasks", "show", queued.as_str().expect("an id")]).json();
            shown["state"] == "succeeded"
        });
        let url = cluster.endpoint["http"].as_str().expect("an address");
        let ask = |key: &str| {
            let mut command = cluster.world.command(&["stats", "--json", "--server", url]);
            command.env("RADEON_KEY", key).output().expect("the binary starts").status.code()
        };
        assert_eq!((ask(key.trim()), ask("lgp_5e004504a8c5_5e")), (Some(0), Some(1)));
        cluster.run(&["stop"]).json();
    }
}

#[test]
fn a_folder_of_a_later_version_is_refused_and_stays_as_it_is() {
    let world = unpacked(&kept()[0]);
    let journal = world.path("data/tasks.journal");
    let mut bytes = std::fs::read(&journal).expect("packed");
    // Both guard pages have a magic number, the version after it, and a checksum at the end.
    for page in [0, 4096] {
        let head = &mut bytes[page..page + 24];
        if &head[..6] == b"LGPjrn" {
            head[8..12].copy_from_slice(&999_u32.to_le_bytes());
            let mut crc = Crc::new();
            crc.update(&head[..20]);
            head[20..].copy_from_slice(&crc.sum().to_le_bytes());
        }
    }
    std::fs::write(&journal, &bytes).expect("ours");
    let data = world.path("data").display().to_string();
    let (code, message) = world.run(&["start", "--json", "--data", &data]).error(1);
    assert!(code == "journal_too_new" && message.contains("999"), "{code} {message}");
    assert!(
        std::fs::read(&journal).expect("there") == bytes,
        "it can be opened by its own version"
    );
}
