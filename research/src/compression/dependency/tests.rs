//! Channels whose weights are zero leave the outputs of every kind of model unchanged.

mod models;

use super::*;
use lgp_inference::{Attr, Session, SessionOptions, Value};
use lgp_memory::{DType, Shape, Tensor};
use models::*;

fn shapes(model: &Model) -> Vec<(&str, Shape)> {
    let concrete = |spec: &lgp_inference::ValueSpec| spec.ty.concrete_shape().unwrap();
    model.inputs().iter().map(|spec| (spec.name.as_str(), concrete(spec))).collect()
}

fn run(model: &Model) -> Tensor {
    let session = Session::new(model, SessionOptions::with_threads(1)).unwrap();
    let x = numbers(shapes(model)[0].1.dims(), 50);
    session.run(&[("x", x.view())]).unwrap().remove(0).tensor
}

/// The model with zeros at every position of the chosen channels.
fn zeroed(model: &Model, graph: &DependencyGraph<'_>, chosen: &[Vec<usize>]) -> Model {
    let mut parts = model.clone().into_parts();
    for (group, channels) in graph.groups().iter().zip(chosen) {
        for unit in channels.iter().flat_map(|&channel| &group.channels[channel]) {
            let Some(tensor) = parts.initializers.get_mut(graph.name(unit.value)) else {
                continue;
            };
            let dims = tensor.shape().dims().to_vec();
            let inner: usize = dims[unit.axis + 1..].iter().product();
            let values = tensor.as_mut_slice::<f32>().unwrap();
            for block in values.chunks_exact_mut(dims[unit.axis] * inner) {
                block[unit.position * inner..][..inner].fill(0.);
            }
        }
    }
    parts.finish().unwrap()
}

/// A model, and the numbers of channels of its groups.
type Case = (&'static str, fn() -> Model, &'static [usize]);

#[test]
fn channels_of_zeros_do_not_count() {
    let cases: [Case; 8] = [
        ("chain", chain, &[8]),
        ("residual", residual, &[6, 4]),
        ("depthwise", depthwise, &[8]),
        ("flatten", flattened, &[5, 7]),
        ("concat", concat, &[4, 6]),
        ("gated", gated, &[6]),
        ("attention", attention, &[4]),
        ("computed shape", computed_shape, &[4]),
    ];
    for (name, build, sizes) in cases {
        let model = build();
        let structure = model.structure(&shapes(&model)).unwrap();
        let graph = DependencyGraph::new(&model, structure);
        let found: Vec<usize> = graph.groups().iter().map(|group| group.channels.len()).collect();
        assert_eq!(found, sizes, "{name}: {:?}", graph.kept());
        let some = |from: usize| -> Vec<Vec<usize>> {
            sizes.iter().map(|&n| (from..n).step_by(2).filter(|c| *c < n - 1).collect()).collect()
        };
        for chosen in [some(0), some(1)] {
            let zeroed = zeroed(&model, &graph, &chosen);
            let removed = graph.remove(&zeroed, &shapes(&model), &chosen);
            assert_eq!(removed.refused, [], "{name}");
            assert!(removed.model.parameters() < model.parameters(), "{name}");
            let (wanted, found) = (run(&zeroed), run(&removed.model));
            assert_eq!(wanted.shape(), found.shape(), "{name}");
            let (wanted, found) =
                (wanted.as_slice::<f32>().unwrap(), found.as_slice::<f32>().unwrap());
            assert!(wanted.iter().any(|value| value.abs() > 1e-3), "{name}");
            for (wanted, found) in wanted.iter().zip(found) {
                assert!((wanted - found).abs() < 1e-5, "{name}: {wanted} {found}");
            }
            // The channels count where they are not zero.
            let original = run(&model);
            let original = original.as_slice::<f32>().unwrap();
            assert!(original.iter().zip(wanted).any(|(a, b)| (a - b).abs() > 1e-3), "{name}");
        }
    }
}

#[test]
fn axes_that_must_stay_are_named() {
    // Dense layers around an operator that needs all features.
    let softmax = |axis: i64| {
        let (mut b, x) = Build::new(&[2, 5]);
        let y = b.dense(x, &[5, 6]);
        let y = b.node("Softmax", &[y], vec![("axis", axis.into())]);
        let y = b.dense(y, &[6, 3]);
        b.finish(y)
    };
    let norm = {
        let (mut b, x) = Build::new(&[2, 5]);
        let y = b.dense(x, &[5, 6]);
        let (scale, shift) = (b.stored(&[6]), b.stored(&[6]));
        let y = b.node("LayerNormalization", &[y, scale, shift], vec![]);
        let y = b.dense(y, &[6, 3]);
        b.finish(y)
    };
    let mean = {
        let (mut b, x) = Build::new(&[2, 5]);
        let y = b.dense(x, &[5, 6]);
        let axes = b.ints(&[1]);
        let y = b.node("ReduceMean", &[y, axes], vec![]);
        b.finish(y)
    };
    let grouped = {
        let (mut b, x) = Build::new(&[1, 3, 4, 4]);
        let y = b.conv(x, &[6, 3, 1, 1], 1);
        let y = b.conv(y, &[4, 3, 1, 1], 2);
        b.finish(y)
    };
    let direct = {
        let (mut b, x) = Build::new(&[2, 5]);
        let y = b.dense(x, &[5, 6]);
        b.finish(y)
    };
    let cases = [
        (softmax(1), "Softmax needs all positions"),
        (norm, "LayerNormalization needs all positions"),
        (mean, "ReduceMean needs all positions"),
        (grouped, "Conv states nothing"),
        (direct, "the model's inputs and outputs"),
    ];
    for (model, reason) in cases {
        let structure = model.structure(&shapes(&model)).unwrap();
        let graph = DependencyGraph::new(&model, structure);
        assert_eq!(graph.groups(), [], "{reason}");
        assert!(graph.kept().iter().any(|it| it.contains(reason)), "{:?}", graph.kept());
    }
    let model = softmax(0);
    let structure = model.structure(&shapes(&model)).unwrap();
    assert_eq!(DependencyGraph::new(&model, structure).groups().len(), 1);
}

/// A slice by stored numbers would take other channels after a removal.
#[test]
fn what_cannot_be_mended_is_refused() {
    let (mut b, x) = Build::new(&[2, 5]);
    let y = b.dense(x, &[5, 9]);
    let [start, end, axis] = [3, 7, 1].map(|value| b.ints(&[value]));
    let y = b.node("Slice", &[y, start, end, axis], vec![]);
    let y = b.dense(y, &[4, 3]);
    let other = b.dense(x, &[5, 4]);
    let other = b.node("Relu", &[other], vec![]);
    let other = b.dense(other, &[4, 3]);
    let y = b.node("Add", &[y, other], vec![]);
    let model = b.finish(y);
    let structure = model.structure(&shapes(&model)).unwrap();
    let graph = DependencyGraph::new(&model, structure);
    let sizes: Vec<usize> = graph.groups().iter().map(|group| group.channels.len()).collect();
    // The channels outside of the slice, those inside, and those of the other branch.
    assert_eq!(sizes, [5, 4, 4]);
    let removed = graph.remove(&model, &shapes(&model), &[vec![0], vec![], vec![1]]);
    assert_eq!(removed.refused.len(), 1);
    assert_eq!((removed.refused[0].0, removed.model.parameters()), (0, model.parameters() - 9));
    run(&removed.model);
}

/// Torch-Pruning's ResNet-18 at a ratio of 0.5: parameters 11,689,512 → 3,055,880.
#[test]
fn resnet18_loses_half_of_its_channels() {
    let (mut b, x) = Build::new(&[1, 3, 32, 32]);
    let conv = |b: &mut Build, x: Value, [n, k, size, stride]: [usize; 4]| {
        b.stored += 1;
        let w = Tensor::zeros(DType::F32, [n, k, size, size]).unwrap();
        let w = b.g.initializer(format!("w{}", b.stored), w);
        let pads = Attr::Ints(vec![(size as i64 - 1) / 2; 4]);
        let strides = Attr::Ints(vec![stride as i64; 2]);
        let y = b.node("Conv", &[x, w], vec![("pads", pads), ("strides", strides)]);
        b.norm(y, n)
    };
    let y = conv(&mut b, x, [64, 3, 7, 2]);
    let y = b.node("Relu", &[y], vec![]);
    let pool = vec![
        ("kernel_shape", [3, 3].into()),
        ("strides", [2, 2].into()),
        ("pads", [1, 1, 1, 1].into()),
    ];
    let mut y = b.node("MaxPool", &[y], pool);
    let mut width = 64;
    for n in [64, 64, 128, 128, 256, 256, 512, 512] {
        let stride = if n == width { 1 } else { 2 };
        let inner = conv(&mut b, y, [n, width, 3, stride]);
        let inner = b.node("Relu", &[inner], vec![]);
        let inner = conv(&mut b, inner, [n, n, 3, 1]);
        let around = if n == width { y } else { conv(&mut b, y, [n, width, 1, stride]) };
        let sum = b.node("Add", &[inner, around], vec![]);
        y = b.node("Relu", &[sum], vec![]);
        width = n;
    }
    let y = b.node("GlobalAveragePool", &[y], vec![]);
    let y = b.node("Flatten", &[y], vec![]);
    let y = b.dense(y, &[512, 1000]);
    let model = b.finish(y);
    // Means and variances are stored, but no parameters: two of four vectors of each norm.
    let channels = |model: &Model| -> usize {
        let norms = model.nodes().iter().filter(|node| node.op_type == "BatchNormalization");
        norms.map(|node| model.initializers()[&node.inputs[1]].len()).sum()
    };
    let parameters = |model: &Model| model.parameters() - 2 * channels(model);
    assert_eq!(parameters(&model), 11_689_512);
    let structure = model.structure(&shapes(&model)).unwrap();
    let graph = DependencyGraph::new(&model, structure);
    let chosen: Vec<Vec<usize>> =
        graph.groups().iter().map(|group| (0..group.channels.len() / 2).collect()).collect();
    assert_eq!(chosen.len(), 12);
    let removed = graph.remove(&model, &shapes(&model), &chosen);
    assert_eq!(removed.refused, []);
    assert_eq!(parameters(&removed.model), 3_055_880);
}
