//! The reader on good and on damaged files.

use super::proto::attribute_proto::AttributeType;
use super::proto::tensor_proto::{DataLocation, DataType};
use super::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, type_proto,
};
use crate::{Attr, Error, GraphBuilder, Model, Result, Session, SessionOptions};
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use prost::Message;
use std::path::Path;

fn value(name: &str, data_type: DataType) -> ValueInfoProto {
    let tensor = type_proto::Tensor {
        elem_type: Some(data_type.into()),
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

fn node(op: &str, input: &str, output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        input: vec![input.into()],
        output: vec![output.into()],
        ..NodeProto::default()
    }
}

/// `y = Relu(x)` with an unused weight `w`.
fn good() -> ModelProto {
    let weight = TensorProto {
        name: Some("w".into()),
        data_type: Some(DataType::Float.into()),
        dims: vec![2],
        float_data: vec![1., 2.],
        ..TensorProto::default()
    };
    ModelProto {
        ir_version: Some(8),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(18) }],
        graph: Some(GraphProto {
            node: vec![node("Relu", "x", "y")],
            input: vec![value("x", DataType::Float)],
            output: vec![value("y", DataType::Float)],
            initializer: vec![weight],
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    }
}

fn read(model: &ModelProto, base: Option<&Path>) -> Result<Model> {
    Model::from_bytes(&model.encode_to_vec(), base)
}

/// The error's text when `damage` is done to a good model.
fn broken(damage: impl FnOnce(&mut ModelProto, &mut GraphProto)) -> String {
    let mut model = good();
    let mut graph = model.graph.take().unwrap_or_default();
    damage(&mut model, &mut graph);
    model.graph.get_or_insert(graph);
    read(&model, None).expect_err("the model is damaged").to_string()
}

#[test]
fn a_good_model_reads() -> Result<()> {
    let model = read(&good(), None)?;
    assert_eq!((model.ir_version(), model.opset(), model.parameters()), (8, 18, 2));
    assert_eq!(model.nodes()[0].name, "Relu_0");
    Ok(())
}

#[test]
fn weights_among_the_inputs_are_no_inputs() -> Result<()> {
    let mut model = good();
    if let Some(graph) = &mut model.graph {
        graph.input.push(value("w", DataType::Float));
    }
    assert_eq!(read(&model, None)?.inputs().len(), 1);
    Ok(())
}

#[test]
fn absent_outputs_are_not_wired_to_absent_inputs() -> Result<()> {
    let mut model = good();
    if let Some(graph) = &mut model.graph {
        let mut dropout = node("Dropout", "x", "kept");
        dropout.output.push(String::new());
        let mut clip = node("Clip", "kept", "y");
        clip.input.extend([String::new(), String::new()]);
        graph.node = vec![dropout, clip];
    }
    let session = Session::new(&read(&model, None)?, SessionOptions::with_threads(1))?;
    let x = Tensor::scalar(-3f32)?;
    let y = session.run(&[("x", x.view())])?;
    assert_eq!(y[0].tensor.as_slice::<f32>()?, [-3.]);
    Ok(())
}

#[test]
fn damaged_files_say_what_is_wrong() {
    type Damage = fn(&mut ModelProto, &mut GraphProto);
    let cases: [(Damage, &str); 16] = [
        (|m, _| m.ir_version = Some(99), "ONNX IR version 99 is not supported, expected 3 to 14"),
        (|m, _| m.ir_version = None, "ONNX IR version 0 is not supported, expected 3 to 14"),
        (
            |m, _| m.opset_import[0].version = Some(29),
            "opset 29 is not supported, expected 1 to 28",
        ),
        (
            |m, _| m.opset_import[0].version = Some(i64::MAX),
            "opset 9223372036854775807 is not supported, expected 1 to 28",
        ),
        (|m, _| m.opset_import.clear(), "invalid graph: the file names no operator set"),
        (|m, _| m.opset_import[0].version = None, "opset 0 is not supported, expected 1 to 28"),
        (
            |_, g| g.initializer.push(g.initializer[0].clone()),
            "invalid graph: initializer 'w' is defined more than once",
        ),
        (
            |_, g| g.initializer[0].name = Some("y".into()),
            "invalid graph: value 'y', an output of node 'Relu_0', is defined more than once",
        ),
        (
            |_, g| g.input.push(value("x", DataType::Float)),
            "invalid graph: input 'x' is declared more than once",
        ),
        (
            |_, g| g.output.push(value("y", DataType::Float)),
            "invalid graph: model output 'y' is declared more than once",
        ),
        (|_, g| g.output.clear(), "invalid graph: the model has no outputs"),
        (
            |_, g| g.input[0] = value("x", DataType::Undefined),
            "invalid graph: input 'x' has element type undefined, which is not supported",
        ),
        (|_, g| g.output[0].r#type = None, "invalid graph: output 'y' has no type"),
        (
            |_, g| g.sparse_initializer.push(SparseTensorProto::default()),
            "tensor '': a sparse tensor lacks values or indices",
        ),
        (
            |_, g| g.initializer[0].dims = vec![i64::MAX, i64::MAX],
            "tensor 'w': shape [9223372036854775807, 9223372036854775807] has more elements than \
             can be addressed",
        ),
        (
            |_, g| g.node.push(node("Relu", "nowhere", "z")),
            "invalid graph: node 'Relu_1' (Relu) reads 'nowhere', which nothing defines",
        ),
    ];
    for (damage, message) in cases {
        assert_eq!(broken(damage), message);
    }
    let no_graph = ModelProto { graph: None, ..good() };
    assert_eq!(
        read(&no_graph, None).unwrap_err().to_string(),
        "invalid graph: the file has no graph"
    );
}

#[test]
fn damaged_attributes_are_named() {
    let with = |attribute: AttributeProto| {
        broken(|_, g| g.node[0].attribute = vec![attribute.clone(), attribute])
    };
    let named =
        |name: &str| AttributeProto { name: Some(name.into()), ..AttributeProto::default() };
    assert_eq!(
        with(named("a")),
        "invalid graph: node 'Relu_0' (Relu) has attribute 'a' more than once"
    );
    assert_eq!(
        with(AttributeProto { s: Some(vec![0xff]), ..named("a") }),
        "invalid graph: attribute 'a' of node 'Relu_0' is a string that is not UTF-8"
    );
    assert_eq!(
        with(AttributeProto { ref_attr_name: Some("b".into()), ..named("a") }),
        "invalid graph: attribute 'a' of node 'Relu_0' refers to a function's attribute outside \
         of a function"
    );
    let no_tensor = AttributeProto { r#type: Some(AttributeType::Tensor.into()), ..named("a") };
    assert_eq!(with(no_tensor), "invalid graph: attribute 'a' of node 'Relu_0' has no tensor");
}

#[test]
fn missing_empty_and_foreign_files_are_refused() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.onnx");
    let message = |path: &Path| Model::load(path).unwrap_err().to_string();
    assert!(message(&path).starts_with(&format!("cannot read {}: ", path.display())));
    assert!(message(folder.path()).starts_with("cannot read "));
    std::fs::write(&path, "")?;
    assert_eq!(
        message(&path),
        format!("not a readable ONNX model: {}: the file is empty", path.display())
    );
    for foreign in [&b"<html>404</html>"[..], b"\x89PNG\r\n\x1a\n\0\0\0", &[0xff; 64]] {
        std::fs::write(&path, foreign)?;
        assert!(matches!(Model::load(&path), Err(Error::Malformed { .. })), "{}", message(&path));
    }
    // The error of `external_files` names the file too.
    let refused = crate::Repository::external_files(&path).expect_err("it is no model");
    let named = format!("not a readable ONNX model: {}: ", path.display());
    assert!(refused.to_string().starts_with(&named), "{refused}");
    Ok(())
}

#[test]
fn every_truncation_is_an_error() -> Result<()> {
    let bytes = good().encode_to_vec();
    for len in 0..bytes.len() {
        // A cut between two fields leaves a readable message, which lacks a part of the model.
        Model::from_bytes(&bytes[..len], None).expect_err("a part of a model is no model");
    }
    Ok(())
}

#[test]
fn nesting_without_end_does_not_overflow_the_stack() {
    // Field 1 of a sequence type is again a type, whose field 4 is a sequence, and so on.
    let mut bytes = Vec::new();
    for field in [[0x22u8], [0x0a]].iter().cycle().take(20_001) {
        let mut outer = field.to_vec();
        prost::encoding::encode_varint(bytes.len().try_into().unwrap(), &mut outer);
        outer.append(&mut bytes);
        bytes = outer;
    }
    // graph { input { type { … } } }
    for tag in [0x12u8, 0x5a, 0x3a] {
        let mut outer = vec![tag];
        prost::encoding::encode_varint(bytes.len().try_into().unwrap(), &mut outer);
        outer.append(&mut bytes);
        bytes = outer;
    }
    assert!(matches!(Model::from_bytes(&bytes, None), Err(Error::Malformed { .. })));
}

fn external(entries: &[(&str, &str)]) -> ModelProto {
    let mut model = good();
    if let Some(graph) = &mut model.graph {
        let weight = &mut graph.initializer[0];
        weight.float_data.clear();
        weight.data_location = Some(DataLocation::External.into());
        weight.external_data = entries
            .iter()
            .map(|&(key, value)| StringStringEntryProto {
                key: Some(key.into()),
                value: Some(value.into()),
            })
            .collect();
    }
    model
}

#[test]
fn weights_in_other_files_are_read() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("sub"))?;
    let bytes: Vec<u8> = [7f32, 1., 2.].iter().flat_map(|f| f.to_le_bytes()).collect();
    std::fs::write(folder.path().join("sub/w.bin"), bytes)?;
    for location in ["sub/w.bin", "./sub/w.bin"] {
        let proto = external(&[("location", location), ("offset", "4"), ("length", "8")]);
        let model = read(&proto, Some(folder.path()))?;
        assert_eq!(model.initializers()["w"].as_slice::<f32>()?, [1., 2.]);
    }
    Ok(())
}

#[test]
fn weights_that_escape_their_folder_are_refused() -> Result<(), Box<dyn std::error::Error>> {
    let outside = tempfile::tempdir()?;
    let secret = outside.path().join("secret.bin");
    std::fs::write(&secret, [0; 8])?;
    let folder = outside.path().join("models");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("short.bin"), [0; 7])?;
    std::fs::create_dir(folder.join("folder"))?;
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, folder.join("link.bin"))?;
        std::os::unix::fs::symlink(outside.path(), folder.join("up"))?;
    }
    let secret = secret.display().to_string();
    let relative = "expected a relative path without '..'";
    let mut cases = vec![
        (vec![("location", "../secret.bin")], relative),
        (vec![("location", "folder/../../secret.bin")], relative),
        (vec![("location", secret.as_str())], relative),
        (vec![("location", "..\\secret.bin")], relative),
        (vec![("location", "w\0.bin")], "expected the name of a file, which has no zero byte"),
        (vec![("location", "")], "the location is empty, expected a file name"),
        (vec![], "the location is empty, expected a file name"),
        (vec![("location", "folder")], "is not a file"),
        (vec![("location", "short.bin")], "the file has 7 bytes, expected 8 from offset 0"),
        (
            vec![("location", "short.bin"), ("offset", "18446744073709551615")],
            "the file has 7 bytes, expected 8 from offset 18446744073709551615",
        ),
        (vec![("location", "short.bin"), ("length", "4")], "length is 4, but the shape takes 8"),
        (
            vec![("location", "short.bin"), ("offset", "-1")],
            "offset is '-1', expected a number of bytes",
        ),
    ];
    if cfg!(unix) {
        cases.push((vec![("location", "link.bin")], "leads out of the model's folder"));
        cases.push((vec![("location", "up/secret.bin")], "leads out of the model's folder"));
    }
    for (entries, reason) in cases {
        let location = entries.first().map_or("", |e| e.1);
        let error = read(&external(&entries), Some(&folder)).unwrap_err();
        assert!(matches!(error, Error::ExternalData { .. }));
        assert_eq!(
            error.to_string(),
            format!("external data '{location}' of tensor 'w': {reason}")
        );
    }
    let missing = read(&external(&[("location", "gone.bin")]), Some(&folder)).unwrap_err();
    assert!(missing.to_string().contains("'gone.bin' of tensor 'w': cannot be read: "));
    let no_folder = read(&external(&[("location", "w.bin")]), None).unwrap_err();
    assert!(no_folder.to_string().ends_with("the model was read from memory, so it has no folder"));
    Ok(())
}

#[test]
fn what_is_written_reads_back_equal() -> Result<()> {
    let ty = TensorType {
        dtype: DType::F32,
        shape: Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(2), Dim::Unknown])),
    };
    let mut g = GraphBuilder::new("round trip").with_opset(13);
    g.note("task", "none");
    let x = g.input("x", ty.clone());
    let mut y = x;
    for (k, dtype) in DType::ALL.into_iter().enumerate() {
        let w = g.initializer(format!("w{k}"), Tensor::zeros(dtype, [k])?);
        let attributes = [
            ("int", Attr::from(-3)),
            ("float", 0.1f32.into()),
            ("text", "é".into()),
            ("ints", [1, -2].into()),
            ("floats", vec![0.5f32].into()),
            ("tensor", Tensor::from_slice([1, 1], &[2i64])?.into()),
        ];
        y = g.node("Anything", &[y, crate::Value::ABSENT, w], attributes);
    }
    g.output("y", y, TensorType { dtype: DType::Bool, shape: None });
    g.output("x again", x, ty);
    let model = g.finish()?;
    assert_eq!(Model::from_bytes(&model.to_onnx()?, None)?, model);
    Ok(())
}

#[test]
fn all_that_is_missing_is_listed_in_one_error() -> Result<()> {
    let ty = TensorType { dtype: DType::F32, shape: None };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty.clone());
    let a = g.node("Whirl", &[x], []);
    let b = g.node("Twist", &[a], []);
    let c = g.node("Whirl", &[b], []);
    let d = g.node("Relu", &[c], [("slope", 1f32.into())]);
    let e = g.node("Concat", &[d, c], []);
    let [f, mask] = g.node_with_outputs("BatchNormalization", &[e, e, e, e, e], []);
    g.output("y", f, ty.clone());
    g.output("mask", mask, ty);
    let error = Session::new(g.finish()?, SessionOptions::with_threads(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2 operators are not supported: Whirl (nodes 'Whirl_0', 'Whirl_2'), Twist (node \
         'Twist_1'); node 'Relu_3' (Relu): attribute 'slope' is not supported in opset 18; node \
         'Concat_4' (Concat): attribute 'axis' is missing; node 'BatchNormalization_5' \
         (BatchNormalization): output 1 is not supported"
    );
    Ok(())
}

#[test]
fn convolutions_of_integers_take_the_size_of_their_window() -> Result<()> {
    let session = |size: i64| {
        let ty = |dtype| TensorType { dtype, shape: None };
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", ty(DType::U8));
        let w = g.initializer("w", Tensor::from_slice([1, 1, 2, 2], &[1i8, 2, 3, 4])?);
        let y = g.node("ConvInteger", &[x, w], [("kernel_shape", vec![size; 2].into())]);
        g.output("y", y, ty(DType::I32));
        Session::new(&g.finish()?, SessionOptions::with_threads(1))
    };
    let x = Tensor::from_slice([1, 1, 2, 2], &[1u8; 4])?;
    assert_eq!(session(2)?.run(&[("x", x.view())])?[0].tensor.as_slice::<i32>()?, [10]);
    assert!(session(3).is_err());
    Ok(())
}
