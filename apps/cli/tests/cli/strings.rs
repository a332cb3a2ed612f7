//! Strings, NaN and the infinities on their way through every protocol.

use crate::harness::{Cluster, World, npy};
use lgp_inference::GraphBuilder;
use lgp_memory::{DType, Dim, SymShape, Tensor, TensorType};
use serde_json::{Value, json};

/// `loud` is each word with a `!`; `quotient` is x / 0.
fn model() -> Vec<u8> {
    let of = |dtype| TensorType { dtype, shape: Some(SymShape(vec![Dim::Symbol("n".into())])) };
    let mut graph = GraphBuilder::new("words").with_opset(20);
    let words = graph.input("words", of(DType::Str));
    let x = graph.input("x", of(DType::F32));
    let mark = graph.initializer("mark", Tensor::from_strings([1], &["!"]).expect("one"));
    let zero = graph.initializer("zero", Tensor::from_slice([1], &[0f32]).expect("one"));
    let loud = graph.node("StringConcat", &[words, mark], []);
    let quotient = graph.node("Div", &[x, zero], []);
    graph.output("loud", loud, of(DType::Str));
    graph.output("quotient", quotient, of(DType::F32));
    graph.finish().expect("a sound graph").to_onnx().expect("a sound model")
}

/// Posts to the inference route; also answers the length of the JSON header.
fn infer(cluster: &Cluster, json_bytes: Option<usize>, body: &[u8]) -> (u16, usize, Vec<u8>) {
    let http = cluster.endpoint["http"].as_str().expect("an address");
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let mut request = agent.post(format!("{http}/v2/models/words/infer"));
    if let Some(length) = json_bytes {
        request = request.header("inference-header-content-length", length.to_string());
    }
    let mut answer = request.send(body).expect("an answer");
    let length = answer.headers().get("inference-header-content-length");
    let length = length.and_then(|text| text.to_str().ok()?.parse().ok()).unwrap_or(0);
    let body = answer.body_mut().read_to_vec().expect("a body");
    (answer.status().as_u16(), length, body)
}

#[test]
fn strings_and_what_is_no_number_arrive_as_they_are() {
    let cluster = Cluster::start(World::new(), "1");
    let path = cluster.world.write("words.onnx", model()).display().to_string();
    cluster.run(&["models", "add", "words", &path]).json();

    let x = json!({ "name": "x", "datatype": "FP32", "shape": [3], "data": [1, "NaN", -1] });
    let words =
        |data: Value| json!({ "name": "words", "datatype": "BYTES", "shape": [3], "data": data });
    let loud = json!(["ein!", "!", "Größe!"]);
    let quotient = json!(["Infinity", "NaN", "-Infinity"]);
    let body = json!({ "inputs": [words(json!(["ein", "", "Größe"])), x] }).to_string();
    let (status, _, answer) = infer(&cluster, None, body.as_bytes());
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["outputs"][0]["datatype"], "BYTES");
    assert_eq!((&answer["outputs"][0]["data"], &answer["outputs"][1]["data"]), (&loud, &quotient));

    // The same as binary data: each text behind its length.
    let packed = |texts: &[&str]| {
        let part = |text: &&str| {
            let length = u32::try_from(text.len()).expect("short").to_le_bytes();
            [&length, text.as_bytes()].concat()
        };
        texts.iter().flat_map(part).collect::<Vec<u8>>()
    };
    let texts = packed(&["ein", "", "Größe"]);
    let asks = |bytes: usize| {
        json!({ "inputs": [{ "name": "words", "datatype": "BYTES", "shape": [3],
                "parameters": { "binary_data_size": bytes } }, x],
            "outputs": [{ "name": "loud" }], "parameters": { "binary_data_output": true } })
        .to_string()
    };
    let json = asks(texts.len());
    let (status, length, answer) =
        infer(&cluster, Some(json.len()), &[json.as_bytes(), &texts].concat());
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&answer));
    assert_eq!(answer[length..], packed(&["ein!", "!", "Größe!"]));
    for (odd, part) in [
        (&texts[..texts.len() - 1], "ends behind the last byte"),
        (&[&texts[..], &[0; 4]].concat(), "4 bytes follow the last of 3 strings"),
        (&[255; 12], "ends behind the last byte"),
        (&[1, 0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0], "is not UTF-8"),
    ] {
        let json = asks(odd.len());
        let (status, _, answer) =
            infer(&cluster, Some(json.len()), &[json.as_bytes(), odd].concat());
        let answer = String::from_utf8_lossy(&answer);
        assert!(status == 400 && answer.contains(part), "{status}: {answer} lacks {part}");
    }
    durable(&cluster, &loud, &quotient);
    cluster.run(&["stop"]).json();
    cluster.world.expect_no_processes();
}

/// Through the journal, to the command line and into files.
fn durable(cluster: &Cluster, loud: &Value, quotient: &Value) {
    let words = cluster.world.write("words.json", r#"["ein", "", "Größe"]"#).display().to_string();
    let x = cluster.world.write("x.npy", npy(&[3], &[1., f32::NAN, -1.])).display().to_string();
    let (words, x) = (format!("words={words}"), format!("x={x}"));
    let submit = ["submit", "--model", "words", "--input", &words, "--input", &x, "--durable"];
    let task = cluster.run(&[&submit[..], &["--wait"]].concat()).json();
    let id = task["task_id"].as_str().expect("an id");
    let result = cluster.run(&["result", id]).json();
    let data = |at: usize| &result["outputs"][at]["data"];
    assert_eq!((data(0), data(1)), (loud, quotient));
    let out = cluster.world.path("out");
    cluster.run(&["result", id, "--output-dir", &out.display().to_string()]).json();
    let written = std::fs::read(out.join("loud.json")).expect("written");
    assert_eq!(&serde_json::from_slice::<Value>(&written).expect("JSON"), loud);

    let odd = cluster.world.write("odd.json", r#"[["a"], "b"]"#).display().to_string();
    let odd = format!("words={odd}");
    let (code, message) =
        cluster.run(&["submit", "--model", "words", "--input", &odd, "--input", &x]).error(1);
    assert!(code == "input_strings" && message.contains("nested otherwise"), "{code}: {message}");
}
