//! Faces: a detector whose heads see the mean colour at each point, and a network that weights the mean colours of
//! a face's parts.

use super::*;
use lgp_inference::Attr;
use serde_json::json;

/// The side of the detector's input.
const SIDE: usize = 64;
const STRIDES: [usize; 3] = [8, 16, 32];
const WIDTH: usize = 4;
/// Values per anchor point and face: score, sides, points. Each point has two faces.
const HEADS: [usize; 3] = [1, 4, 10];
const TEMPLATE: [[f64; 2]; 5] = [
    [38.2946, 51.6963],
    [73.5318, 51.5014],
    [56.0252, 71.7366],
    [41.5493, 92.3655],
    [70.7299, 92.2041],
];

fn seed(stride: usize, head: usize) -> u64 {
    (stride * 100 + head).try_into().unwrap()
}

/// The bias of a head: sides lie outside their point, and the face's points at their usual places.
fn bias(head: usize, number: usize) -> f32 {
    match head {
        0 => -0.5,
        1 => 1.5,
        _ => {
            let [x, y] = TEMPLATE[number % 10 / 2];
            let at = if number.is_multiple_of(2) { x } else { y };
            (at as f32 - 56.0) / 40.0
        }
    }
}

fn detector() -> Vec<u8> {
    let mut graph = GraphBuilder::new("det");
    let image = graph.input("input.1", ty(DType::F32, &[1, 3, SIDE, SIDE]));
    // In buffalo_l's order: the scores of all strides, then the sides, then the points.
    for (head, numbers_each) in HEADS.into_iter().enumerate() {
        for stride in STRIDES {
            let both = numbers_each * 2;
            let kernel = i64::try_from(stride).unwrap();
            let name = format!("{head}.{stride}");
            let square: Attr = vec![kernel, kernel].into();
            let attributes = [("kernel_shape", square.clone()), ("strides", square)];
            let means = graph.node("AveragePool", &[image], attributes);
            let weights = tensor(&[both, 3, 1, 1], &numbers(seed(stride, head), both * 3));
            let weights = graph.initializer(format!("weights.{name}"), weights);
            let biases: Vec<f32> = (0..both).map(|number| bias(head, number)).collect();
            let biases = graph.initializer(format!("bias.{name}"), tensor(&[both], &biases));
            let found = graph.node("Conv", &[means, weights, biases], []);
            let found = graph.node("Transpose", &[found], [("perm", vec![0_i64, 2, 3, 1].into())]);
            let rows = (SIDE / stride).pow(2) * 2;
            let shape = [rows, numbers_each].map(|n| i64::try_from(n).unwrap());
            let shape = Tensor::from_slice([2], &shape).unwrap();
            let shape = graph.initializer(format!("shape.{name}"), shape);
            let mut found = graph.node("Reshape", &[found, shape], []);
            if head == 0 {
                found = graph.node("Sigmoid", &[found], []);
            }
            graph.output(name, found, ty(DType::F32, &[rows, numbers_each]));
        }
    }
    finish(graph)
}

/// A network that weights the means of 16 parts of a face.
fn recogniser(batch: usize) -> Vec<u8> {
    let mut graph = GraphBuilder::new("rec");
    let faces = graph.input("input.1", ty(DType::F32, &[batch, 3, 112, 112]));
    let square: Attr = vec![28_i64, 28].into();
    let attributes = [("kernel_shape", square.clone()), ("strides", square)];
    let means = graph.node("AveragePool", &[faces], attributes);
    let flat = graph.node("Flatten", &[means], []);
    let weights = graph.initializer("weights", tensor(&[48, WIDTH], &numbers(5, 48 * WIDTH)));
    let embedding = graph.node("MatMul", &[flat, weights], []);
    graph.output("683", embedding, ty(DType::F32, &[batch, WIDTH]));
    finish(graph)
}

/// A colour between pixels. Outside the image it is black, unless `repeats`.
fn between(image: &Image, x: f64, y: f64, channel: usize, repeats: bool) -> f64 {
    let pixel = |x: f64, y: f64| {
        let (w, h) = (image.width as f64 - 1.0, image.height as f64 - 1.0);
        let is_inside = (0.0..=w).contains(&x) && (0.0..=h).contains(&y);
        match is_inside || repeats {
            true => {
                f64::from(image.at(x.clamp(0.0, w) as usize, y.clamp(0.0, h) as usize, channel))
            }
            false => 0.0,
        }
    };
    let (left, top) = (x.floor(), y.floor());
    let (right, down) = (x - left, y - top);
    let upper = pixel(left, top) * (1.0 - right) + pixel(left + 1.0, top) * right;
    let lower = pixel(left, top + 1.0) * (1.0 - right) + pixel(left + 1.0, top + 1.0) * right;
    upper * (1.0 - down) + lower * down
}

#[derive(Debug, Clone)]
struct Face {
    sides: [f64; 4],
    points: [[f64; 2]; 5],
    score: f64,
}

/// The faces that the detector should find, in pixels of the image, highest score first.
fn expected_faces(image: &Image, score_min: f64) -> Vec<Face> {
    // The image in the upper left corner of a black square.
    let scale = (SIDE as f64 / image.width as f64).min(SIDE as f64 / image.height as f64);
    let (width, height) = if image.height > image.width {
        (SIDE * image.width / image.height, SIDE)
    } else {
        (SIDE, SIDE * image.height / image.width)
    };
    let scale_down = height as f64 / image.height as f64;
    assert!((scale - scale_down).abs() < 0.05);
    let square = Image::of(SIDE, SIDE, |x, y| {
        [0, 1, 2].map(|channel| match x < width && y < height {
            true => {
                let x = (x as f64 + 0.5) * image.width as f64 / width as f64 - 0.5;
                let y = (y as f64 + 0.5) * image.height as f64 / height as f64 - 0.5;
                between(image, x, y, channel, true).round() as u8
            }
            false => 0,
        })
    });
    let mut all = Vec::new();
    for stride in STRIDES {
        for (y, x) in (0..SIDE / stride).flat_map(|y| (0..SIDE / stride).map(move |x| (y, x))) {
            let mean = |channel: usize| {
                let rows = (0..stride * stride).map(|at| (at % stride, at / stride));
                let at = |(i, j)| f64::from(square.at(x * stride + i, y * stride + j, channel));
                (rows.map(at).sum::<f64>() / (stride * stride) as f64 - 127.5) / 128.0
            };
            let means = [0, 1, 2].map(mean);
            for anchor in 0..2 {
                let head = |head: usize, number: usize| {
                    let number = anchor * HEADS[head] + number;
                    let weights = numbers(seed(stride, head), HEADS[head] * 2 * 3);
                    let weighed = (0..3).map(|i| means[i] * f64::from(weights[number * 3 + i]));
                    weighed.sum::<f64>() + f64::from(bias(head, number))
                };
                let score = 1.0 / (1.0 + (-head(0, 0)).exp());
                if score < score_min {
                    continue;
                }
                let (x, y, step) = ((x * stride) as f64, (y * stride) as f64, stride as f64);
                let far = |number: usize| head(1, number) * step;
                let sides =
                    [x - far(0), y - far(1), x + far(2), y + far(3)].map(|v| v / scale_down);
                let points = std::array::from_fn(|point| {
                    let [right, down] = [0, 1].map(|axis| head(2, point * 2 + axis) * step);
                    [(x + right) / scale_down, (y + down) / scale_down]
                });
                all.push(Face { sides, points, score });
            }
        }
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Face> = Vec::new();
    for face in all {
        if kept.iter().all(|other| overlap(&other.sides, &face.sides) <= 0.4) {
            kept.push(face);
        }
    }
    kept
}

fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let area = |s: &[f64; 4]| (s[2] - s[0]).max(0.0) * (s[3] - s[1]).max(0.0);
    let both = [a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])];
    area(&both) / (area(a) + area(b) - area(&both))
}

/// The expected embedding of a face.
fn expected_embedding(image: &Image, face: &Face) -> Vec<f32> {
    let [a, b, dx, dy] = least_squares(&face.points);
    // Maps from the upright face back to the image.
    let square = a * a + b * b;
    let place = |u: f64, v: f64| {
        let (u, v) = (u - dx, v - dy);
        ((a * u + b * v) / square, (a * v - b * u) / square)
    };
    let weights = numbers(5, 48 * WIDTH);
    let mut sums = vec![0.0_f64; WIDTH];
    for part in 0..48 {
        let (channel, row, column) = (part / 16, part / 4 % 4, part % 4);
        let mut total = 0.0;
        for (j, i) in (0..28).flat_map(|j| (0..28).map(move |i| (j, i))) {
            let (x, y) = place((column * 28 + i) as f64, (row * 28 + j) as f64);
            total += between(image, x, y, channel, false).round();
        }
        let mean = (total / (28.0 * 28.0) - 127.5) / 127.5;
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += mean * f64::from(weights[part * WIDTH + i]);
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}

/// The similarity transform (a·x − b·y + dx, b·x + a·y + dy) that fits the template best, by the normal equations.
fn least_squares(points: &[[f64; 2]; 5]) -> [f64; 4] {
    let mut system = [[0.0; 5]; 4];
    for ([x, y], [u, v]) in points.iter().zip(TEMPLATE) {
        for (row, value) in [([*x, -y, 1.0, 0.0], u), ([*y, *x, 0.0, 1.0], v)] {
            for i in 0..4 {
                (0..4).for_each(|j| system[i][j] += row[i] * row[j]);
                system[i][4] += row[i] * value;
            }
        }
    }
    for i in 0..4 {
        let best = (i..4).max_by(|&p, &q| system[p][i].abs().total_cmp(&system[q][i].abs()));
        system.swap(i, best.unwrap());
        let pivot = system[i];
        for (_, row) in system.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let factor = row[i] / pivot[i];
            row.iter_mut().zip(pivot).for_each(|(value, above)| *value -= factor * above);
        }
    }
    [0, 1, 2, 3].map(|i| system[i][4] / system[i][i])
}

pub(super) fn asked(model: &str, score_min: f64) -> Value {
    json!({ "facial-recognition": {
        "detection": { "modelName": model, "options": { "minScore": score_min } },
        "recognition": { "modelName": model },
    } })
}

#[tokio::test(flavor = "multi_thread")]
async fn faces_have_boxes_scores_and_embeddings() {
    let service = Service::start().await;
    for (name, batch) in [("buffalo_l", 0), ("buffalo_s", 1), ("antelopev2", 0)] {
        service.add(&format!("{name}.detection"), &detector(), &[]);
        service.add(&format!("{name}.recognition"), &recogniser(batch), &[]);
    }
    // Takes any number of faces, but its config file allows fewer than there are.
    let models = service.rig.folder.path().join("models");
    let config = models.join("antelopev2.recognition/config.pbtxt");
    std::fs::write(config, "max_batch_size: 1").unwrap();
    let colour = |x: usize, y: usize| {
        [x * 5 % 256, (x + y) * 4 % 256, y * 6 % 256].map(|value| u8::try_from(value).unwrap())
    };
    for (image, score_min) in [(Image::of(50, 40, colour), 0.55), (Image::of(90, 160, colour), 0.6)]
    {
        let expected = expected_faces(&image, score_min);
        assert!((2..100).contains(&expected.len()), "a test of {} faces", expected.len());
        for name in ["buffalo_l", "buffalo_s", "antelopev2"] {
            let answer = service.answer(&with_image(&asked(name, score_min), &image.png())).await;
            assert_eq!(answer["imageWidth"], json!(image.width));
            let found = answer["facial-recognition"].as_array().unwrap();
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                let sides =
                    ["x1", "y1", "x2", "y2"].map(|side| found["boundingBox"][side].as_f64());
                let sides = sides.map(|side| side.unwrap() as f32);
                assert!(sides.iter().all(|side| side.fract() == 0.0), "{sides:?}");
                // Both results are rounded to whole pixels.
                assert_near(&sides, &expected.sides.map(|side| side as f32), 0.51);
                let score = found["score"].as_f64().unwrap() as f32;
                assert_near(&[score], &[expected.score as f32], 1e-4);
                let given = embedding(&found["embedding"]);
                assert_near(&given, &expected_embedding(&image, expected), 0.02);
            }
        }
    }
    let nobody =
        service.answer(&with_image(&asked("buffalo_l", 1.0), &Image::of(1, 1, colour).png())).await;
    assert_eq!(nobody["facial-recognition"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_detector_is_refused() {
    let service = Service::start().await;
    service.add("antelopev2.detection", &recogniser(1), &[]);
    service.add("alone.detection", &detector(), &[]);
    let picture = Image::noise(70, 70, 3).png();
    for (model, expected, part) in [
        ("buffalo_l", 404, "expected buffalo_l.detection/1/model.onnx"),
        ("antelopev2", 400, "side 112, expected a multiple of 32"),
        ("alone", 404, "expected alone.recognition/1/model.onnx"),
    ] {
        let (status, message) = service.refusal(&with_image(&asked(model, 0.0), &picture)).await;
        assert!(status == expected && message.contains(part), "{status} {message}");
    }
}
