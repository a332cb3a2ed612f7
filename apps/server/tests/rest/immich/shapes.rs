//! Networks with the shapes of Immich's: a vision transformer with a text encoder, SCRFD, ArcFace, and PaddleOCR's
//! two. They have fewer layers and random weights.

use super::*;
use lgp_inference::{Attr, Session, SessionOptions, Value as Node};

/// Length of the embeddings of CLIP's ViT-B/32 and of ArcFace.
const EMBEDDING: usize = 512;
/// Characters of PP-OCRv5, plus the blank before and the space after them.
const CLASSES: usize = 18_385;
const PREPROCESSING: &str = r#"{"size": [224, 224], "mode": "RGB",
    "mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711],
    "interpolation": "bicubic", "resize_mode": "shortest", "fill_color": 0}"#;

/// A network under construction, whose weights keep the magnitude of values.
struct Net {
    graph: GraphBuilder,
    count: u64,
}

impl Net {
    fn new(name: &str) -> Self {
        Self { graph: GraphBuilder::new(name), count: 0 }
    }

    fn op(&mut self, op: &str, inputs: &[Node], attributes: Vec<(&str, Attr)>) -> Node {
        self.graph.node(op, inputs, attributes)
    }

    fn constant(&mut self, tensor: Tensor) -> Node {
        self.count += 1;
        self.graph.initializer(format!("c{}", self.count), tensor)
    }

    fn integers(&mut self, values: &[i64]) -> Node {
        self.constant(Tensor::from_slice([values.len()], values).unwrap())
    }

    /// Random weights for sums of `summed` products.
    fn weights(&mut self, dims: &[usize], summed: usize) -> Node {
        let spread = (3.0 / summed as f32).sqrt();
        let values = numbers(self.count + 1, dims.iter().product());
        let values: Vec<f32> = values.into_iter().map(|value| value * spread).collect();
        self.constant(tensor(dims, &values))
    }

    fn filled(&mut self, dims: &[usize], value: f32) -> Node {
        self.constant(tensor(dims, &vec![value; dims.iter().product()]))
    }

    /// A convolution between these numbers of channels, with a square kernel; strides are rows, columns.
    fn conv(&mut self, x: Node, [from, to, kernel]: [usize; 3], strides: [i64; 2]) -> Node {
        let weights = self.weights(&[to, from, kernel, kernel], from * kernel * kernel);
        let bias = self.filled(&[to], 0.01);
        let pad = i64::try_from(kernel / 2).unwrap();
        let attributes = vec![("strides", strides.to_vec().into()), ("pads", vec![pad; 4].into())];
        self.op("Conv", &[x, weights, bias], attributes)
    }

    fn linear(&mut self, x: Node, from: usize, to: usize) -> Node {
        let weights = self.weights(&[from, to], from);
        let product = self.op("MatMul", &[x, weights], vec![]);
        let bias = self.filled(&[to], 0.01);
        self.op("Add", &[product, bias], vec![])
    }

    fn normalised(&mut self, x: Node, width: usize) -> Node {
        let (scale, bias) = (self.filled(&[width], 1.0), self.filled(&[width], 0.0));
        let attributes = vec![("axis", (-1_i64).into()), ("epsilon", 1e-5_f32.into())];
        self.op("LayerNormalization", &[x, scale, bias], attributes)
    }

    fn batch_normalised(&mut self, x: Node, channels: usize) -> Node {
        let of = [1.0, 0.0, 0.0, 1.0].map(|value| self.filled(&[channels], value));
        self.op("BatchNormalization", &[x, of[0], of[1], of[2], of[3]], vec![])
    }

    /// A transformer block on `[batch, length, width]`. With a mask, tokens attend to earlier ones only.
    fn block(&mut self, x: Node, [length, width, heads]: [usize; 3], mask: Option<Node>) -> Node {
        let each = width / heads;
        let shape = [0, length, heads, each].map(|n| i64::try_from(n).unwrap());
        let (shape, merged) = (self.integers(&shape), self.integers(&[0, 0, -1]));
        let before = self.normalised(x, width);
        let [q, k, v] = [[0_i64, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]].map(|order| {
            let all = self.linear(before, width, width);
            let split = self.op("Reshape", &[all, shape], vec![]);
            self.op("Transpose", &[split], vec![("perm", order.to_vec().into())])
        });
        let scores = self.op("MatMul", &[q, k], vec![]);
        let scale = self.filled(&[1], (each as f32).sqrt().recip());
        let mut scores = self.op("Mul", &[scores, scale], vec![]);
        if let Some(mask) = mask {
            scores = self.op("Add", &[scores, mask], vec![]);
        }
        let shares = self.op("Softmax", &[scores], vec![("axis", (-1_i64).into())]);
        let seen = self.op("MatMul", &[shares, v], vec![]);
        let seen = self.op("Transpose", &[seen], vec![("perm", vec![0_i64, 2, 1, 3].into())]);
        let seen = self.op("Reshape", &[seen, merged], vec![]);
        let seen = self.linear(seen, width, width);
        let x = self.op("Add", &[x, seen], vec![]);
        let before = self.normalised(x, width);
        let wide = self.linear(before, width, width * 4);
        // CLIP's GELU: x · sigmoid(1.702 x).
        let factor = self.filled(&[1], 1.702);
        let gate = self.op("Mul", &[wide, factor], vec![]);
        let gate = self.op("Sigmoid", &[gate], vec![]);
        let wide = self.op("Mul", &[wide, gate], vec![]);
        let more = self.linear(wide, width * 4, width);
        self.op("Add", &[x, more], vec![])
    }

    fn finish(mut self, outputs: Vec<(&str, Node, TensorType)>) -> Vec<u8> {
        for (name, node, ty) in outputs {
            self.graph.output(name, node, ty);
        }
        finish(self.graph)
    }
}

/// ViT-B/32: 49 patches and a class token, 768 wide, 12 heads.
fn visual() -> Vec<u8> {
    let mut net = Net::new("visual");
    let image = net.graph.input("pixel_values", ty(DType::F32, &[0, 3, 224, 224]));
    let weights = net.weights(&[768, 3, 32, 32], 3 * 32 * 32);
    let patches = net.op("Conv", &[image, weights], vec![("strides", vec![32_i64, 32].into())]);
    let flat = net.integers(&[0, 768, 49]);
    let patches = net.op("Reshape", &[patches, flat], vec![]);
    let patches = net.op("Transpose", &[patches], vec![("perm", vec![0_i64, 2, 1].into())]);
    let class = net.weights(&[1, 1, 768], 1);
    let mean = net.op("ReduceMean", &[patches], vec![("axes", vec![1_i64].into())]);
    let zero = net.filled(&[1], 0.0);
    let none = net.op("Mul", &[mean, zero], vec![]);
    let class = net.op("Add", &[none, class], vec![]);
    let tokens = net.op("Concat", &[class, patches], vec![("axis", 1.into())]);
    let places = net.weights(&[50, 768], 3);
    let tokens = net.op("Add", &[tokens, places], vec![]);
    let tokens = net.normalised(tokens, 768);
    let tokens = net.block(tokens, [50, 768, 12], None);
    let first = net.constant(Tensor::from_slice([], &[0_i64]).unwrap());
    let class = net.op("Gather", &[tokens, first], vec![("axis", 1.into())]);
    let class = net.normalised(class, 768);
    let weights = net.weights(&[768, EMBEDDING], 768);
    let embedding = net.op("MatMul", &[class, weights], vec![]);
    net.finish(vec![("image_embeds", embedding, ty(DType::F32, &[0, EMBEDDING]))])
}

/// CLIP's text encoder: 77 tokens, 512 wide, 8 heads; the token with the highest id ends the text.
fn textual(words: usize) -> Vec<u8> {
    const LENGTH: usize = 77;
    let mut net = Net::new("textual");
    let text = net.graph.input("input_ids", ty(DType::I32, &[1, LENGTH]));
    let table = net.weights(&[words, 512], 3);
    let tokens = net.op("Gather", &[table, text], vec![]);
    let places = net.weights(&[LENGTH, 512], 3);
    let tokens = net.op("Add", &[tokens, places], vec![]);
    let all = (0..LENGTH).flat_map(|row| (0..LENGTH).map(move |column| (row, column)));
    let mask: Vec<f32> = all.map(|(row, column)| if column > row { -1e9 } else { 0.0 }).collect();
    let mask = net.constant(tensor(&[LENGTH, LENGTH], &mask));
    let tokens = net.block(tokens, [LENGTH, 512, 8], Some(mask));
    let tokens = net.normalised(tokens, 512);
    let flat = net.integers(&[LENGTH as i64, 512]);
    let tokens = net.op("Reshape", &[tokens, flat], vec![]);
    let end = vec![("axis", 1.into()), ("keepdims", 0.into())];
    let end = net.op("ArgMax", &[text], end);
    let end = net.op("Gather", &[tokens, end], vec![]);
    let weights = net.weights(&[512, EMBEDDING], 512);
    let embedding = net.op("MatMul", &[end, weights], vec![]);
    net.finish(vec![("text_embeds", embedding, ty(DType::F32, &[1, EMBEDDING]))])
}

/// SCRFD: three heads at strides 8, 16 and 32 of 640 × 640, with two anchors at each point.
fn detector() -> Vec<u8> {
    let mut net = Net::new("scrfd");
    let mut x = net.graph.input("input.1", ty(DType::F32, &[1, 3, 640, 640]));
    let (mut channels, mut levels) = (3, Vec::new());
    for (at, wide) in [16, 24, 40, 56, 80].into_iter().enumerate() {
        x = net.conv(x, [channels, wide, 3], [2, 2]);
        x = net.op("Relu", &[x], vec![]);
        channels = wide;
        if at >= 2 {
            levels.push((x, wide, 640 >> (at + 1)));
        }
    }
    let mut outputs = Vec::new();
    for (head, each) in [1, 4, 10].into_iter().enumerate() {
        for &(level, wide, side) in &levels {
            let found = net.conv(level, [wide, 2 * each, 3], [1, 1]);
            let perm = vec![0_i64, 2, 3, 1];
            let found = net.op("Transpose", &[found], vec![("perm", perm.into())]);
            let shape = net.integers(&[-1, each as i64]);
            let mut found = net.op("Reshape", &[found, shape], vec![]);
            if head == 0 {
                found = net.op("Sigmoid", &[found], vec![]);
            }
            outputs.push((found, ty(DType::F32, &[side * side * 2, each])));
        }
    }
    let names: Vec<String> = (0..9).map(|n| format!("{}", 440 + n)).collect();
    let outputs = names.iter().zip(outputs).map(|(name, (node, ty))| (name.as_str(), node, ty));
    net.finish(outputs.collect())
}

/// ArcFace: a residual network with PReLU from 112 × 112 to 7 × 7, then one layer.
fn recogniser() -> Vec<u8> {
    let mut net = Net::new("arcface");
    let mut x = net.graph.input("input.1", ty(DType::F32, &[0, 3, 112, 112]));
    let mut channels = 3;
    for wide in [16, 32, 48, 64] {
        let shortcut = net.conv(x, [channels, wide, 1], [2, 2]);
        let before = net.batch_normalised(x, channels);
        let inner = net.conv(before, [channels, wide, 3], [1, 1]);
        let slope = net.filled(&[wide, 1, 1], 0.25);
        let inner = net.op("PRelu", &[inner, slope], vec![]);
        let inner = net.conv(inner, [wide, wide, 3], [2, 2]);
        x = net.op("Add", &[shortcut, inner], vec![]);
        channels = wide;
    }
    let flat = net.op("Flatten", &[x], vec![]);
    let summed = channels * 7 * 7;
    let weights = net.weights(&[EMBEDDING, summed], summed);
    let bias = net.filled(&[EMBEDDING], 0.0);
    let embedding = net.op("Gemm", &[flat, weights, bias], vec![("transB", 1.into())]);
    let embedding = net.batch_normalised(embedding, EMBEDDING);
    net.finish(vec![("683", embedding, ty(DType::F32, &[0, EMBEDDING]))])
}

/// Differentiable binarization: down to a quarter and up again to a map of the input's size.
fn text_detector() -> Vec<u8> {
    let mut net = Net::new("det");
    let x = net.graph.input("x", ty_any(&[None, Some(3), None, None]));
    let mut y = net.conv(x, [3, 16, 3], [2, 2]);
    y = net.op("HardSwish", &[y], vec![]);
    y = net.conv(y, [16, 24, 3], [2, 2]);
    y = net.op("Relu", &[y], vec![]);
    for (from, to) in [(24, 16), (16, 1)] {
        let weights = net.weights(&[from, to, 2, 2], from);
        let attributes = vec![("strides", vec![2_i64, 2].into())];
        y = net.op("ConvTranspose", &[y, weights], attributes);
    }
    let map = net.op("Sigmoid", &[y], vec![]);
    net.finish(vec![("fetch_name_0", map, ty_any(&[None, Some(1), None, None]))])
}

/// A recogniser of lines 48 high: a step per eight columns, each with 18,385 character scores.
fn text_reader() -> Vec<u8> {
    let mut net = Net::new("rec");
    let x = net.graph.input("x", ty_any(&[None, Some(3), Some(48), None]));
    let mut y = net.conv(x, [3, 32, 3], [2, 2]);
    y = net.op("HardSwish", &[y], vec![]);
    y = net.conv(y, [32, 64, 3], [2, 2]);
    y = net.op("HardSwish", &[y], vec![]);
    y = net.conv(y, [64, 120, 3], [2, 2]);
    let y = net.op("ReduceMean", &[y], vec![("axes", vec![2_i64].into()), ("keepdims", 0.into())]);
    let y = net.op("Transpose", &[y], vec![("perm", vec![0_i64, 2, 1].into())]);
    let classes = net.linear(y, 120, CLASSES);
    let shares = net.op("Softmax", &[classes], vec![("axis", 2.into())]);
    net.finish(vec![("fetch_name_0", shares, ty_any(&[None, None, Some(CLASSES)]))])
}

fn length(embedding: &[f32]) -> f32 {
    embedding.iter().map(|value| value * value).sum::<f32>().sqrt()
}

#[tokio::test(flavor = "multi_thread")]
async fn networks_of_these_shapes_run() {
    let service = Service::start().await;
    let preprocessing = [("preprocess_cfg.json", PREPROCESSING)];
    let tokenizer = [("tokenizer.json", clip::TOKENIZER)];
    let vision = visual();
    service.add("ViT-B-32__openai.visual", &vision, &preprocessing);
    service.add("ViT-B-32__openai.textual", &textual(clip::WORDS), &tokenizer);
    service.add("buffalo_l.detection", &detector(), &[]);
    service.add("buffalo_l.recognition", &recogniser(), &[]);
    service.add("PP-OCRv5_mobile.detection", &text_detector(), &[]);
    let labels: String = (0..CLASSES - 2).map(|n| format!("{n}\n")).collect();
    service.add("PP-OCRv5_mobile.recognition", &text_reader(), &[("labels.txt", &labels)]);

    // The network's own output for an image that needs no resizing.
    let image = Image::noise(224, 224, 4);
    let (mean, std) =
        ([0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]);
    let pixels = (0..3).flat_map(|c| (0..224 * 224).map(move |at| (c, at)));
    let pixels: Vec<f32> = pixels
        .map(|(c, at)| (image.at(at % 224, at / 224, c) / 255.0 - mean[c]) / std[c])
        .collect();
    let model = lgp_inference::Model::from_bytes(&vision, None).unwrap();
    let session = Session::new(model, SessionOptions::with_threads(1)).unwrap();
    let pixels = tensor(&[1, 3, 224, 224], &pixels);
    let expected = session.run(&[("pixel_values", pixels.view())]).unwrap();
    let expected = expected[0].tensor.as_slice::<f32>().unwrap().to_vec();
    let answer = service.answer(&with_image(&clip::visual("ViT-B-32__openai"), &image.png())).await;
    assert_eq!(expected.len(), EMBEDDING);
    assert!(length(&expected) > 1.0, "{}", length(&expected));
    assert_near(&embedding(&answer["clip"]), &expected, 1e-3);

    let mut texts = Vec::new();
    for text in ["a dog", "dogs on grass"] {
        let answer = service.answer(&with_text(&clip::textual("ViT-B-32__openai"), text)).await;
        texts.push(embedding(&answer["clip"]));
        assert!(texts.iter().all(|text| text.len() == EMBEDDING && length(text) > 1.0));
    }
    assert_ne!(texts[0], texts[1]);

    let photo = Image::noise(800, 600, 5).png();
    let answer = service.answer(&with_image(&faces::asked("buffalo_l", 0.6), &photo)).await;
    let found = answer["facial-recognition"].as_array().expect("faces");
    assert!(
        !found.is_empty() && found.len() < 2 * (80 * 80 + 40 * 40 + 20 * 20),
        "{}",
        found.len()
    );
    for face in found {
        assert!(face["score"].as_f64().expect("a score") >= 0.6, "{face}");
        assert_eq!(embedding(&face["embedding"]).len(), EMBEDDING);
    }

    let answer = service.answer(&with_image(&ocr::asked(0.2, 0.0), &photo)).await;
    let found = &answer["ocr"];
    let [texts, boxes, scores] =
        ["text", "box", "textScore"].map(|key| found[key].as_array().expect("a list").len());
    assert!(texts > 0 && boxes == 8 * texts && scores == texts, "{found}");
}
