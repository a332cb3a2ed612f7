//! Refused requests, with messages that say what was wrong.

use super::*;
use serde_json::json;

fn clip(kind: &str, model: &str) -> Value {
    json!({ "clip": { kind: { "modelName": model } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_that_cannot_be_used_are_refused() {
    let limits = ServerConfig { body_bytes_max: 200_000, ..ServerConfig::default() };
    let service = Service::with(limits).await;
    let picture = Image::noise(9, 9, 1).png();
    let entries = clip("visual", "m").to_string();
    let entries = entries.as_bytes();
    let whole = with_image(&clip("visual", "m"), &picture);
    let with = |entries: Value| with_image(&entries, &picture);
    let two = |task: &str, detection: Value| {
        let (detection, recognition) =
            (json!({ "modelName": "m", "options": detection }), json!({ "modelName": "m" }));
        json!({ task: { "detection": detection, "recognition": recognition } })
    };
    let cases: [(Vec<u8>, u16, &str); 21] = [
        (
            with(json!({ "ocr": { "detection": { "modelName": "m" } } })),
            422,
            "lacks the type 'recognition'",
        ),
        (with(json!({ "facial-recognition": {} })), 422, "lacks the type 'detection'"),
        (with(json!({ "ocr": { "ocr": { "modelName": "m" } } })), 422, "no type 'ocr'"),
        (with(two("facial-recognition", json!({ "minScore": 1.5 }))), 422, "minScore is 1.5"),
        (with(two("ocr", json!({ "maxResolution": 5000 }))), 422, "maxResolution is 5000"),
        (with_text(&two("ocr", json!({})), "a"), 400, "was sent with a text, expected an image"),
        (whole[..whole.len() - 60].to_vec(), 400, "the form is not valid"),
        (whole[..40].to_vec(), 400, "the form is not valid"),
        (Vec::new(), 400, "the form is not valid"),
        (form(&[("image", true, &picture)]), 422, "no part 'entries'"),
        (form(&[("entries", false, entries)]), 400, "neither"),
        (form(&[("x", false, &b""[..]); 1001]), 400, "more than 1000 parts"),
        (
            form(&[("entries", false, b"{"), ("image", true, &picture)]),
            422,
            "'entries' is not valid",
        ),
        (with_image(&json!({}), &picture), 422, "no task"),
        (with_image(&json!({ "clip": {} }), &picture), 422, "neither of 'visual' and 'textual'"),
        (with_image(&json!({ "clip": { "visual": {} } }), &picture), 422, "modelName"),
        (with_image(&json!({ "nsfw": {} }), &picture), 422, "the task 'nsfw' is not served"),
        (with_image(&clip("detection", "m"), &picture), 422, "no type 'detection'"),
        (with_text(&clip("textual", "m"), &"a".repeat(20_000)), 400, "the text has 20000 bytes"),
        (
            with_text(
                &json!({ "clip": { "textual": { "modelName": "m", "options": { "language": 5 } } } }),
                "a",
            ),
            422,
            "'entries' is not valid",
        ),
        (
            form(&[
                ("entries", false, clip("textual", "m").to_string().as_bytes()),
                ("text", false, b"\xff"),
            ]),
            400,
            "not UTF-8",
        ),
    ];
    for (form, expected, part) in cases {
        let (status, message) = service.refusal(&form).await;
        assert!(status == expected && message.contains(part), "{status} {message:?}, not {part:?}");
    }
    let too_large = with_image(&clip("visual", "m"), &[0; 200_000]);
    let (status, message) = service.refusal(&too_large).await;
    assert!(status == 413 && message.contains("http.body_bytes_max"), "{status} {message}");
    for (head, expected, part) in [
        ("POST /predict HTTP/1.1\r\ncontent-type: application/json", 415, "application/json"),
        ("POST /predict HTTP/1.1", 415, "expected multipart/form-data"),
        ("POST /predict HTTP/1.1\r\ncontent-type: multipart/form-data", 400, "oundary"),
        ("POST /predict HTTP/1.1\r\norigin: http://evil.example", 403, "evil.example"),
        ("GET /predict HTTP/1.1", 405, "GET is not offered at /predict"),
        ("GET /v2 HTTP/1.1", 404, "expected /, /ping or /predict"),
    ] {
        let (status, text) = service.ask(head, &whole).await;
        assert!(status == expected && text.contains(part), "{status} {text}, not {part}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn models_and_pictures_that_cannot_be_used_are_refused() {
    let service = Service::start().await;
    let picture = Image::noise(9, 9, 1).png();
    let model = |dtype: DType, shape: &[usize]| {
        let mut graph = GraphBuilder::new("same");
        let x = graph.input("x", ty(dtype, shape));
        let y = graph.node("Identity", &[x], []);
        graph.output("y", y, ty(dtype, shape));
        finish(graph)
    };
    service.add("same.visual", &model(DType::F32, &[1, 3, 8, 8]), &[]);
    service.add("grey.visual", &model(DType::F32, &[1, 1, 8, 8]), &[]);
    let bad = [("preprocess_cfg.json", r#"{"interpolation": "nearest"}"#)];
    service.add("nearest.visual", &model(DType::F32, &[1, 3, 8, 8]), &bad);
    service.add("bare.textual", &model(DType::I32, &[1, 8]), &[]);
    service.add("broken.textual", &model(DType::I32, &[1, 8]), &[("tokenizer.json", "{}")]);
    let image = |kind: &str, model: &str| with_image(&clip(kind, model), &picture);
    let text = |kind: &str, model: &str| with_text(&clip(kind, model), "a dog");
    for (form, expected, part) in [
        (image("visual", "ViT"), 404, "expected ViT.visual/1/model.onnx"),
        (image("visual", "../../etc"), 404, "etc.visual"),
        (image("visual", ""), 400, "not valid"),
        (image("visual", &"n".repeat(64)), 400, "not valid"),
        (image("textual", "bare"), 400, "was sent with an image, expected a text"),
        (text("visual", "same"), 400, "was sent with a text, expected an image"),
        (image("visual", "same"), 400, "expected [1, length of an embedding]"),
        (image("visual", "grey"), 400, "expected"),
        (image("visual", "nearest"), 500, "preprocess_cfg.json"),
        (text("textual", "bare"), 500, "tokenizer.json of the model 'bare.textual'"),
        (text("textual", "broken"), 500, "tokenizer.json"),
        (
            with_image(&clip("visual", "same"), b"GIF89a\x01\0\x01\0"),
            400,
            "neither PNG, JPEG nor WebP",
        ),
        (with_image(&clip("visual", "same"), &picture[..60]), 400, "does not decode"),
        (with_image(&clip("visual", "same"), b""), 400, "neither PNG, JPEG nor WebP"),
    ] {
        let (status, message) = service.refusal(&form).await;
        assert!(status == expected && message.contains(part), "{status} {message:?}, not {part:?}");
    }
    // A line of pixels would become a billion pixels if its shorter side were scaled up. Only its centre is used,
    // and this network returns that unchanged.
    service.add("large.visual", &model(DType::F32, &[1, 3, 224, 224]), &[]);
    let line = Image::of(60_000, 1, |_, _| [0; 3]).png();
    let (status, message) = service.refusal(&with_image(&clip("visual", "large"), &line)).await;
    assert!(status == 400 && message.contains("its output has the shape"), "{status} {message}");
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let refused = serve_immich(listener, service.rig.state.clone(), std::future::pending()).await;
    let refused = refused.expect_err("others reach it").to_string();
    assert!(refused.contains("Immich") && refused.contains("neither keys nor encryption"));
}
