//! Requests that parse, and a table of requests that are refused.

use super::*;
use lgp_sdk::tensor::{Dim, SymShape, TensorType};

fn spec(name: &str, dtype: DType, dims: &[Dim]) -> ValueSpec {
    let shape = Some(SymShape(dims.to_vec()));
    ValueSpec::tensor(name, TensorType { dtype, shape })
}

fn digits() -> Vec<ValueSpec> {
    let n = Dim::Symbol("n".into());
    vec![spec("image", DType::F32, &[n, Dim::Known(1), Dim::Known(2)])]
}

fn pair() -> Vec<ValueSpec> {
    let n = || Dim::Symbol("n".into());
    vec![spec("a", DType::I64, &[n()]), spec("b", DType::U8, &[n(), Dim::Unknown])]
}

fn outputs() -> Vec<ValueSpec> {
    vec![spec("logits", DType::F32, &[Dim::Unknown]), spec("class", DType::I64, &[Dim::Unknown])]
}

fn decode(
    header: Option<&str>,
    body: &[u8],
    inputs: &[ValueSpec],
    outputs: &[ValueSpec],
) -> Result<InferRequest, Fault> {
    super::decode((header.map(|text| text.parse().unwrap()), body), None, inputs, outputs)
}

/// A body of JSON and raw bytes, with its header.
fn binary(json: &str, raw: &[u8]) -> (String, Vec<u8>) {
    (json.len().to_string(), [json.as_bytes(), raw].concat())
}

#[test]
fn json_and_binary_inputs_are_the_same_tensor() {
    let json = r#"{"inputs":[{"name":"image","shape":[1,1,2],"datatype":"FP32","data":[1.5,-2]}]}"#;
    let flat = decode(None, json.as_bytes(), &digits(), &outputs()).unwrap();
    let json = r#"{"inputs":[{"name":"image","shape":[1,1,2],"datatype":"FP32",
        "parameters":{"binary_data_size":8}}]}"#;
    let raw: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let (length, body) = binary(json, &raw);
    let binary = decode(Some(&length), &body, &digits(), &outputs()).unwrap();
    assert_eq!(flat.inputs.tensors, binary.inputs.tensors);
    let alone = decode(Some("0"), &raw, &digits(), &outputs()).unwrap();
    assert_eq!(alone.inputs.tensors, flat.inputs.tensors);
    assert!(matches!((alone.form, flat.form), (Form::Binary, Form::Json)));
}

#[test]
fn parameters_and_outputs_are_read() {
    let json = r#"{"id":"7","parameters":{"priority":1,"timeout":2500,"binary_data_output":true,
        "sequence_id":0,"anything":"else"},
        "inputs":[{"name":"image","shape":[0,1,2],"datatype":"FP32","data":[]}],
        "outputs":[{"name":"class","parameters":{"binary_data":false}},{"name":"logits"}]}"#;
    let request = decode(None, json.as_bytes(), &digits(), &outputs()).unwrap();
    assert_eq!(request.id.as_deref(), Some("7"));
    assert_eq!(request.priority, Priority::Critical);
    assert_eq!(request.timeout, Some(Duration::from_micros(2500)));
    let choices: Vec<_> = request.outputs.iter().map(|o| (o.name.as_str(), &o.form)).collect();
    assert!(
        matches!(choices[..], [("class", Form::Json), ("logits", Form::Binary)]),
        "{choices:?}"
    );
}

#[test]
fn several_binary_inputs_are_taken_in_order() {
    let json = r#"{"inputs":[
        {"name":"b","shape":[2,1],"datatype":"UINT8","parameters":{"binary_data_size":2}},
        {"name":"a","shape":[2],"datatype":"INT64","data":[5,6]}]}"#;
    let (length, body) = binary(json, &[8, 9]);
    let request = decode(Some(&length), &body, &pair(), &outputs()).unwrap();
    assert_eq!(request.inputs.tensors[0].tensor.as_slice::<u8>().unwrap(), [8, 9]);
    assert_eq!(request.inputs.tensors[1].tensor.as_slice::<i64>().unwrap(), [5, 6]);
}

fn refused(header: Option<&str>, body: &[u8], specs: &[ValueSpec]) -> (u16, String) {
    let fault = decode(header, body, specs, &outputs()).unwrap_err();
    (fault.status.as_u16(), fault.message)
}

#[test]
fn bad_requests_name_expected_and_given() {
    let image = |rest: &str| format!(r#"{{"inputs":[{{"name":"image",{rest}}}]}}"#);
    let with = |extra: &str| {
        format!(
            r#"{{"inputs":[{{"name":"image","shape":[1,1,2],"datatype":"FP32","data":[1,2]}}],{extra}}}"#
        )
    };
    let cases: Vec<(String, u16, &str)> = vec![
        (String::new(), 400, "the request body is not valid: EOF"),
        ("{".into(), 400, "the request body is not valid: EOF"),
        ("{}".into(), 400, "missing field `inputs`"),
        ("\u{1}".into(), 400, "the request body is not valid"),
        (r#"{"inputs":[]}"#.into(), 400, "input 'image' is missing, the model needs 'image'"),
        (r#"{"inputs":[{}]}"#.into(), 400, "missing field `name`"),
        (
            image(r#""shape":[1,1,2],"datatype":"FP32""#),
            400,
            "has neither data nor binary_data_size",
        ),
        (
            image(r#""shape":[-1,1,2],"datatype":"FP32","data":[1]"#),
            400,
            "inputs[0].shape[0]: invalid value: integer `-1`",
        ),
        (
            image(r#""shape":[1,2],"datatype":"FP32","data":[1,2]"#),
            400,
            "input 'image' has rank 2 (shape [1, 2]), expected rank 3 (shape [n,1,2])",
        ),
        (
            image(r#""shape":[1,1,3],"datatype":"FP32","data":[1,2,3]"#),
            400,
            "input 'image' has shape [1, 1, 3], expected [n,1,2] with 2 at dimension 2",
        ),
        (
            image(r#""shape":[1,1,2],"datatype":"FP64","data":[1,2]"#),
            400,
            "input 'image' has datatype FP64, expected FP32",
        ),
        (
            image(r#""shape":[1,1,2],"datatype":"FLOAT","data":[1,2]"#),
            400,
            "unknown datatype 'FLOAT'",
        ),
        (
            image(r#""shape":[1,1,2],"datatype":"BYTES","data":["a","b"]"#),
            400,
            "datatype BYTES, exp",
        ),
        (image(r#""shape":[1,1,2],"datatype":"BYTES","data":["a"]"#), 400, "BYTES, expected FP32"),
        (
            image(r#""shape":[1,1,2],"datatype":"FP32","data":[1]"#),
            400,
            "needs 2 elements, data has 1",
        ),
        (
            image(r#""shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"datatype":"FP32","data":[1,2]"#),
            400,
            "has 17 dimensions, expected at most 16",
        ),
        (
            image(r#""shape":[1,1,2],"datatype":"FP32","parameters":{"binary_data_size":8}"#),
            400,
            "lacks the header Inference-Header-Content-Length",
        ),
        (
            image(r#""shape":[1,1,2],"datatype":"FP32","parameters":{"shared_memory_region":"r"}"#),
            501,
            "shared_memory_region",
        ),
        (
            image(
                r#""shape":[1,1,2],"datatype":"FP32","data":[1,2],"parameters":{"binary_data_size":8}"#,
            ),
            400,
            "more than one of data, binary_data_size",
        ),
        (
            image(r#""shape":[1,1,2],"datatype":"FP32","parameters":{"binary_data_size":-8}"#),
            400,
            "parameter binary_data_size is -8, expected an integer from 0",
        ),
        (
            r#"{"inputs":[{"name":"img","shape":[1],"datatype":"FP32","data":[1]}]}"#.into(),
            400,
            "input 'img' is unknown, the model has 'image'",
        ),
        (
            with(r#""outputs":[{"name":"probs"}]"#),
            400,
            "output 'probs' is unknown, the model has 'logits', 'class'",
        ),
        (
            with(r#""outputs":[{"name":"class","parameters":{"classification":-3}}]"#),
            400,
            "classification is -3, expected an integer from 0",
        ),
        (
            with(r#""outputs":[{"name":"class","parameters":{"binary_data":1}}]"#),
            400,
            "parameter binary_data is 1, expected true or false",
        ),
        (with(r#""parameters":{"sequence_id":-4}"#), 400, "parameter sequence_id is -4"),
        (
            with(r#""outputs":[{"name":"class"},{"name":"logits"},{"name":"class"}]"#),
            400,
            "output 'class' is asked for twice",
        ),
        (
            with(r#""parameters":{"priority":"high"}"#),
            400,
            "parameter priority is \"high\", expected an integer",
        ),
        (with(r#""parameters":{"timeout":-1}"#), 400, "parameter timeout is -1"),
    ];
    for (body, status, expected) in cases {
        let (given, message) = refused(None, body.as_bytes(), &digits());
        assert!(given == status && message.contains(expected), "{body}\n{given}: {message}");
    }
}

#[test]
fn bad_binary_bodies_are_refused() {
    let json = r#"{"inputs":[{"name":"image","shape":[1,1,2],"datatype":"FP32",
        "parameters":{"binary_data_size":8}}]}"#;
    let length = json.len().to_string();
    let body = |raw: usize| [json.as_bytes(), &vec![0; raw]].concat();
    let short = json.replace('8', "4");
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("99999", body(8), "is '99999', expected 0 to"),
        (&length, body(7), "has binary_data_size 8, but 7 bytes are left"),
        (&length, body(9), "1 bytes follow the last binary input"),
        (
            &length,
            [short.as_bytes(), &[0; 4]].concat(),
            "but FP32 of shape [1, 1, 2] takes 8 bytes",
        ),
        ("0", vec![0; 12], "which takes a multiple of 8 bytes, but the raw body has 12"),
    ];
    for (header, body, expected) in cases {
        let (status, message) = refused(Some(header), &body, &digits());
        assert!(status == 400 && message.contains(expected), "{header}: {status}: {message}");
    }
    let (status, message) = refused(Some("0"), &[0; 8], &pair());
    assert!(status == 400 && message.contains("but the model has 2"), "{message}");
}

#[test]
fn a_raw_body_of_bytes_is_one_element() {
    let open = || Dim::Symbol("n".into());
    for (dims, body) in [
        (vec![open()], &b"text"[..]),
        (vec![open(), Dim::Known(1)], b"\xff\xd8 no text"),
        (vec![open(), Dim::Unknown], b""),
        (vec![], b"scalar"),
    ] {
        let rank = dims.len();
        let request = decode(Some("0"), body, &[spec("b", DType::Str, &dims)], &outputs()).unwrap();
        match (request.inputs.tensors.as_slice(), request.inputs.blobs.as_slice()) {
            ([text], []) => {
                assert_eq!(text.tensor.strings().unwrap(), [str::from_utf8(body).unwrap()]);
                assert_eq!(text.tensor.shape().dims(), vec![1; rank]);
            }
            ([], [blob]) => {
                assert_eq!((blob.elements.len(), blob.shape.len()), (1, rank));
                assert_eq!(blob.elements[0], body);
                assert!(blob.shape.iter().all(|dim| *dim == 1), "{:?}", blob.shape);
            }
            other => panic!("one input: {other:?}"),
        }
        assert!(matches!(request.form, Form::Binary));
    }
    let three = [spec("b", DType::Str, &[Dim::Known(3)])];
    let (status, message) = refused(Some("0"), b"text", &three);
    assert!(status == 400 && message.contains("a raw body is one element"), "{message}");
}

#[test]
fn inputs_must_agree_with_one_another() {
    let cases = [
        (
            r#"{"name":"a","shape":[2],"datatype":"INT64","data":[1,2]},
            {"name":"b","shape":[3,1],"datatype":"UINT8","data":[1,2,3]}"#,
            "input 'b' has shape [3, 1], expected [n,?] with 2 at dimension 0",
        ),
        (
            r#"{"name":"a","shape":[1],"datatype":"INT64","data":[1]},
            {"name":"a","shape":[1],"datatype":"INT64","data":[1]}"#,
            "input 'a' is given twice",
        ),
        (
            r#"{"name":"a","shape":[1],"datatype":"INT64","data":[1]}"#,
            "input 'b' is missing, the model needs 'a', 'b'",
        ),
    ];
    for (inputs, expected) in cases {
        let body = format!(r#"{{"inputs":[{inputs}]}}"#);
        let (status, message) = refused(None, body.as_bytes(), &pair());
        assert!(status == 400 && message.contains(expected), "{message}");
    }
}

#[test]
fn a_bool_byte_other_than_0_and_1_is_refused() {
    let specs = [spec("x", DType::Bool, &[Dim::Known(2)])];
    let (status, message) = refused(Some("0"), &[1, 2], &specs);
    assert!(status == 400 && message.contains("bool"), "{message}");
}
