//! SSDLite on MobileNetV2, for one image of 300×300: predictions on six maps, decoded from anchors,
//! and in the graph the choice of boxes that do not overlap.

use crate::layers::{Conv, Layers, float, ints};
use crate::mobile::Activation::Relu6;
use crate::mobile::Block;
use crate::nets::{Size, f32_type};
use crate::transformer::count;
use lgp_inference::{Attr, Model, Result, Value};
use lgp_memory::{Dim, Tensor};

/// How much wider the middle is, channels made, repeats, stride of the first.
const STAGES: [(usize, usize, usize, usize); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

/// Channels of the maps behind the backbone.
const EXTRAS: [usize; 4] = [512, 256, 256, 128];

/// Shapes of boxes at each place, of the first map and of the others: size, where 1 is that of the
/// map and 2 that between it and the next, and width over height.
const FIRST: [(usize, f32); 3] = [(1, 1.), (1, 2.), (1, 0.5)];
const OTHERS: [(usize, f32); 6] = [(1, 1.), (1, 2.), (1, 0.5), (1, 3.), (1, 1. / 3.), (2, 1.)];

/// The variances of offsets and of sizes by which predictions are divided.
const OFFSETS: f32 = 10.;
const SIZES: f32 = 5.;

/// Boxes that share more than this are one.
const OVERLAP: f32 = 0.6;

/// The share that a class must have of a box's prediction.
const LEAST: f32 = 0.1;

/// A map and its channels.
type Map = (Value, usize);

/// The detector: boxes (top, left, bottom, right, of 1), classes and scores, the best first.
pub(crate) fn ssd(size: Size) -> Result<Model> {
    let (side, classes, most): (usize, usize, i64) =
        if size == Size::Full { (300, 91, 100) } else { (64, 11, 20) };
    let mut net = Layers::new("ssd", 0x55d0);
    net.gain = 1.3;
    let dims = [1, 3, side, side].map(Dim::Known);
    let x = net.g.input("input", f32_type(dims));
    let maps = maps(&mut net, x, size)?;
    let (mut codes, mut logits, mut anchors) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rows, mut side) = (0, side.div_ceil(16));
    for (number, &map) in maps.iter().enumerate() {
        let shapes: &[(usize, f32)] = if number == 0 { &FIRST } else { &OTHERS };
        for (part, columns, all) in [("box", 4, &mut codes), ("class", classes, &mut logits)] {
            all.push(head(&mut net, &format!("{part}_head.{number}"), map, columns, shapes.len())?);
        }
        anchors.extend(places(number, side, shapes));
        rows += side * side * shapes.len();
        side = side.div_ceil(2);
    }
    let anchors = Tensor::from_slice([rows, 4], &anchors)?;
    let codes = net.concat(&codes, 1);
    let boxes = decode(&mut net, codes, anchors)?;
    let logits = net.concat(&logits, 1);
    let shares = net.g.node("Softmax", &[logits], [("axis", (-1).into())]);
    // The first class is that there is nothing.
    let shares = net.slice(shares, 2, [1, i64::MAX, 1])?;
    let scores = net.transpose(shares, [0, 2, 1]);
    let [boxes, classes, scores] = choose(&mut net, boxes, scores, most)?;
    let found = || Dim::Symbol("detections".into());
    net.g.output("detection_boxes", boxes, f32_type([found(), Dim::Known(4)]));
    net.g.output("detection_classes", classes, f32_type([found()]));
    net.g.output("detection_scores", scores, f32_type([found()]));
    net.g.finish()
}

/// The six maps: the backbone's wide one of a sixteenth of the sides, its last, and smaller ones.
fn maps(net: &mut Layers, x: Value, size: Size) -> Result<Vec<Map>> {
    let c = |n| size.channels(n);
    let mut x = net.active("features.0", x, Conv::new(3, c(32), 3).stride(2), Relu6)?;
    let (mut inputs, mut layer, mut maps) = (32, 1, Vec::new());
    for (expansion, outputs, repeats, stride) in STAGES {
        for repeat in 0..repeats {
            let stride = if repeat == 0 { stride } else { 1 };
            let channels = [c(inputs), expansion * c(inputs), c(outputs)];
            let block = Block { kernel: 3, channels, stride, squeezed: None, activation: Relu6 };
            let [wide, y] = net.inverted(&format!("features.{layer}"), x, block)?;
            if outputs == 160 && repeat == 0 {
                maps.push((wide, channels[1]));
            }
            (x, inputs, layer) = (y, outputs, layer + 1);
        }
    }
    let mut last = c(1280);
    x = net.active("features.18", x, Conv::new(c(320), last, 1), Relu6)?;
    maps.push((x, last));
    for (number, outputs) in EXTRAS.map(c).into_iter().enumerate() {
        let name = format!("extras.{number}");
        let middle = outputs / 2;
        x = net.active(&format!("{name}.0"), x, Conv::new(last, middle, 1), Relu6)?;
        let window = Conv::depthwise(middle, 3).stride(2);
        x = net.active(&format!("{name}.1"), x, window, Relu6)?;
        x = net.active(&format!("{name}.2"), x, Conv::new(middle, outputs, 1), Relu6)?;
        maps.push((x, outputs));
        last = outputs;
    }
    Ok(maps)
}

/// What a map predicts for each of its boxes, `[1, boxes, columns]`.
fn head(
    net: &mut Layers,
    name: &str,
    (x, channels): Map,
    columns: usize,
    shapes: usize,
) -> Result<Value> {
    let y = net.active(&format!("{name}.0"), x, Conv::depthwise(channels, 3), Relu6)?;
    let y = net.conv(&format!("{name}.1"), y, Conv::new(channels, shapes * columns, 1))?;
    let y = net.transpose(y, [0, 2, 3, 1]);
    net.reshape(y, &[0, -1, count(columns)])
}

/// Centre (across, down), width and height of the boxes of a map, of 1.
fn places(number: usize, side: usize, shapes: &[(usize, f32)]) -> Vec<f32> {
    let size = |number: usize| 0.2 + 0.15 * number as f32;
    let (own, next) = (size(number), size(number + 1));
    let mut all = Vec::new();
    for place in 0..side * side {
        let [down, across] = [place / side, place % side].map(|at| (at as f32 + 0.5) / side as f32);
        for &(kind, ratio) in shapes {
            let size = if kind == 1 { own } else { (own * next).sqrt() };
            all.extend([across, down, size * ratio.sqrt(), size / ratio.sqrt()]);
        }
    }
    all
}

/// Corners of the boxes that predictions move and stretch, `[1, boxes, 4]`.
fn decode(net: &mut Layers, codes: Value, anchors: Tensor) -> Result<Value> {
    let anchors = net.g.initializer("anchors", anchors);
    // No box becomes more than sixty times its anchor, as in torchvision.
    let limit = float(&mut net.g, (1000f32 / 16.).ln())?;
    let mut corners = Vec::new();
    for axis in 0..2 {
        let column = |net: &mut Layers, x, at: i64| net.slice(x, -1, [at, at + 1, 1]);
        let (centre, length) = (column(net, anchors, axis)?, column(net, anchors, axis + 2)?);
        let (moved, stretched) = (column(net, codes, axis)?, column(net, codes, axis + 2)?);
        let (offsets, sizes) = (float(&mut net.g, OFFSETS)?, float(&mut net.g, SIZES)?);
        let moved = net.op("Div", &[moved, offsets]);
        let moved = net.op("Mul", &[moved, length]);
        let centre = net.op("Add", &[moved, centre]);
        let stretched = net.op("Div", &[stretched, sizes]);
        let stretched = net.op("Clip", &[stretched, Value::ABSENT, limit]);
        let stretched = net.op("Exp", &[stretched]);
        let length = net.op("Mul", &[stretched, length]);
        let half = float(&mut net.g, 0.5)?;
        let half = net.op("Mul", &[length, half]);
        corners.push([net.op("Sub", &[centre, half]), net.op("Add", &[centre, half])]);
    }
    let [[left, right], [top, bottom]] = [corners[0], corners[1]];
    let boxes = net.concat(&[top, left, bottom, right], -1);
    let (low, high) = (float(&mut net.g, 0.)?, float(&mut net.g, 1.)?);
    Ok(net.op("Clip", &[boxes, low, high]))
}

/// The best boxes of all classes that do not overlap within their class: boxes, classes, scores.
fn choose(net: &mut Layers, boxes: Value, scores: Value, most: i64) -> Result<[Value; 3]> {
    let limit = ints(&mut net.g, &[most])?;
    let (overlap, least) = (float(&mut net.g, OVERLAP)?, float(&mut net.g, LEAST)?);
    let chosen = net.op("NonMaxSuppression", &[boxes, scores, limit, overlap, least]);
    let scores = net.op("GatherND", &[scores, chosen]);
    let shape = net.op("Shape", &[scores]);
    let both = net.concat(&[shape, limit], 0);
    let axis = ints(&mut net.g, &[0])?;
    let count = net.g.node("ReduceMin", &[both, axis], [("keepdims", 1.into())]);
    let [scores, order] =
        net.g.node_with_outputs("TopK", &[scores, count], [("axis", Attr::from(0))]);
    let chosen = net.g.node("Gather", &[chosen, order], [("axis", 0.into())]);
    let columns = ints(&mut net.g, &[1; 3])?;
    let [_, class, at]: [Value; 3] =
        net.g.node_with_outputs("Split", &[chosen, columns], [("axis", 1.into())]);
    let flat = ints(&mut net.g, &[1])?;
    let [class, at] = [class, at].map(|x| net.op("Squeeze", &[x, flat]));
    let one = ints(&mut net.g, &[1])?;
    let class = net.op("Add", &[class, one]);
    // ONNX's number of f32.
    let class = net.g.node("Cast", &[class], [("to", 1.into())]);
    let boxes = net.op("Squeeze", &[boxes, axis]);
    let boxes = net.g.node("Gather", &[boxes, at], [("axis", 0.into())]);
    Ok([boxes, class, scores])
}
