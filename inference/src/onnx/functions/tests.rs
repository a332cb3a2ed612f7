//! Functions of a file's own, inlined.

use super::*;
use crate::onnx::proto::attribute_proto::AttributeType;
use crate::onnx::proto::tensor_proto::{DataLocation, DataType};
use crate::onnx::proto::{
    OperatorSetIdProto, SparseTensorProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TypeProto, ValueInfoProto, type_proto,
};
use crate::{Model, Session, SessionOptions};
use lgp_memory::Tensor;
use prost::Message;

fn node(domain: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        domain: Some(domain.into()),
        op_type: Some(op.into()),
        input: inputs.iter().map(|s| (*s).into()).collect(),
        output: outputs.iter().map(|s| (*s).into()).collect(),
        ..NodeProto::default()
    }
}

fn function(name: &str, inputs: &[&str], outputs: &[&str], nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        domain: Some("own".into()),
        name: Some(name.into()),
        input: inputs.iter().map(|s| (*s).into()).collect(),
        output: outputs.iter().map(|s| (*s).into()).collect(),
        node: nodes,
        opset_import: vec![opset("", 18)],
        ..FunctionProto::default()
    }
}

fn opset(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) }
}

fn value(name: &str) -> ValueInfoProto {
    let tensor = type_proto::Tensor {
        elem_type: Some(DataType::Float.into()),
        shape: Some(TensorShapeProto::default()),
    };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            value: Some(type_proto::Value::TensorType(tensor)),
            ..TypeProto::default()
        }),
        ..ValueInfoProto::default()
    }
}

fn model(functions: Vec<FunctionProto>, nodes: Vec<NodeProto>) -> Result<Model> {
    let proto = ModelProto {
        ir_version: Some(8),
        opset_import: vec![opset("", 18), opset("own", 1)],
        graph: Some(GraphProto {
            node: nodes,
            input: vec![value("x")],
            output: vec![value("y")],
            ..GraphProto::default()
        }),
        functions,
        ..ModelProto::default()
    };
    Model::from_bytes(&proto.encode_to_vec(), None)
}

fn run(model: &Model, x: f32) -> f32 {
    let session = Session::new(model, SessionOptions::with_threads(1)).unwrap();
    let x = Tensor::scalar(x).unwrap();
    session.run(&[("x", x.view())]).unwrap()[0].tensor.as_slice::<f32>().unwrap()[0]
}

/// `Clip` with no lower bound; the upper bound is the caller's attribute `top`, 6 by default.
fn capped() -> FunctionProto {
    let mut constant = node("", "Constant", &[], &["limit"]);
    constant.attribute = vec![AttributeProto {
        name: Some("value_float".into()),
        ref_attr_name: Some("top".into()),
        r#type: Some(AttributeType::Float.into()),
        ..AttributeProto::default()
    }];
    let clip = node("", "Clip", &["a", "", "limit"], &["b"]);
    let default = AttributeProto {
        name: Some("top".into()),
        f: Some(6.),
        r#type: Some(AttributeType::Float.into()),
        ..AttributeProto::default()
    };
    let mut out = function("Capped", &["a", "unused"], &["b"], vec![constant, clip]);
    out.attribute_proto = vec![default];
    out
}

#[test]
fn calls_become_what_they_stand_for() {
    let mut tight = node("own", "Capped", &["m"], &["y"]);
    tight.attribute = vec![AttributeProto {
        name: Some("top".into()),
        f: Some(2.),
        r#type: Some(AttributeType::Float.into()),
        ..AttributeProto::default()
    }];
    // Each call has inner values of its own, and outputs that are inputs are passed through.
    let both = function(
        "Twice",
        &["p"],
        &["q", "p"],
        vec![node("own", "Capped", &["p"], &["r"]), node("", "Add", &["r", "r"], &["q"])],
    );
    let nodes = vec![node("own", "Twice", &["x"], &["m", ""]), tight];
    let model = model(vec![capped(), both], nodes).unwrap();
    assert_eq!(
        model.operator_counts().keys().copied().collect::<Vec<_>>(),
        ["Add", "Clip", "Constant"]
    );
    assert_eq!(run(&model, 0.5), 1.);
    assert_eq!(run(&model, 9.), 2.);
    let passed = node("own", "Twice", &["x"], &["", "y"]);
    let both = function("Twice", &["p"], &["q", "p"], vec![node("", "Neg", &["p"], &["q"])]);
    assert_eq!(run(&super::tests::model(vec![both], vec![passed]).unwrap(), 9.), 9.);
}

#[test]
fn functions_that_never_end_are_refused() {
    let call = || vec![node("own", "F", &["x"], &["y"])];
    let again = function("F", &["a"], &["b"], vec![node("own", "F", &["a"], &["b"])]);
    let error = model(vec![again], call()).unwrap_err().to_string();
    assert_eq!(error, "invalid graph: functions nest more than 64 deep at 'F'");

    // Thirty functions that each call the next one twice stand for a thousand million nodes.
    let mut functions: Vec<FunctionProto> = (0..30)
        .map(|i| {
            let (own, next) = (format!("F{i}"), format!("F{}", i + 1));
            let nodes =
                vec![node("own", &next, &["a"], &["c"]), node("own", &next, &["c"], &["b"])];
            function(if i == 0 { "F" } else { &own }, &["a"], &["b"], nodes)
        })
        .collect();
    functions.push(function("F30", &["a"], &["b"], vec![node("", "Neg", &["a"], &["b"])]));
    let error = model(functions, call()).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid graph: functions make more than 256 times the nodes that the file has"
    );
}

#[test]
fn calls_cost_even_when_nothing_is_in_them() {
    let twice = |next: &str| vec![node("own", next, &["a"], &[]), node("own", next, &["a"], &[])];
    let mut functions: Vec<FunctionProto> = (0..30)
        .map(|i| function(&format!("F{i}"), &["a"], &[], twice(&format!("F{}", i + 1))))
        .collect();
    functions.push(function("F30", &["a"], &[], vec![]));
    let nodes = vec![node("own", "F0", &["x"], &[]), node("", "Identity", &["x"], &["y"])];
    let error = model(functions, nodes).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid graph: functions make more than 256 times the nodes that the file has"
    );
}

/// A thousand calls of a function with a large constant, of one that copies a large default of an
/// attribute, and of one whose values have long names.
#[test]
fn bytes_are_counted_too() {
    let large = TensorProto {
        data_type: Some(DataType::Float.into()),
        dims: vec![1 << 18],
        raw_data: Some(vec![0; 1 << 20].into()),
        ..TensorProto::default()
    };
    let value = AttributeProto {
        name: Some("value".into()),
        t: Some(large),
        r#type: Some(AttributeType::Tensor.into()),
        ..AttributeProto::default()
    };
    let mut stored = node("", "Constant", &[], &["c"]);
    stored.attribute = vec![value.clone()];
    let add = || node("", "Add", &["a", "c"], &["b"]);
    let own = function("F", &["a"], &["b"], vec![stored, add()]);
    let mut given = node("", "Constant", &[], &["c"]);
    given.attribute = vec![AttributeProto {
        name: Some("value".into()),
        ref_attr_name: Some("value".into()),
        ..AttributeProto::default()
    }];
    let mut callers = function("F", &["a"], &["b"], vec![given, add()]);
    callers.attribute_proto = vec![value];
    let long = "c".repeat(1 << 20);
    let long = vec![node("", "Neg", &["a"], &[&long]), node("", "Neg", &[&long], &["b"])];
    let named = function("F", &["a"], &["b"], long);
    for function in [own, callers, named] {
        let name = |i: usize| if i == 0 { "x".to_owned() } else { format!("v{i}") };
        let mut nodes: Vec<NodeProto> =
            (0..1000).map(|i| node("own", "F", &[&name(i)], &[&name(i + 1)])).collect();
        nodes.push(node("", "Identity", &["v1000"], &["y"]));
        let error = model(vec![function], nodes).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid graph: functions make more than 16 times the bytes that the file has"
        );
    }
}

/// Two calls of a function with a branch that stores a sparse tensor of its own.
#[test]
fn what_branches_store_is_renamed() {
    let numbers = |name: &str, ty: DataType, dims: &[i64]| TensorProto {
        name: Some(name.into()),
        data_type: Some(ty.into()),
        dims: dims.to_vec(),
        ..TensorProto::default()
    };
    let values = TensorProto { float_data: vec![3.], ..numbers("s", DataType::Float, &[1]) };
    let indices = TensorProto { int64_data: vec![0], ..numbers("", DataType::Int64, &[1]) };
    let sparse = SparseTensorProto { values: Some(values), indices: Some(indices), dims: vec![1] };
    let named = |name: &str| ValueInfoProto { name: Some(name.into()), ..value(name) };
    let branch = |key: &str, output: &str| AttributeProto {
        name: Some(key.into()),
        g: Some(GraphProto {
            node: vec![node("", "Add", &["a", "s"], &[output])],
            sparse_initializer: vec![sparse.clone()],
            output: vec![named(output)],
            ..GraphProto::default()
        }),
        r#type: Some(AttributeType::Graph.into()),
        ..AttributeProto::default()
    };
    let mut choice = node("", "If", &["c"], &["d"]);
    choice.attribute = vec![branch("then_branch", "t"), branch("else_branch", "e")];
    let mut truth = node("", "Cast", &["a"], &["c"]);
    truth.attribute = vec![AttributeProto {
        name: Some("to".into()),
        i: Some(9),
        r#type: Some(AttributeType::Int.into()),
        ..AttributeProto::default()
    }];
    let squeeze = node("", "Squeeze", &["d"], &["b"]);
    let own = function("F", &["a"], &["b"], vec![truth, choice, squeeze]);
    let nodes = vec![node("own", "F", &["x"], &["m"]), node("own", "F", &["m"], &["y"])];
    assert_eq!(run(&model(vec![own], nodes).unwrap(), 1.), 7.);
}

/// A default that a function declares may lie in another file.
#[test]
fn files_of_defaults_are_found() {
    let place = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    let mut f = function("F", &["a"], &["b"], vec![node("", "Neg", &["a"], &["b"])]);
    f.attribute_proto = vec![AttributeProto {
        name: Some("value".into()),
        t: Some(TensorProto {
            data_location: Some(DataLocation::External.into()),
            external_data: vec![place("location", "Cargo.toml")],
            ..TensorProto::default()
        }),
        ..AttributeProto::default()
    }];
    let proto = ModelProto { functions: vec![f], ..ModelProto::default() };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = super::super::read::external_files(&proto.encode_to_vec(), Some(folder)).unwrap();
    assert_eq!(files.keys().collect::<Vec<_>>(), [std::path::Path::new("Cargo.toml")]);
}

#[test]
fn calls_that_do_not_fit_are_refused() {
    let plain = || function("F", &["a"], &["b"], vec![node("", "Neg", &["a"], &["b"])]);
    let many = vec![node("own", "F", &["x", "x"], &["y"])];
    let error = model(vec![plain()], many).unwrap_err().to_string();
    assert_eq!(error, "invalid graph: node '' gives function 'F' 2 inputs, expected at most 1");
    let call = || vec![node("own", "F", &["x"], &["y"])];
    let twice = model(vec![plain(), plain()], call()).unwrap_err().to_string();
    assert_eq!(twice, "invalid graph: a function is defined more than once");
    let mut old = plain();
    old.opset_import = vec![opset("", 9)];
    let error = model(vec![old], call()).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid graph: function 'F' is written for version 9 of operator set '', expected the \
         model's version 18"
    );
}

/// A call walks all inputs and outputs that its function declares, even if it gives few.
#[test]
fn calls_of_functions_that_declare_much_are_bounded() {
    let names: Vec<String> = (0..20_000).map(|i| format!("{i:x}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let inputs = function("F", &names, &["out"], vec![]);
    let outputs = function("F", &["in"], &names, vec![]);
    for function in [inputs, outputs] {
        let mut nodes = vec![node("own", "F", &["x"], &[""]); 1500];
        nodes.push(node("", "Neg", &["x"], &["y"]));
        let error = model(vec![function], nodes).unwrap_err().to_string();
        assert!(error.contains("times the bytes that the file has"), "{error}");
    }
}
