//! Embeddings of images and texts.

use super::*;
use serde_json::json;

const SIDE: usize = 8;
const LENGTH: usize = 6;
const WIDTH: usize = 5;
const PREPROCESSING: &str = r#"{"size": [8, 8], "mode": "RGB", "mean": [0.5, 0.25, 0.125],
    "std": [0.5, 0.25, 0.2], "interpolation": "bicubic", "resize_mode": "shortest", "fill_color": 0}"#;
const MEAN: [f32; 3] = [0.5, 0.25, 0.125];
const STD: [f32; 3] = [0.5, 0.25, 0.2];
/// Words have ids from 4 on; a start and an end token surround them.
pub(super) const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "[S]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "[E]", "type_id": 0}}],
        "special_tokens": {"[S]": {"id": "[S]", "ids": [1], "tokens": ["[S]"]},
            "[E]": {"id": "[E]", "ids": [2], "tokens": ["[E]"]}}},
    "decoder": null,
    "model": {"type": "WordLevel", "unk_token": "[U]", "vocab": {"zero": 0, "[S]": 1, "[E]": 2, "[U]": 3,
        "a": 4, "dog": 5, "on": 6, "grass": 7, "[P]": 8, "dogs": 9}}}"#;
pub(super) const WORDS: usize = 12;

/// A network that weights each value of an image.
fn visual_model() -> Vec<u8> {
    let mut graph = GraphBuilder::new("visual");
    let image = graph.input("image", ty(DType::F32, &[0, 3, SIDE, SIDE]));
    let weights = graph.initializer("weights", tensor(&[3 * SIDE * SIDE, WIDTH], &weights()));
    let flat = graph.node("Flatten", &[image], []);
    let embedding = graph.node("MatMul", &[flat, weights], []);
    graph.output("embedding", embedding, ty(DType::F32, &[0, WIDTH]));
    finish(graph)
}

fn weights() -> Vec<f32> {
    numbers(1, 3 * SIDE * SIDE * WIDTH)
}

/// The network's output for an image with these colours.
fn weighed(colour: impl Fn(usize, usize, usize) -> f32) -> Vec<f32> {
    let weights = weights();
    let mut sums = vec![0.0; WIDTH];
    for channel in 0..3 {
        for (y, x) in (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (y, x))) {
            let value = (colour(x, y, channel) / 255.0 - MEAN[channel]) / STD[channel];
            let row = (channel * SIDE + y) * SIDE + x;
            sums.iter_mut()
                .enumerate()
                .for_each(|(i, sum)| *sum += value * weights[row * WIDTH + i]);
        }
    }
    sums
}

/// A network that looks up each token in a table and weights the rows by their positions.
pub(super) fn textual_model(dtype: DType) -> Vec<u8> {
    let mut graph = GraphBuilder::new("textual");
    let text = graph.input("text", ty(dtype, &[1, LENGTH]));
    let table = graph.initializer("table", tensor(&[WORDS, 2], &numbers(2, WORDS * 2)));
    let weights =
        graph.initializer("weights", tensor(&[LENGTH * 2, WIDTH], &numbers(3, LENGTH * 2 * WIDTH)));
    let rows = graph.node("Gather", &[table, text], []);
    let flat = graph.node("Flatten", &[rows], []);
    let embedding = graph.node("MatMul", &[flat, weights], []);
    graph.output("embedding", embedding, ty(DType::F32, &[1, WIDTH]));
    finish(graph)
}

fn looked_up(tokens: [usize; LENGTH]) -> Vec<f32> {
    let (table, weights) = (numbers(2, WORDS * 2), numbers(3, LENGTH * 2 * WIDTH));
    let mut sums = vec![0.0; WIDTH];
    for (place, token) in tokens.into_iter().enumerate() {
        for half in 0..2 {
            let (value, row) = (table[token * 2 + half], place * 2 + half);
            sums.iter_mut()
                .enumerate()
                .for_each(|(i, sum)| *sum += value * weights[row * WIDTH + i]);
        }
    }
    sums
}

pub(super) fn visual(model: &str) -> Value {
    json!({ "clip": { "visual": { "modelName": model } } })
}

pub(super) fn textual(model: &str) -> Value {
    json!({ "clip": { "textual": { "modelName": model, "options": { "language": "en" } } } })
}

/// PIL's Catmull-Rom: widened when an image shrinks, first along rows, then along columns, rounded in between.
fn shrunk(image: &Image, width: usize, height: usize) -> Image {
    let rows = Image::of(width, image.height, |x, y| {
        [0, 1, 2].map(|c| along(image.width, width, x, |at| image.at(at, y, c)))
    });
    Image::of(width, height, |x, y| {
        [0, 1, 2].map(|c| along(image.height, height, y, |at| rows.at(x, at, c)))
    })
}

fn along(from: usize, to: usize, place: usize, value: impl Fn(usize) -> f32) -> u8 {
    let scale = from as f64 / to as f64;
    let (centre, wide) = ((place as f64 + 0.5) * scale, scale.max(1.0));
    let cubic = |x: f64| match x.abs() {
        x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
        x if x < 2.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
        _ => 0.0,
    };
    let weight = |at: usize| cubic((at as f64 + 0.5 - centre) / wide);
    let sum: f64 = (0..from).map(weight).sum();
    let total: f64 = (0..from).map(|at| weight(at) * f64::from(value(at))).sum();
    (total / sum).round().clamp(0.0, 255.0) as u8
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_and_texts_have_embeddings() {
    let service = Service::start().await;
    assert_eq!(service.ask("GET /ping HTTP/1.1", b"").await, (200, "pong".to_owned()));
    let (status, text) = service.ask("GET / HTTP/1.1", b"").await;
    assert_eq!((status, text.as_str()), (200, r#"{"message":"Immich ML"}"#));

    service.add(
        "ViT-B-32__openai.visual",
        &visual_model(),
        &[("preprocess_cfg.json", PREPROCESSING)],
    );
    // As high as the model's input: the centre is cut out, with the odd column on the right.
    let image = Image::noise(SIDE + 3, SIDE, 7);
    let expected = weighed(|x, y, channel| image.at(x + 1, y, channel));
    for name in ["ViT-B-32__openai", "ViT-B-32::openai", "immich-app/ViT-B-32__openai"] {
        let answer = service.answer(&with_image(&visual(name), &image.png())).await;
        assert_near(&embedding(&answer["clip"]), &expected, 1e-4);
        assert_eq!((&answer["imageWidth"], &answer["imageHeight"]), (&json!(11), &json!(8)));
        assert_eq!(answer.as_object().unwrap().len(), 3, "{answer}");
    }
    // The other order of parts, with an unknown part.
    let entries = visual("ViT-B-32__openai").to_string();
    let parts = [
        ("image", true, &*image.png()),
        ("x", false, b"y"),
        ("entries", false, entries.as_bytes()),
    ];
    let answer = service.answer(&form(&parts)).await;
    assert_near(&embedding(&answer["clip"]), &expected, 1e-4);

    // A text beside the image is ignored, and of duplicate parts the last one counts.
    let other = Image::noise(SIDE, SIDE, 3).png();
    let png = image.png();
    let mut parts = vec![
        ("entries", false, &b"{"[..]),
        ("image", true, &*other),
        ("text", false, b"a dog"),
        ("image", true, &*png),
        ("entries", false, entries.as_bytes()),
    ];
    parts.extend([("x", false, &b"y"[..]); 20]);
    let answer = service.answer(&form(&parts)).await;
    assert_near(&embedding(&answer["clip"]), &expected, 1e-4);

    // Other sizes are resized; a level is 1/255, and weights are below 1.
    for (width, height, to) in
        [(37, 29, (10, 8)), (20, 55, (8, 22)), (5, 4, (10, 8)), (1, 1, (8, 8))]
    {
        let image = Image::noise(width, height, 9);
        let small = shrunk(&image, to.0, to.1);
        let (left, top) = ((to.0 - SIDE) / 2, (to.1 - SIDE) / 2);
        let expected = weighed(|x, y, channel| small.at(x + left, y + top, channel));
        let answer = service.answer(&with_image(&visual("ViT-B-32__openai"), &image.png())).await;
        assert_near(&embedding(&answer["clip"]), &expected, 0.35);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_have_embeddings() {
    let service = Service::start().await;
    let files =
        [("tokenizer.json", TOKENIZER), ("tokenizer_config.json", r#"{"pad_token": "[P]"}"#)];
    service.add("short.textual", &textual_model(DType::I32), &files);
    let long = [("tokenizer.json", TOKENIZER)];
    service.add("long.textual", &textual_model(DType::I64), &long);
    let canonical =
        r#"{"text_cfg": {"context_length": 6, "tokenizer_kwargs": {"clean": "canonicalize"}}}"#;
    let described = r#"{"pad_token": {"content": "[P]", "lstrip": false}}"#;
    let files = [
        ("tokenizer.json", TOKENIZER),
        ("tokenizer_config.json", described),
        ("config.json", canonical),
    ];
    service.add("clean.textual", &textual_model(DType::I32), &files);
    for (model, text, tokens) in [
        ("short", "  a\n DOG ", [1, 4, 5, 2, 8, 8]),
        ("short", "a cat on grass", [1, 4, 3, 6, 7, 2]),
        ("short", "on on on on on on", [1, 6, 6, 6, 6, 2]),
        ("short", "", [1, 2, 8, 8, 8, 8]),
        // Without settings, the first token pads.
        ("long", "dog grass", [1, 5, 7, 2, 0, 0]),
        ("short", "dog's", [1, 5, 3, 3, 2, 8]),
        ("clean", "dog's", [1, 9, 2, 8, 8, 8]),
    ] {
        let answer = service.answer(&with_text(&textual(model), text)).await;
        assert_near(&embedding(&answer["clip"]), &looked_up(tokens), 1e-4);
        assert_eq!(answer.as_object().unwrap().len(), 1, "{answer}");
    }
}

/// The same tokenizer with NLLB's language tokens, which are split off wherever they stand.
fn with_languages() -> String {
    let language = |id: usize, code: &str| {
        json!({ "id": id, "content": code, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    };
    let mut tokenizer: Value = serde_json::from_str(TOKENIZER).unwrap();
    tokenizer["added_tokens"] = json!([language(10, "deu_Latn"), language(11, "eng_Latn")]);
    for (code, id) in [("deu_Latn", 10), ("eng_Latn", 11)] {
        tokenizer["model"]["vocab"][code] = id.into();
    }
    tokenizer.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn models_of_nllb_get_the_language_before_the_text() {
    let service = Service::start().await;
    let tokenizer = with_languages();
    let files = [
        ("tokenizer.json", &*tokenizer),
        ("tokenizer_config.json", r#"{"pad_token": "[P]"}"#),
        ("config.json", r#"{"text_cfg": {"tokenizer_kwargs": {"clean": "canonicalize"}}}"#),
    ];
    service.add("nllb-clip__v1.textual", &textual_model(DType::I32), &files[..2]);
    service.add("nllb-clean.textual", &textual_model(DType::I32), &files);
    service.add("other.textual", &textual_model(DType::I32), &files[..2]);
    let (german, english) = ([1, 10, 5, 2, 8, 8], [1, 11, 5, 2, 8, 8]);
    for (model, language, text, tokens) in [
        ("immich-app/nllb-clip::v1", json!("de"), " dog ", german),
        ("nllb-clip__v1", json!("de-AT"), "dog", german),
        ("nllb-clip__v1", json!("en"), "dog", english),
        // An unknown language counts as English; a missing one adds no language token.
        ("nllb-clip__v1", json!("tlh"), "dog", english),
        ("nllb-clip__v1", json!(""), "dog", english),
        ("nllb-clip__v1", Value::Null, "dog", [1, 5, 2, 8, 8, 8]),
        ("nllb-clip__v1", json!("de"), "", [1, 10, 2, 8, 8, 8]),
        // Only the text is cleaned.
        ("nllb-clean", json!("de"), "Dog's", [1, 10, 9, 2, 8, 8]),
        ("other", json!("de"), "dog", [1, 5, 2, 8, 8, 8]),
    ] {
        let entry = json!({ "modelName": model, "options": { "language": language } });
        let entries = json!({ "clip": { "textual": entry } });
        let answer = service.answer(&with_text(&entries, text)).await;
        let given = embedding(&answer["clip"]);
        assert_near(&given, &looked_up(tokens), 1e-4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mask_tells_words_from_what_fills_up() {
    let service = Service::start().await;
    let mut graph = GraphBuilder::new("mask");
    let ids = graph.input("input_ids", ty(DType::I64, &[1, LENGTH]));
    let mask = graph.input("attention_mask", ty(DType::I64, &[1, LENGTH]));
    let table = graph.initializer("table", tensor(&[WORDS, 2], &numbers(2, WORDS * 2)));
    let rows = graph.node("Gather", &[table, ids], []);
    let one = graph.initializer("one", Tensor::from_slice([1], &[1_i64]).unwrap());
    let mask = graph.node("Cast", &[mask], [("to", 1.into())]);
    let mask = graph.node("Unsqueeze", &[mask, one], []);
    let sum = graph.node("MatMul", &[mask, rows], []);
    let sum = graph.node("Flatten", &[sum], []);
    graph.output("embedding", sum, ty(DType::F32, &[1, 2]));
    service.add("XLM.textual", &finish(graph), &[("tokenizer.json", TOKENIZER)]);
    let answer = service.answer(&with_text(&textual("XLM"), "a dog")).await;
    let table = numbers(2, WORDS * 2);
    let sum = |half| [1, 4, 5, 2].map(|token: usize| table[token * 2 + half]).iter().sum();
    assert_near(&embedding(&answer["clip"]), &[sum(0), sum(1)], 1e-5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_fits_the_model_of_an_alias_that_answers() {
    let service = Service::start().await;
    let swapped = TOKENIZER.replace(r#""a": 4, "dog": 5"#, r#""a": 5, "dog": 4"#);
    for (name, tokenizer) in [("one.textual", TOKENIZER), ("other.textual", &*swapped)] {
        // Each network adds its own number to all embeddings, to tell them apart.
        let mut graph = GraphBuilder::new(name);
        let text = graph.input("text", ty(DType::I32, &[1, LENGTH]));
        let own = f32::from(u8::from(name == "one.textual")) * 100.0;
        let own = graph.initializer("own", tensor(&[1], &[own]));
        let numbers = graph.node("Cast", &[text], [("to", 1.into())]);
        let embedding = graph.node("Add", &[numbers, own], []);
        graph.output("embedding", embedding, ty(DType::F32, &[1, LENGTH]));
        service.add(name, &finish(graph), &[("tokenizer.json", tokenizer)]);
        let loaded = service.rig.post(&format!("/v2/repository/models/{name}/load"), "").await;
        assert_eq!(loaded.status, 200, "{}", loaded.text());
    }
    let targets = json!({ "targets": [{ "model": "one.textual", "weight": 1 },
        { "model": "other.textual", "weight": 1 }] });
    let put = crate::rig::request("PUT", "/api/v1/cluster/aliases/both.textual");
    let made = service.rig.call(put.body(targets.to_string().into()).unwrap()).await;
    assert_eq!(made.status, 200, "{}", made.text());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..64 {
        let answer = service.answer(&with_text(&textual("both"), "a dog")).await;
        let given = embedding(&answer["clip"]);
        let is_one = given[0] > 50.0;
        let expected = match is_one {
            true => [101.0, 104.0, 105.0, 102.0, 100.0, 100.0],
            false => [1.0, 5.0, 4.0, 2.0, 0.0, 0.0],
        };
        assert_near(&given, &expected, 1e-4);
        seen.insert(is_one);
        if seen.len() == 2 {
            return;
        }
    }
    panic!("one of them never answers: {seen:?}");
}
