//! Functions of a file's own, inlined.

use super::*;
use crate::onnx::proto::attribute_proto::AttributeType;
use crate::onnx::proto::{
    OperatorSetIdProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_proto::DataType,
    type_proto,
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

/// `Clip` between nothing and the caller's attribute `top`, 6 where it has none.
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
    // Each call has inner values of its own, and outputs that are inputs go through.
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
