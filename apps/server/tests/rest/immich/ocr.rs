//! Text: a detector of pixels that are not blue, and a recogniser whose characters are colours.

use super::*;
use lgp_inference::Attr;
use serde_json::json;

const WHITE: [u8; 3] = [255, 255, 255];
const YELLOW: [u8; 3] = [255, 255, 0];
const GREEN: [u8; 3] = [0, 255, 0];
const RED: [u8; 3] = [255, 0, 0];
const CYAN: [u8; 3] = [0, 255, 255];
const CLASSES: usize = 4;

/// Detects by the blue channel, which comes first and ranges from 0 to 2.
fn detector() -> Vec<u8> {
    let mut graph = GraphBuilder::new("det");
    let x = graph.input("x", ty_any(&[Some(1), Some(3), None, None]));
    let weights = graph.initializer("weights", tensor(&[1, 3, 1, 1], &[-10.0, 0.0, 0.0]));
    let bias = graph.initializer("bias", tensor(&[1], &[10.0]));
    let map = graph.node("Conv", &[x, weights, bias], []);
    let map = graph.node("Sigmoid", &[map], []);
    graph.output("fetch_name_0", map, ty_any(&[Some(1), Some(1), None, None]));
    finish(graph)
}

/// Sees the middle rows of a line, four columns at a time: yellow is the first character, green the second, red a
/// space.
fn reader() -> Vec<u8> {
    let signs = [[0.0; 3], [-1.0, 1.0, 1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]];
    let weight = |class: usize, channel: usize, row: usize| match row {
        20..28 => signs[class][channel] * 20.0 / 32.0,
        _ => 0.0,
    };
    let mut values = Vec::new();
    for (class, channel) in (0..CLASSES).flat_map(|class| [0, 1, 2].map(|channel| (class, channel)))
    {
        values.extend((0..48).flat_map(|row| [weight(class, channel, row); 4]));
    }
    let mut graph = GraphBuilder::new("rec");
    let x = graph.input("x", ty_any(&[None, Some(3), Some(48), None]));
    let weights = graph.initializer("weights", tensor(&[CLASSES, 3, 48, 4], &values));
    let bias = graph.initializer("bias", tensor(&[CLASSES], &[0.0, -40.0, -40.0, -40.0]));
    let strides: Attr = vec![48_i64, 4].into();
    let steps = graph.node("Conv", &[x, weights, bias], [("strides", strides)]);
    let two = graph.initializer("two", Tensor::from_slice([1], &[2_i64]).unwrap());
    let steps = graph.node("Squeeze", &[steps, two], []);
    let steps = graph.node("Transpose", &[steps], [("perm", vec![0_i64, 2, 1].into())]);
    let classes = graph.node("Softmax", &[steps], [("axis", 2.into())]);
    graph.output("fetch_name_0", classes, ty_any(&[None, None, Some(CLASSES)]));
    finish(graph)
}

pub(super) fn asked(region: f32, text: f32) -> Value {
    json!({ "ocr": {
        "detection": { "modelName": "PP-OCRv5_mobile", "options": { "minScore": region, "maxResolution": 256 } },
        "recognition": { "modelName": "PP-OCRv5_mobile", "options": { "minScore": text } },
    } })
}

fn page() -> Image {
    Image::of(320, 256, |x, y| match (x, y) {
        (120..260, 40..64) => [YELLOW, GREEN, RED, YELLOW][(x - 120) / 35],
        // Rotated text, read downwards.
        (40..64, 60..200) => [GREEN, YELLOW][(y - 60) / 70],
        (150..250, 150..180) => CYAN,
        _ => WHITE,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_found_and_read() {
    let service = Service::start().await;
    service.add("PP-OCRv5_mobile.detection", &detector(), &[]);
    service.add("PP-OCRv5_mobile.recognition", &reader(), &[("labels.txt", "a\nb\n")]);
    let answer = service.answer(&with_image(&asked(0.5, 0.8), &page().png())).await;
    assert_eq!((&answer["imageWidth"], &answer["imageHeight"]), (&json!(320), &json!(256)));
    let found = &answer["ocr"];
    assert_eq!(found["text"], json!(["ab a", "ba"]));
    let list = |key: &str| -> Vec<f32> { serde_json::from_value(found[key].clone()).unwrap() };
    // Of 141 × 25 pixels, with those to the right and below, 140 × 24 are text. Both regions grow by 140 × 24 × 1.6
    // / 164 pixels.
    assert_near(&list("boxScore"), &[140.0 * 24.0 / (141.0 * 25.0); 2], 1e-3);
    let corners =
        [[[104, 24], [276, 24], [276, 80], [104, 80]], [[24, 44], [80, 44], [80, 216], [24, 216]]];
    let expected: Vec<f32> = corners
        .as_flattened()
        .iter()
        .flat_map(|[x, y]: &[u16; 2]| [f32::from(*x) / 320.0, f32::from(*y) / 256.0])
        .collect();
    assert_near(&list("box"), &expected, 1e-6);
    assert!(list("textScore").iter().all(|score| (0.8..=1.0).contains(score)), "{found}");

    let nothing = json!({ "text": [], "box": [], "boxScore": [], "textScore": [] });
    for (region, text) in [(0.96, 0.5), (0.5, 1.0)] {
        let answer = service.answer(&with_image(&asked(region, text), &page().png())).await;
        assert_eq!(answer["ocr"], nothing, "{region} {text}");
    }
    let blank = Image::of(64, 64, |_, _| WHITE).png();
    let small = Image::of(31, 200, |_, _| YELLOW).png();
    for picture in [blank, small] {
        let answer = service.answer(&with_image(&asked(0.1, 0.1), &picture)).await;
        assert_eq!(answer["ocr"], nothing);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_reader_is_refused() {
    let service = Service::start().await;
    service.add("PP-OCRv5_mobile.detection", &detector(), &[]);
    let page = page().png();
    let refusal = async || service.refusal(&with_image(&asked(0.5, 0.5), &page)).await;
    let (status, message) = refusal().await;
    assert!(status == 404 && message.contains("PP-OCRv5_mobile.recognition/1"), "{message}");
    service.add("PP-OCRv5_mobile.recognition", &reader(), &[("labels.txt", "a\nb\nc\nd\n")]);
    let (status, message) = refusal().await;
    assert!(status == 500 && message.contains("4 lines for 4 classes, expected 2"), "{message}");
    let long = Image::of(40_000, 40, |_, _| WHITE).png();
    let (status, message) = service.refusal(&with_image(&asked(0.5, 0.5), &long)).await;
    assert!(status == 400 && message.contains("maximum resolution"), "{status} {message}");
}
