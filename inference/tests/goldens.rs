//! Small models with the outputs of ONNX Runtime 1.31. Classical models were made by skl2onnx 1.20
//! from scikit-learn 1.9, or use one operator. Most models of the optimiser's fused operators are
//! made by `fused_goldens.py`.
//!
//! A folder holds `model.onnx`, `input_N.pb` and `output_N.pb`, as in ONNX's own test suite.

use lgp_compute::ops::Cast;
use lgp_compute::{Context, Op};
use lgp_inference::{Model, Session, SessionOptions, check_facts, read_tensor};
use lgp_memory::{DType, Datum, Tensor};
use std::path::{Path, PathBuf};

fn folders(suite: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(suite);
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// `PREFIX_0.pb`, `PREFIX_1.pb` and so on.
fn tensors(folder: &Path, prefix: &str) -> Vec<(String, Tensor)> {
    (0..)
        .map(|i| folder.join(format!("{prefix}_{i}.pb")))
        .take_while(|path| path.exists())
        .map(|path| {
            let named = read_tensor(&std::fs::read(path).unwrap()).unwrap();
            (named.name, named.tensor)
        })
        .collect()
}

fn wide(x: &Tensor) -> Vec<f64> {
    let out = Cast { to: DType::F64 }.run(&Context::new(1), &[Some(x.view())]).unwrap();
    out[0].as_slice().unwrap().to_vec()
}

fn agrees(folder: &Path) {
    let model = Model::load(folder.join("model.onnx")).unwrap();
    let options = SessionOptions { threads: 1, ..SessionOptions::default() };
    let session = Session::new(&model, options).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    let inputs = tensors(folder, "input");
    let given: Vec<_> = inputs.iter().map(|(name, x)| (name.as_str(), x.view())).collect();
    let outputs = session.run(&given).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    let expected = tensors(folder, "output");
    assert_eq!(outputs.len(), expected.len(), "{folder:?}");
    for (got, (name, want)) in outputs.iter().zip(&expected) {
        assert_eq!(&got.name, name, "{folder:?}");
        assert_eq!(got.tensor.dtype(), want.dtype(), "{folder:?} {name}");
        assert_eq!(got.tensor.shape(), want.shape(), "{folder:?} {name}");
        if want.dtype() == DType::Str {
            assert_eq!(&got.tensor, want, "{folder:?} {name}");
            continue;
        }
        for (i, (a, b)) in wide(&got.tensor).into_iter().zip(wide(want)).enumerate() {
            let near = (a - b).abs() <= 1e-5 + 1e-4 * b.abs();
            let close = near || a == b || (a.is_nan() && b.is_nan());
            assert!(close, "{folder:?} {name}: element {i} is {a}, expected {b}");
        }
    }
    let given = inputs.iter().map(|(name, x)| (name.as_str(), Datum::Tensor(x.clone()))).collect();
    assert_eq!(check_facts(&model, given, 1).unwrap(), [] as [&str; 0], "{folder:?}");
}

#[test]
fn classical_models_agree() {
    let all = folders("classical");
    assert_eq!(all.len(), 32);
    all.iter().for_each(|folder| agrees(folder));
}

#[test]
fn fused_operators_agree() {
    let all = folders("fused");
    assert_eq!(all.len(), 115);
    // All that disagree are shown, not only the first.
    let wrong = all.iter().filter(|folder| std::panic::catch_unwind(|| agrees(folder)).is_err());
    assert_eq!(wrong.count(), 0);
}
