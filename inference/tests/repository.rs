//! The model repository: versions appear whole, names are no paths, nothing half-made is seen.

use lgp_inference::{Error, GraphBuilder, Model, Repository, Result};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use std::path::Path;

fn ty() -> TensorType {
    let shape = SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2), Dim::Unknown]);
    TensorType { dtype: DType::F32, shape: Some(shape) }
}

/// `y = op(x)`.
fn bytes(op: &str) -> Result<Vec<u8>> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty());
    let y = g.node(op, &[x], []);
    g.output("y", y, ty());
    g.finish()?.to_onnx()
}

fn names(repository: &Repository) -> Result<Vec<(String, u64)>> {
    Ok(repository.list()?.into_iter().map(|e| (e.name, e.version)).collect())
}

type Test = std::result::Result<(), Box<dyn std::error::Error>>;

#[test]
fn versions_are_counted_found_and_removed() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path().join("models"))?;
    assert!(repository.list()?.is_empty());

    let first = repository.add_bytes("b", &bytes("Relu")?)?;
    let second = repository.add_bytes("b", &bytes("Sigmoid")?)?;
    let other = repository.add_bytes("a", &bytes("Relu")?)?;
    assert_eq!((first.version, second.version, other.version), (1, 2, 1));
    assert_eq!(first.sha256, other.sha256);
    assert_ne!(first.sha256, second.sha256);
    assert_eq!(first.inputs[0].ty, ty());
    assert_eq!(names(&repository)?, [("a".into(), 1), ("b".into(), 1), ("b".into(), 2)]);

    assert_eq!(repository.get("b", None)?, second);
    assert_eq!(repository.get("b", Some(1))?, first);
    assert_eq!(std::fs::read(&first.path)?, bytes("Relu")?);
    // Another opening of the folder sees the same models.
    assert_eq!(Repository::open(repository.root())?.list()?, repository.list()?);

    repository.remove("b", Some(2))?;
    assert_eq!(repository.get("b", None)?.version, 1);
    // A number is given again once its version is gone, unless a later one is there.
    assert_eq!(repository.add_bytes("b", &bytes("Tanh")?)?.version, 2);
    repository.remove("b", None)?;
    repository.remove("a", Some(1))?;
    assert!(repository.list()?.is_empty());
    assert_eq!(std::fs::read_dir(repository.root())?.count(), 0, "nothing is left behind");
    Ok(())
}

#[test]
fn what_is_not_there_is_said() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    repository.add_bytes("digits", &bytes("Relu")?)?;
    let message = |r: Result<lgp_inference::Entry>| r.unwrap_err().to_string();
    assert_eq!(
        message(repository.get("letters", None)),
        "no model 'letters' in the repository, it has 'digits'"
    );
    assert_eq!(
        message(repository.get("digits", Some(7))),
        "model 'digits' has no version 7, it has '1'"
    );
    assert!(matches!(repository.remove("letters", None), Err(Error::UnknownModel { .. })));
    assert!(matches!(repository.remove("digits", Some(2)), Err(Error::UnknownVersion { .. })));
    Ok(())
}

#[test]
fn names_are_no_paths() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path().join("models"))?;
    let model = bytes("Relu")?;
    let long = "x".repeat(65);
    for name in ["", ".", "..", ".hidden", "-x", "a/b", "../a", "a\\b", "a b", "ä", "a\0", &long] {
        let error = repository.add_bytes(name, &model).unwrap_err();
        assert!(matches!(error, Error::ModelName { .. }), "{name:?}: {error}");
        assert!(matches!(repository.get(name, None), Err(Error::ModelName { .. })));
        assert!(matches!(repository.remove(name, None), Err(Error::ModelName { .. })));
    }
    for name in ["a", "0", "A.b_c-9", &long[..64]] {
        repository.add_bytes(name, &model)?;
    }
    Ok(())
}

#[test]
fn a_bad_model_leaves_nothing_behind() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    let good = bytes("Relu")?;
    assert!(repository.add_bytes("m", &good[..good.len() - 3]).is_err());
    assert!(matches!(repository.add_bytes("m", &bytes("Whirl")?), Err(Error::Unsupported(_))));
    assert!(matches!(
        repository.add("m", folder.path().join("gone.onnx")),
        Err(Error::Io { action: "read", .. })
    ));
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 0);
    Ok(())
}

/// A model whose weight `w` lies in `location`, made by hand: `to_onnx` keeps weights inside.
fn with_external(location: &str) -> Result<Vec<u8>> {
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty());
    let w = g.initializer("w", Tensor::from_slice([2], &[0f32; 2])?);
    let y = g.node("Add", &[x, w], []);
    g.output("y", y, ty());
    let bytes = g.finish()?.to_onnx()?;
    // The weight's raw data (field 9) becomes entries (field 13) and the place external (field 14).
    let raw = [&[0x4a, 8][..], &[0; 8]].concat();
    let at = bytes.windows(raw.len()).position(|w| w == raw).expect("the weight is in the file");
    let field = |tag: u8, body: &[u8]| [&[tag, u8::try_from(body.len()).unwrap()], body].concat();
    let entry = [field(0x0a, b"location"), field(0x12, location.as_bytes())].concat();
    let external = [field(0x6a, &entry), vec![0x70, 1]].concat();
    // The enclosing tensor and graph grow by the difference; both lengths are near the front of
    // their messages, and a weight of two elements keeps the tensor's below 128.
    let tensor = bytes[..at].iter().rposition(|&b| b == 0x2a).expect("the tensor's tag");
    let mut tensor_body = bytes[tensor + 2..at].to_vec();
    tensor_body.extend(external);
    let end = at + raw.len();
    let graph = bytes.windows(1).position(|w| w == [0x3a]).expect("the graph's tag");
    let (length, head) = varint(&bytes[graph + 1..]);
    let body = graph + 1 + head;
    let graph_body =
        [&bytes[body..tensor], &field(0x2a, &tensor_body), &bytes[end..body + length]].concat();
    let mut out = bytes[..graph + 1].to_vec();
    push_varint(&mut out, graph_body.len());
    out.extend(graph_body);
    out.extend(&bytes[body + length..]);
    Ok(out)
}

fn varint(bytes: &[u8]) -> (usize, usize) {
    let len = bytes.iter().position(|b| b & 0x80 == 0).expect("a varint ends") + 1;
    let value = bytes[..len].iter().rev().fold(0, |v, &b| v << 7 | usize::from(b & 0x7f));
    (value, len)
}

fn push_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

#[test]
fn weights_in_other_files_come_along() -> Test {
    let folder = tempfile::tempdir()?;
    let source = folder.path().join("source");
    std::fs::create_dir_all(source.join("weights"))?;
    let write = |name: &str, location: &str| -> Test {
        Ok(std::fs::write(source.join(name), with_external(location)?)?)
    };
    write("net.onnx", "weights/w.bin")?;
    let data = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    std::fs::write(source.join("weights/w.bin"), &data)?;

    let repository = Repository::open(folder.path().join("models"))?;
    let entry = repository.add("net", source.join("net.onnx"))?;
    std::fs::remove_dir_all(&source)?;
    let model = Model::load(&entry.path)?;
    assert_eq!(model.initializers()["w"].as_slice::<f32>()?, [1., 2.]);

    // The hash covers the weights.
    std::fs::create_dir_all(source.join("weights"))?;
    write("net.onnx", "weights/w.bin")?;
    std::fs::write(source.join("weights/w.bin"), [0; 8])?;
    assert_ne!(repository.add("net", source.join("net.onnx"))?.sha256, entry.sha256);

    // A file of weights with this name would overwrite the repository's own file.
    write("net.onnx", "model.onnx")?;
    std::fs::write(source.join("model.onnx"), data)?;
    let error = repository.add("net", source.join("net.onnx")).unwrap_err().to_string();
    assert!(error.contains("'model.onnx'"), "{error}");
    Ok(())
}

#[test]
fn a_model_put_there_by_hand_is_read_itself() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    let added = repository.add_bytes("added", &bytes("Relu")?)?;
    let by_hand = folder.path().join("hand/3");
    std::fs::create_dir_all(&by_hand)?;
    std::fs::write(by_hand.join("model.onnx"), bytes("Relu")?)?;
    // Neither folder is a version.
    std::fs::create_dir_all(folder.path().join("hand/latest"))?;
    std::fs::create_dir_all(folder.path().join("hand/4"))?;
    let entry = repository.get("hand", None)?;
    assert_eq!((entry.version, &entry.sha256), (3, &added.sha256));
    assert_eq!(entry.inputs, added.inputs);
    assert_eq!(entry.path, Path::new(&by_hand).join("model.onnx"));
    // The entry is stored, so that the model itself is read once.
    assert!(by_hand.join("entry.json").is_file());

    // A bad model hides no other, and its error is given when the model is asked for.
    let bad = folder.path().join("bad/1");
    std::fs::create_dir_all(&bad)?;
    std::fs::write(bad.join("model.onnx"), "no model")?;
    assert_eq!(names(&repository)?, [("added".into(), 1), ("hand".into(), 3)]);
    assert!(matches!(repository.get("bad", None), Err(Error::Malformed { .. })));
    Ok(())
}

#[test]
fn a_changed_file_is_refused() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path().join("models"))?;
    let file = folder.path().join("net.onnx");
    std::fs::write(&file, with_external("w.bin")?)?;
    std::fs::write(folder.path().join("w.bin"), [0; 8])?;
    let entry = repository.add("net", &file)?;
    repository.load(&entry)?;
    let weights = entry.path.with_file_name("w.bin");
    for (path, bytes) in [
        (&weights, vec![1; 8]),
        (&weights, vec![0; 3]),
        (&entry.path, bytes("Tanh")?),
        (&entry.path, b"no model".to_vec()),
    ] {
        let before = std::fs::read(path)?;
        std::fs::write(path, bytes)?;
        assert!(matches!(repository.load(&entry), Err(Error::Digest { .. })), "{path:?}");
        std::fs::write(path, before)?;
        repository.load(&entry)?;
    }
    let external = Repository::external_files(&file)?;
    assert_eq!(external.keys().collect::<Vec<_>>(), [Path::new("w.bin")]);
    Ok(())
}

#[test]
fn a_changed_file_is_another_model() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path().join("models"))?;
    let file = folder.path().join("net.onnx");
    std::fs::write(&file, with_external("w.bin")?)?;
    std::fs::write(folder.path().join("w.bin"), [0; 8])?;
    let added = repository.add("net", &file)?;
    let weights = added.path.with_file_name("w.bin");
    std::fs::write(&weights, [1; 8])?;
    // The file has the same length and another time.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
    std::fs::File::options().write(true).open(&weights)?.set_modified(later)?;
    let weighed = repository.get("net", None)?;
    assert_ne!(weighed.sha256, added.sha256);
    repository.load(&weighed)?;
    std::fs::write(&added.path, bytes("Tanh")?)?;
    let other = repository.get("net", None)?;
    assert_eq!((other.version, &other.inputs[0].ty), (1, &ty()));
    assert_ne!(other.sha256, weighed.sha256);
    repository.load(&other)?;
    // The entry was stored: the model is not read again until it changes.
    let known = added.path.with_file_name("entry.json");
    let then = std::fs::metadata(&known)?.modified()?;
    assert_eq!(repository.get("net", None)?, other);
    assert_eq!(std::fs::metadata(&known)?.modified()?, then);
    std::fs::write(&added.path, "no model")?;
    assert!(matches!(repository.get("net", None), Err(Error::Malformed { .. })));
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_odd_folder_is_a_broken_model_among_good_ones() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    repository.add_bytes("good", &bytes("Relu")?)?;
    // A pipe in the place of an entry, and a folder in the place of a model.
    let piped = repository.add_bytes("piped", &bytes("Tanh")?)?;
    let known = piped.path.with_file_name("entry.json");
    std::fs::remove_file(&known)?;
    assert!(std::process::Command::new("mkfifo").arg(&known).status()?.success());
    std::fs::create_dir_all(folder.path().join("nested/1/model.onnx"))?;
    let (sender, listed) = std::sync::mpsc::channel();
    let listing = repository.clone();
    std::thread::spawn(move || sender.send(names(&listing).ok()));
    let listed = listed.recv_timeout(std::time::Duration::from_secs(10));
    assert_eq!(listed.expect("it ends").unwrap(), [("good".into(), 1), ("piped".into(), 1)]);
    assert_eq!(repository.found()?["nested"].as_ref().ok(), Some(&vec![1]));
    assert!(matches!(repository.get("nested", None), Err(Error::Io { action: "read", .. })));
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_folder_that_nobody_may_read_is_one_model_alone() -> Test {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    for name in ["good", "shut", "inner"] {
        repository.add_bytes(name, &bytes("Relu")?)?;
    }
    for path in ["shut", "inner/1"] {
        std::fs::set_permissions(folder.path().join(path), PermissionsExt::from_mode(0o000))?;
    }
    let is_shut = std::fs::read_dir(folder.path().join("shut")).is_err();
    let (listed, found) = (names(&repository), repository.found());
    let inner = repository.get("inner", None);
    for path in ["shut", "inner/1"] {
        std::fs::set_permissions(folder.path().join(path), PermissionsExt::from_mode(0o700))?;
    }
    if !is_shut {
        println!("skipped: account: no mode of a folder keeps this one from reading it");
        return Ok(());
    }
    assert_eq!(listed?, [("good".into(), 1)]);
    assert!(matches!(found?["shut"], Err(Error::Io { action: "list", .. })));
    assert!(matches!(inner, Err(Error::Io { .. })), "{inner:?}");
    Ok(())
}

#[test]
fn a_folder_without_a_model_keeps_its_number() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    std::fs::create_dir_all(folder.path().join("m/1/weights"))?;
    assert_eq!(repository.add_bytes("m", &bytes("Relu")?)?.version, 2);
    Ok(())
}

#[test]
fn the_same_bytes_are_added_once() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    let (relu, tanh) = (bytes("Relu")?, bytes("Tanh")?);
    for (bytes, version) in [(&relu, 1), (&tanh, 2), (&relu, 1), (&tanh, 2)] {
        assert_eq!(repository.find_or_add_bytes("m", bytes)?.version, version);
    }
    Ok(())
}

#[test]
fn what_was_interrupted_is_swept_away() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    repository.add_bytes("m", &bytes("Relu")?)?;
    for name in [".adding-1/weights", ".removing-2/model", ".other"] {
        std::fs::create_dir_all(folder.path().join(name))?;
    }
    repository.sweep()?;
    let mut left: Vec<_> = std::fs::read_dir(folder.path())?
        .map(|item| Ok(item?.file_name().into_string().unwrap_or_default()))
        .collect::<std::io::Result<_>>()?;
    left.sort();
    assert_eq!(left, [".other", "m"]);
    Ok(())
}

#[test]
fn many_threads_add_at_once() -> Test {
    let folder = tempfile::tempdir()?;
    let repository = Repository::open(folder.path())?;
    let model = bytes("Relu")?;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| repository.add_bytes("m", &model).unwrap());
        }
    });
    let versions: Vec<u64> = repository.list()?.iter().map(|e| e.version).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5, 6, 7, 8]);
    Ok(())
}
