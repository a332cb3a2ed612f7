//! Loading, running, stopping and unloading a repository's models on the CPU.

mod lost;

use super::*;
use lgp_distributed::ExecErrorKind;
use lgp_inference::{Entry, GraphBuilder};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use std::time::{Duration, Instant};

/// A model `y = relu(x)` of f32 `[n]` in a repository of its own.
pub(crate) fn repository() -> (tempfile::TempDir, Repository, ModelRef) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(vec![Dim::Symbol("n".into())])) };
    let mut builder = GraphBuilder::new("relu");
    let x = builder.input("x", ty.clone());
    let y = builder.node("Relu", &[x], []);
    builder.output("y", y, ty);
    let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
    let file = folder.path().join("relu.onnx");
    std::fs::write(&file, bytes).expect("ours");
    let repository = Repository::open(folder.path().join("models")).expect("ours");
    let entry = repository.add("relu", &file).expect("a good model");
    let model =
        ModelRef { name: entry.name.clone(), version: entry.version, sha256: entry.sha256.clone() };
    (folder, repository, model)
}

pub(crate) fn input(name: &str, values: &[f32]) -> Vec<NamedTensor> {
    vec![NamedTensor::new(name, Tensor::from_slice([values.len()], values).expect("fits"))]
}

fn executor(repository: Repository) -> ModelExecutor {
    let options = SessionOptions::with_threads(1);
    ModelExecutor::new(repository, None, options)
}

#[test]
fn models_load_run_and_unload() {
    let (_folder, repository, model) = repository();
    let executor = executor(repository);
    let outputs =
        executor.execute(0, &model, &input("x", &[-1., 2.]), &Stop::new()).expect("a good task");
    assert_eq!(outputs[0].tensor.as_slice::<f32>().expect("f32"), [0., 2.]);
    assert_eq!(executor.status().devices[0].models, std::slice::from_ref(&model));
    executor.unload(0, &model);
    assert!(executor.status().devices[0].models.is_empty());
}

#[test]
fn failures_have_the_right_kind() {
    let (_folder, repository, model) = repository();
    let executor = executor(repository);
    let other = |name: &str, version, sha256: &str| ModelRef {
        name: name.to_owned(),
        version,
        sha256: sha256.to_owned(),
    };
    for (model, input, kind) in [
        (model.clone(), input("z", &[1.]), ExecErrorKind::BadInput),
        (model.clone(), Vec::new(), ExecErrorKind::BadInput),
        (other("nope", 1, &model.sha256), input("x", &[1.]), ExecErrorKind::ModelNotFound),
        (other("relu", 9, &model.sha256), input("x", &[1.]), ExecErrorKind::ModelNotFound),
        (other("relu", 1, "00"), input("x", &[1.]), ExecErrorKind::ModelNotFound),
    ] {
        let error = executor.execute(0, &model, &input, &Stop::new()).expect_err("a bad task");
        assert_eq!(error.kind, kind, "{error}");
    }
}

#[test]
fn what_an_operator_refuses_is_told_apart_from_what_the_machine_does() {
    let node = |source: OpError| {
        let (node, op) = ("pick".to_owned(), "Gather".to_owned());
        failure(&ModelError::Node { node, op, source })
    };
    for (source, kind) in [
        (OpError::invalid("index 9 of 3").of("Gather"), ExecErrorKind::Operator),
        (OpError::unsupported("strings").of("Gather"), ExecErrorKind::Operator),
        (TensorError::TooLarge { shape: vec![9] }.into(), ExecErrorKind::Operator),
        (TensorError::Spill { reason: "/tmp/x".to_owned() }.into(), ExecErrorKind::Failed),
        (
            OpError::Cache { folder: "/home/x".into(), reason: "full".to_owned() },
            ExecErrorKind::Failed,
        ),
    ] {
        let error = node(source);
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains("node 'pick' (Gather)"), "{error}");
    }
    let (path, digest) = ("/home/x/model.onnx".into(), |text: &str| text.to_owned());
    let error = failure(&ModelError::Digest { path, given: digest("a"), expected: digest("b") });
    assert_eq!(error.kind, ExecErrorKind::ModelNotFound);
    assert!(!error.message.contains("/home"), "{error}");
}

/// Models over rows of two. The rows of `y = relu(x)` are independent; those of `y = x - mean(x)`
/// over all rows are not, which its types do not show.
fn rows(mixed: bool) -> (tempfile::TempDir, ModelExecutor, ModelRef) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let shape = Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2)]));
    let ty = TensorType { dtype: DType::F32, shape };
    let mut builder = GraphBuilder::new("rows");
    let x = builder.input("x", ty.clone());
    let y = match mixed {
        false => builder.node("Relu", &[x], []),
        true => {
            let axis = Tensor::from_slice([1], &[0i64]).expect("fits");
            let axis = builder.initializer("axis", axis);
            let mean = builder.node("ReduceMean", &[x, axis], []);
            builder.node("Sub", &[x, mean], [])
        }
    };
    builder.output("y", y, ty);
    let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
    let file = folder.path().join("rows.onnx");
    std::fs::write(&file, bytes).expect("ours");
    let repository = Repository::open(folder.path().join("models")).expect("ours");
    let entry = repository.add("rows", &file).expect("a good model");
    let Entry { name, version, sha256, .. } = entry;
    (folder, executor(repository), ModelRef { name, version, sha256 })
}

fn row(a: f32, b: f32) -> Vec<NamedTensor> {
    vec![NamedTensor::new("x", Tensor::from_slice([1, 2], &[a, b]).expect("fits"))]
}

#[test]
fn batches_give_what_their_tasks_give_alone() {
    let stop = &Stop::new();
    for mixed in [false, true] {
        let (_folder, executor, model) = rows(mixed);
        let bad = vec![NamedTensor::new("z", Tensor::from_slice([1], &[1f32]).expect("fits"))];
        for batch in [
            // Equal rows have the same mean as each row alone.
            vec![row(1., -2.), row(1., -2.)],
            vec![row(1., -2.), row(3., 4.), row(-5., 6.)],
            vec![row(7., -8.), row(-9., 0.)],
            vec![row(1., 2.), bad.clone(), row(3., -4.)],
        ] {
            let joined = executor.execute_batch(0, &model, &batch, stop);
            let alone: Vec<_> =
                batch.iter().map(|inputs| executor.execute(0, &model, inputs, stop)).collect();
            assert_eq!(joined, alone, "mixed: {mixed}");
            assert!(joined.iter().filter(|result| result.is_err()).count() <= 1);
        }
    }
}

#[test]
fn a_traced_run_gives_the_same_and_tells_its_nodes() {
    let stop = &Stop::new();
    let (_folder, executor, model) = rows(false);
    let batch = [row(1., -2.), row(3., 4.)];
    let ops = |nodes: &[NodeTime]| nodes.iter().map(|node| node.op.clone()).collect::<Vec<_>>();
    let (alone, nodes) = executor.execute_traced(0, &model, &batch[..1], stop);
    assert_eq!(alone, [executor.execute(0, &model, &batch[0], stop)]);
    assert!(!nodes.is_empty() && nodes.iter().is_sorted_by_key(|node| node.start_ns), "{nodes:?}");
    let (joined, of_both) = executor.execute_traced(0, &model, &batch, stop);
    assert_eq!(joined, executor.execute_batch(0, &model, &batch, stop));
    // Both tasks are one run, from the first batch on.
    assert_eq!(ops(&of_both), ops(&nodes));
    let (failed, untold) = executor.execute_traced(0, &model, &[Vec::new()], stop);
    assert!(failed[0].is_err() && untold.is_empty(), "{failed:?}");
}

#[test]
fn a_swapped_file_is_not_loaded() {
    let (_folder, repository, model) = repository();
    let path = repository.get(&model.name, None).expect("added").path;
    let mut bytes = std::fs::read(&path).expect("ours");
    // Readers skip this empty field: the model is the same, but the file is another.
    bytes.extend([0x32, 0]);
    std::fs::write(&path, bytes).expect("ours");
    let error = executor(repository).load(0, &model).expect_err("not what was registered");
    assert_eq!(error.kind, ExecErrorKind::ModelNotFound, "{error}");
    assert!(error.message.contains(&model.sha256), "{error}");
}

/// A field of an ONNX (protobuf) message: bytes, or with wire type 0 a small number.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![];
    let mut varint = |mut n: usize| {
        while n >= 0x80 {
            out.push(u8::try_from(n & 0x7f).expect("7 bits") | 0x80);
            n >>= 7;
        }
        out.push(u8::try_from(n).expect("7 bits"));
    };
    varint(usize::from(number) << 3 | 2);
    varint(bytes.len());
    out.extend_from_slice(bytes);
    out
}

fn small(number: u8, value: u8) -> Vec<u8> {
    assert!(number < 16 && value < 128, "one byte each");
    vec![number << 3, value]
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: &[u8]) -> Vec<u8> {
    let inputs = inputs.iter().map(|name| field(1, name.as_bytes()));
    let outputs = outputs.iter().map(|name| field(2, name.as_bytes()));
    let mut parts: Vec<_> = inputs.chain(outputs).collect();
    parts.push(field(4, op.as_bytes()));
    if !attribute.is_empty() {
        parts.push(field(5, attribute));
    }
    field(1, &parts.concat())
}

/// A scalar, with ONNX's number of its type, as an input (11) or an output (12).
fn scalar(place: u8, name: &str, dtype: u8) -> Vec<u8> {
    let tensor = [small(1, dtype), field(2, &[])].concat();
    field(place, &[field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat())
}

/// A model that loops as long as its input says so, which never changes.
fn endless() -> (tempfile::TempDir, ModelExecutor, ModelRef, Vec<NamedTensor>) {
    const BOOL: u8 = 9;
    const I64: u8 = 7;
    const F32: u8 = 1;
    let body = [
        node("Identity", &["c"], &["c2"], &[]),
        node("Identity", &["v"], &["v2"], &[]),
        field(2, b"body"),
        scalar(11, "i", I64),
        scalar(11, "c", BOOL),
        scalar(11, "v", F32),
        scalar(12, "c2", BOOL),
        scalar(12, "v2", F32),
    ];
    // Field 20 is the attribute's type; 5 means a graph.
    let attribute = [field(1, b"body"), field(6, &body.concat()), vec![0xa0, 1, 5]].concat();
    let graph = [
        node("Loop", &["", "go", "x"], &["y"], &attribute),
        field(2, b"endless"),
        scalar(11, "go", BOOL),
        scalar(11, "x", F32),
        scalar(12, "y", F32),
    ];
    let model = [small(1, 8), field(7, &graph.concat()), field(8, &small(2, 18))].concat();
    let (folder, executor, model) = stored("endless", &model);
    let inputs = vec![
        NamedTensor::new("go", Tensor::scalar(true).expect("fits")),
        NamedTensor::new("x", Tensor::scalar(1f32).expect("fits")),
    ];
    (folder, executor, model, inputs)
}

fn stored(name: &str, bytes: &[u8]) -> (tempfile::TempDir, ModelExecutor, ModelRef) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("model.onnx");
    std::fs::write(&file, bytes).expect("ours");
    let repository = Repository::open(folder.path().join("models")).expect("ours");
    let Entry { name, version, sha256, .. } = repository.add(name, &file).expect("a good model");
    (folder, executor(repository), ModelRef { name, version, sha256 })
}

/// A model of many convolutions in turn.
fn long() -> (tempfile::TempDir, ModelExecutor, ModelRef, Vec<NamedTensor>) {
    let dims = [1, 16, 64, 64];
    let shape = Some(SymShape(dims.map(Dim::Known).to_vec()));
    let ty = TensorType { dtype: DType::F32, shape };
    let mut builder = GraphBuilder::new("long");
    let weights = Tensor::from_slice([16, 16, 3, 3], &[0.01f32; 2304]).expect("fits");
    let weights = builder.initializer("w", weights);
    let mut x = builder.input("x", ty.clone());
    for _ in 0..2000 {
        x = builder.node("Conv", &[x, weights], [("pads", [1i64; 4].into())]);
    }
    builder.output("y", x, ty);
    let bytes = builder.finish().and_then(|model| model.to_onnx()).expect("a sound graph");
    let (folder, executor, model) = stored("long", &bytes);
    let x = NamedTensor::new("x", Tensor::zeros(DType::F32, dims).expect("fits"));
    (folder, executor, model, vec![x])
}

#[test]
fn runs_end_soon_after_they_are_asked_to() {
    for (_folder, executor, model, inputs) in [endless(), long()] {
        executor.load(0, &model).expect("a good model");
        for batch in [false, true] {
            let stop = Stop::new();
            let (answers, took) = std::thread::scope(|scope| {
                let run = scope.spawn(|| match batch {
                    false => vec![executor.execute(0, &model, &inputs, &stop)],
                    true => {
                        executor.execute_batch(0, &model, &[inputs.clone(), inputs.clone()], &stop)
                    }
                });
                std::thread::sleep(Duration::from_millis(60));
                assert!(!run.is_finished(), "it is long enough for this test");
                stop.stop();
                let asked = Instant::now();
                (run.join().expect("no panic"), asked.elapsed())
            });
            assert_eq!(answers.len(), if batch { 2 } else { 1 });
            for answer in answers {
                assert_eq!(answer.expect_err("it was stopped").kind, ExecErrorKind::Stopped);
            }
            println!("{model}, batch {batch}: ended after {took:?}");
            // An operator takes a millisecond; the margin is for a busy machine.
            assert!(took < Duration::from_millis(500), "{took:?}");
        }
    }
}

#[test]
fn a_device_that_is_opened_again_keeps_nobody_waiting() {
    let (_folder, repository, model) = repository();
    let executor = executor(repository);
    executor.load(0, &model).expect("a good model");
    let lost = executor.loaded(&model).expect("it is loaded");
    let stop = Stop::new();
    let (opening, opens) = std::sync::mpsc::channel();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let opener = move |_| {
            opening.send(()).expect("the test listens");
            gone.recv_timeout(Duration::from_secs(60)).expect("the test lets it go");
            Ok(None)
        };
        let (at, lost) = (&executor, &*lost);
        let reopening = scope.spawn(move || at.reopen(lost, opener));
        opens.recv().expect("it opens");
        for _ in 0..20 {
            let start = Instant::now();
            assert!(executor.status().devices[0].models.is_empty(), "all went with its memory");
            let took = start.elapsed();
            assert!(took < Duration::from_millis(200), "{took:?}");
        }
        assert!(!executor.is_in_use(&model.sha256) && executor.footprint(0, &model).is_none());
        executor.unload(0, &model);
        // A task that waits for the device stops too.
        let task = scope.spawn(|| executor.execute(0, &model, &input("x", &[1.]), &stop));
        stop.stop();
        let error = task.join().expect("no panic").expect_err("it was stopped");
        assert_eq!(error.kind, ExecErrorKind::Stopped);
        go.send(()).expect("it waits");
        reopening.join().expect("no panic");
    });
    let again = executor.execute(0, &model, &input("x", &[-1., 2.]), &Stop::new());
    again.expect("it is loaded again");
}
