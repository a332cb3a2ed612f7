//! Cases that ONNX leaves open are refused, and rows of features are filled up or cut.

use crate::model::{Attr, Model, ModelNode, ValueSpec};
use crate::{Result, Session, SessionOptions};
use lgp_memory::{DType, Tensor, TensorType};
use std::collections::BTreeMap;

/// The last output of one node on `x`.
fn run(op: &str, outputs: &[&str], attributes: Vec<(&str, Attr)>, x: &Tensor) -> Result<Vec<f32>> {
    let spec = |name: &str| ValueSpec::tensor(name, TensorType { dtype: DType::F32, shape: None });
    let ty = TensorType::concrete(DType::F32, x.shape());
    let node = ModelNode {
        name: "node".into(),
        op_type: op.to_owned(),
        domain: "ai.onnx.ml".into(),
        inputs: vec!["x".into()],
        outputs: outputs.iter().map(|s| (*s).to_owned()).collect(),
        attributes: attributes.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    };
    let model = Model {
        name: "m".into(),
        producer: String::new(),
        ir_version: 8,
        opsets: [(String::new(), 18), ("ai.onnx.ml".into(), 3)].into(),
        metadata: BTreeMap::new(),
        inputs: vec![ValueSpec::tensor("x", ty)],
        defaults: Vec::new(),
        outputs: vec![spec(outputs[outputs.len() - 1])],
        initializers: BTreeMap::new(),
        nodes: vec![node],
        operators: Default::default(),
    }
    .validated()?;
    let session = Session::new(&model, SessionOptions::with_threads(1))?;
    Ok(session.run(&[("x", x.view())])?[0].tensor.as_slice::<f32>()?.to_vec())
}

#[test]
fn base_values_that_other_engines_forget_are_refused() {
    let x = Tensor::from_slice([1, 1], &[0f32]).unwrap();
    let scores = |class: i64, base: &[f32]| {
        let ints = |v: &[i64]| Attr::Ints(v.to_vec());
        let modes = ["BRANCH_LEQ", "LEAF", "LEAF"].map(str::to_owned);
        let attributes = vec![
            ("nodes_treeids", ints(&[0; 3])),
            ("nodes_nodeids", ints(&[0, 1, 2])),
            ("nodes_featureids", ints(&[0; 3])),
            ("nodes_values", Attr::Floats(vec![0.5, 0., 0.])),
            ("nodes_modes", Attr::Strs(modes.to_vec())),
            ("nodes_truenodeids", ints(&[1, 0, 0])),
            ("nodes_falsenodeids", ints(&[2, 0, 0])),
            ("class_treeids", ints(&[0, 0])),
            ("class_nodeids", ints(&[1, 2])),
            ("class_ids", ints(&[class; 2])),
            ("class_weights", Attr::Floats(vec![0.25, 0.75])),
            ("classlabels_int64s", ints(&[10, 20])),
            ("base_values", Attr::Floats(base.to_vec())),
        ];
        run("TreeEnsembleClassifier", &["", "y"], attributes, &x).map_err(|e| e.to_string())
    };
    assert_eq!(scores(0, &[0.5]), Ok(vec![0.25, 0.75]));
    assert_eq!(scores(1, &[0.5, 0.25]), Ok(vec![0.5, 0.5]));
    for (class, base, message) in [
        (0, &[0.5f32, 0.25][..], "2 base values where all weights are of the first class"),
        (1, &[0.5], "1 base values where all weights are of the second class"),
        (1, &[0.5; 3], "3 base values, expected 2"),
        (7, &[], "target 7 of 2"),
    ] {
        let error = scores(class, base).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}

/// As ONNX Runtime does it.
#[test]
fn rows_of_features_are_filled_up_or_cut() {
    let data = [0f32, 1., 2., 3.];
    for (dims, size, want) in [
        (&[2, 2][..], 3, &[0f32, 1., 0., 2., 3., 0.][..]),
        (&[2, 2], 1, &[0., 2.]),
        (&[2, 2, 1], 2, &data),
        (&[4], 4, &data),
        (&[4], 2, &[0., 1.]),
    ] {
        let x = Tensor::from_slice(dims, &data).unwrap();
        let attributes = vec![("inputdimensions", Attr::Ints(vec![size]))];
        let y = run("FeatureVectorizer", &["y"], attributes, &x).unwrap();
        assert_eq!(y, want, "{dims:?} {size}");
    }
}
