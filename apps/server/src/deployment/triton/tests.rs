//! Texts of `config.pbtxt` and their results.

use super::*;
use crate::deployment::{ControlKind, SequenceControl, SequenceState, Sequences};
use lgp_distributed::Batching;
use lgp_inference::ValueSpec;
use lgp_memory::{Dim, SymShape, TensorType};
use prost::Message;

/// A typical image classifier.
const CLASSIFIER: &str = r#"
# Exported from a training run; see https://example.org/models.
name: "densenet_onnx"
platform: "onnxruntime_onnx"
max_batch_size : 8
input [
  {
    name: "data_0"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 224, 224 ]
  }
]
output [
  {
    name: "fc6_1"
    data_type: TYPE_FP32
    dims: [ 1000 ]
    label_filename: "densenet_labels.txt"
  }
]
version_policy: { latest { num_versions: 2 } }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
}
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0 ] } ]
optimization { execution_accelerators { gpu_execution_accelerator: { name: "tensorrt" } } }
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
response_cache { enable: true }
model_warmup [
  {
    name: "first"
    batch_size: 4
    count: 2
    inputs { key: "data_0" value: { data_type: TYPE_FP32 dims: [ 3, 224, 224 ] random_data: true } }
  }
]
"#;

/// A recurrent model that keeps state between requests.
const STATEFUL: &str = r#"
backend: "onnxruntime"
sequence_batching {
  max_sequence_idle_microseconds: 5000500
  oldest { max_candidate_sequences: 4 }
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] },
    { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } }
  ]
  state [
    {
      input_name: "h" output_name: "h_next" data_type: TYPE_FP32 dims: [ 1, 64 ]
      initial_state: { data_type: TYPE_FP32 dims: [ 1, 64 ] zero_data: true name: "zeros" }
    }
  ]
}
input { name: "x" data_type: TYPE_FP32 dims: [ 1, -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"#;

fn spec(name: &str, dtype: DType, dims: &[i64]) -> ValueSpec {
    let dim = |dim: &i64| usize::try_from(*dim).map_or(Dim::Unknown, Dim::Known);
    let shape = Some(SymShape(dims.iter().map(dim).collect()));
    ValueSpec::tensor(name, TensorType { dtype, shape })
}

fn densenet() -> (Vec<ValueSpec>, Vec<ValueSpec>) {
    let input = spec("data_0", DType::F32, &[-1, 3, 224, 224]);
    (vec![input], vec![spec("fc6_1", DType::F32, &[-1, 1000])])
}

#[test]
fn the_schema_is_what_its_text_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let mut compiler = protox::Compiler::new([folder]).expect("its folder is there");
    compiler.open_file(format!("{folder}/model_config.proto")).expect("it is good");
    let same = compiler.file_descriptor_set().encode_to_vec() == DESCRIPTORS;
    assert!(same, "run `cargo run -p lgp-server --features codegen --example codegen`");
}

#[test]
fn a_classifier_is_read_and_fits_its_model() {
    let config = read("densenet_onnx", CLASSIFIER).expect("it is good");
    let (inputs, outputs) = densenet();
    config.ports.check(&inputs, &outputs).expect("it is as it says");
    let size = |n| NonZeroU32::new(n).expect("not 0");
    let shapes = BTreeMap::from([("data_0".to_owned(), vec![4, 3, 224, 224])]);
    let expected = Deployment {
        version_policy: Some(VersionPolicy::Latest(size(2))),
        cache_bytes: Some(CACHE_BYTES),
        batching: Some(Batching { max: size(8), preferred: vec![size(4), size(8)], delay_us: 100 }),
        warm_up: vec![WarmUp { shapes }; 2],
        ..Deployment::default()
    };
    assert_eq!(config.deployment, expected);
    assert_eq!(config.label_file.as_deref(), Some("densenet_labels.txt"));
    assert_eq!(config.max_batch_size, 8);
    let mut ignored = config.ignored.clone();
    ignored.sort();
    assert_eq!(ignored, ["instance_group", "optimization", "parameters"]);
    assert_eq!(read("densenet_onnx", CLASSIFIER), Ok(config), "a second look sees the same");
}

#[test]
fn a_stateful_model_is_read_and_fits_its_model() {
    let config = read("rnn", STATEFUL).expect("it is good");
    let inputs = [
        spec("x", DType::F32, &[1, -1]),
        spec("START", DType::F32, &[1]),
        spec("ID", DType::U64, &[1]),
        spec("h", DType::F32, &[1, 64]),
    ];
    let outputs = [spec("y", DType::F32, &[-1]), spec("h_next", DType::F32, &[1, 64])];
    config.ports.check(&inputs, &outputs).expect("it is as it says");
    let control = |input: &str, kind| SequenceControl { input: input.to_owned(), kind };
    let state = SequenceState { input: "h".to_owned(), output: "h_next".to_owned() };
    let expected = Sequences {
        idle_ms: NonZeroU64::new(5001).expect("not 0"),
        states: vec![state],
        controls: vec![
            control("START", ControlKind::Start),
            control("ID", ControlKind::CorrelationId),
        ],
    };
    assert_eq!(config.deployment.sequences, Some(expected));
    assert_eq!(config.deployment.batching.map(|b| b.max.get()), Some(1), "it takes no batches");
    // Inputs that the server fills must exist, and missing ones are reported.
    let error = config.ports.check(&inputs[..3], &outputs).expect_err("there is no h");
    assert!(error.contains("state 'h'"), "{error}");
}

#[test]
fn fields_mean_what_they_mean_to_triton() {
    let batching = |text: &str| {
        let batching = read("m", text).expect(text).deployment.batching.expect("always said");
        let preferred: Vec<u32> = batching.preferred.iter().map(|n| n.get()).collect();
        (batching.max.get(), preferred, batching.delay_us)
    };
    for (text, expected) in [
        ("max_batch_size: 8", (8, vec![], 0)),
        ("max_batch_size: 8 input { name: \"x\" } output { name: \"y\" }", (1, vec![], 0)),
        ("input { name: \"x\" } output { name: \"y\" }", (1, vec![], 0)),
        ("max_batch_size: 8 dynamic_batching {}", (8, vec![], 0)),
        ("dynamic_batching { max_queue_delay_microseconds: 7 }", (1, vec![], 7)),
        (
            "max_batch_size: 4 sequence_batching { oldest { preferred_batch_size: 2 \
             max_queue_delay_microseconds: 9 } }",
            (4, vec![2], 9),
        ),
        ("max_batch_size: 4 sequence_batching {}", (4, vec![], 0)),
    ] {
        assert_eq!(batching(text), expected, "{text}");
    }
    assert_eq!(read("m", "").expect("good").deployment, Deployment::default());
    for (text, policy) in [
        ("", None),
        ("version_policy { all {} }", Some("all")),
        ("version_policy { specific: { versions: [1, 3] } }", Some("1,3")),
        ("version_policy <latest: {num_versions: 0x3}>;", Some("latest:3")),
    ] {
        let read = read("m", text).expect(text).deployment.version_policy;
        assert_eq!(read.map(|policy| policy.to_string()).as_deref(), policy, "{text}");
    }
    let sequences = read("m", "sequence_batching {}").expect("good").deployment.sequences;
    assert_eq!(sequences.expect("it is said").idle_ms.get(), 1000);
}

#[test]
fn what_is_not_understood_or_not_done_is_refused_with_the_place() {
    for (text, part) in [
        ("name: \"other\"", "name is 'other', expected 'm'"),
        ("platform: \"tensorrt_plan\"", "platform is 'tensorrt_plan'"),
        ("backend: \"python\"", "backend is 'python', expected 'onnxruntime'"),
        ("default_model_filename: \"m.onnx\"", "expected 'model.onnx'"),
        ("cc_model_filenames { key: \"8.6\" value: \"m.plan\" }", "'m.plan' for 8.6"),
        ("name: \"m\"\nnothing: 1", "line 2: field 'nothing' not found"),
        ("input {\n nam: \"x\" }", "line 2: field 'nam'"),
        ("max_batch_size: 3000000000", "line 1: expected value to be a signed 32-bit"),
        ("max_batch_size: 8 max_batch_size: 9", "line 1: 'max_batch_size' is already set"),
        ("max_batch_size: -1", "max_batch_size is -1"),
        ("input { name: \"x\" data_type: TYPE_FP12 }", "TYPE_FP12"),
        ("input { name: \"x\" data_type: 99 }", "data_type 99 is unknown"),
        ("input { name: \"x\" dims: [ 0 ] }", "dims have 0"),
        ("input { name: \"x\" dims: [ -2 ] }", "dims have -2"),
        ("input [ { name: \"x\" }, { name: \"x\" } ]", "listed twice"),
        ("input { name: \"x\" reshape { shape: [] } }", "input 'x': reshape"),
        ("input { name: \"x\" is_shape_tensor: true }", "is_shape_tensor"),
        ("input { name: \"x\" allow_ragged_batch: true }", "allow_ragged_batch"),
        ("output { name: \"y\" reshape { shape: 1 } }", "output 'y': reshape"),
        ("output { name: \"y\" label_filename: \"../x\" }", "without a folder"),
        ("output { name: \"y\" label_filename: \"/x\" }", "without a folder"),
        (
            "output { name: \"y\" label_filename: \"a\" } output { name: \"z\" label_filename: \"b\" }",
            "'a' and 'b', expected one file",
        ),
        ("ensemble_scheduling { step { model_name: \"a\" } }", "ensemble.toml"),
        ("dynamic_batching {} sequence_batching {}", "scheduling_choice"),
        ("model_transaction_policy { decoupled: true }", "decoupled is not supported"),
        ("batch_input { kind: BATCH_ELEMENT_COUNT }", "batch_input"),
        ("model_operations { op_library_filename: \"ops.so\" }", "no libraries"),
        ("model_repository_agents { agents { name: \"checksum\" } }", "model_repository_agents"),
        ("version_policy { latest {} }", "num_versions is 0"),
        ("version_policy { specific { versions: [-1] } }", "'-1' is no version policy"),
        (
            "max_batch_size: 8 dynamic_batching { preferred_batch_size: 9 }",
            "has 9, expected 1 to 8",
        ),
        ("dynamic_batching { preferred_batch_size: 0 }", "has 0"),
        ("sequence_batching { iterative_sequence: true }", "iterative_sequence"),
        ("sequence_batching {} response_cache { enable: true }", "both set"),
        ("sequence_batching { control_input { name: \"S\" } }", "has 0 controls"),
        (
            "sequence_batching { control_input { name: \"S\" control { int32_false_true: [1, 2] } } }",
            "[0, 1]",
        ),
        (
            "sequence_batching { state { input_name: \"h\" initial_state { data_file: \"f\" } } }",
            "data_file is 'f'",
        ),
        ("max_batch_size: 2 model_warmup { name: \"w\" batch_size: 3 }", "batch_size is 3"),
        ("model_warmup { count: 17 }", "more than 16"),
        ("model_warmup { inputs { key: \"x\" value { dims: -1 } } }", "open dimension"),
        (&CLASSIFIER[..700], "line "),
        (&STATEFUL[..STATEFUL.len() / 2], ""),
        ("name: \"m", "line 1: "),
        ("\u{0}", "line 1: invalid token"),
        ("}", "line 1: "),
        ("name [\"m\"]", "line 1: expected a string, but found '['"),
        ("max_batch_size: [1]", "line 1: expected an integer, but found '['"),
        ("input [ { name: \"x\" } { name: \"y\" } ]", "line 1: expected ',' or ']'"),
        (&"input []".repeat(501), "more than 500 lists"),
    ] {
        let error = read("m", text).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_file_that_is_as_deep_as_it_can_be_is_refused() {
    let most = usize::try_from(crate::deployment::config::BYTES_MAX).expect("small");
    for open in ["[a/inference.ModelInput]{", "input{", "[a/inference.ModelConfig]<", "<", "["] {
        let text = open.repeat(most / open.len());
        let error = read("m", &text).expect_err("nothing is closed");
        assert!(error.chars().count() < 400, "{error}");
    }
    let shut = "[a/inference.ModelInput]{".repeat(2000) + &"}".repeat(2000);
    assert!(read("m", &shut).is_err());
    let long = format!("{}: 1", "x".repeat(60_000));
    assert!(read("m", &long).expect_err("no such field").chars().count() < 400);
}

#[test]
fn damaged_files_are_refused_and_no_more() {
    let wrong = ["{", "}", "[", "]", ":", "\"", "\\", "#", "-", "9", "<", "[a/b]{", "é"];
    for text in [CLASSIFIER, STATEFUL] {
        for (at, with) in (0..text.len()).zip(wrong.iter().cycle()) {
            let damaged = format!("{}{with}{}", &text[..at], &text[at + 1..]);
            for text in [&damaged, &text[..at]] {
                let said = read("densenet_onnx", text).err().unwrap_or_default();
                assert!(!said.contains("parser fail"), "{text}: {said}");
            }
        }
    }
}

#[test]
fn what_contradicts_the_model_is_refused_by_name() {
    let (inputs, outputs) = densenet();
    for (text, part) in [
        ("input { name: \"data\" }", "input 'data': the model has no such input"),
        ("output { name: \"data_0\" }", "output 'data_0': the model has no such output"),
        ("input { name: \"data_0\" data_type: TYPE_INT8 }", "data_type is i8"),
        ("input { name: \"data_0\" dims: [3, 224, 224] }", "dims are [3, 224, 224]"),
        ("input { name: \"data_0\" dims: [-1, 3, 224, 225] }", "dims are"),
        ("input { name: \"data_0\" dims: [-1, 3, -1, 224] }", "dims are"),
        ("max_batch_size: 8 output { name: \"fc6_1\" dims: [ 10 ] }", "rows before them"),
        ("max_batch_size: 8 output { name: \"fc6_1\" dims: [ -1, 1000 ] }", "rows before them"),
        ("model_warmup { inputs { key: \"d\" value { dims: 1 } } }", "model_warmup 'd'"),
        ("sequence_batching { state { input_name: \"h\" output_name: \"i\" } }", "state 'h'"),
    ] {
        let config = read("m", text).expect(text);
        let error = config.ports.check(&inputs, &outputs).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    for text in [
        "input { name: \"data_0\" dims: [-1, 3, 224, 224] }",
        "input { name: \"data_0\" dims: [1, 3, 224, 224] }",
        "output { name: \"fc6_1\" data_type: TYPE_FP32 }",
        "max_batch_size: 4",
        "",
    ] {
        read("m", text).expect(text).ports.check(&inputs, &outputs).expect(text);
    }
    // A file that sets an open length accepts only that length.
    let config = read("m", "max_batch_size: 4 input { name: \"x\" dims: [ 8, -1, 3 ] }");
    let mut open = vec![spec("x", DType::F32, &[-1, -1, -1, 3])];
    let config = config.expect("it is good");
    config.ports.check(&open, &[]).expect("it is one of its shapes");
    config.narrow(&mut open);
    assert_eq!(open, [spec("x", DType::F32, &[-1, 8, -1, 3])]);
    let config = read("m", "max_batch_size: 4").expect("it is good");
    let closed = [spec("x", DType::F32, &[1, 2])];
    let error = config.ports.check(&closed, &[]).expect_err("it has one row");
    assert!(error.contains("input 'x' is f32 [1,2], expected an open first"), "{error}");
    let config = read("m", "input { name: \"x\" }").expect("it is good");
    let two = [spec("x", DType::F32, &[2]), spec("mask", DType::Bool, &[2])];
    let error = config.ports.check(&two, &[]).expect_err("there is another");
    assert!(error.contains("input 'mask' of the model is not listed"), "{error}");
}
