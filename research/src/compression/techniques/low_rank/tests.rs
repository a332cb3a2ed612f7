//! Rewritten layers against the layers that they stand for, and planted factors.

use super::factors::{Factors, Spectrum};
use super::*;
use crate::compression::decompose::{ConvFactors, channel_svd, conv_tucker2, spatial_svd};
use crate::compression::observe::work;
use crate::compression::runner::Runner;
use crate::compression::samples::{RunInputs, Samples};
use lgp_inference::{Attr, GraphBuilder, Session, SessionOptions};
use lgp_memory::{DType, Dim, NamedTensor, Shape, SymShape, Tensor, TensorType};
use ndarray::{Array2, Array4};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A device on which every changed model takes this many times the original's time.
struct Times(f64);

impl Runner for Times {
    fn device(&self) -> String {
        "times".into()
    }

    fn outputs(&self, _: &Model, _: &[RunInputs]) -> Result<Vec<Vec<NamedTensor>>> {
        Ok(Vec::new())
    }

    fn latencies(&self, models: &[&Model], _: &RunInputs) -> Result<Vec<LatencyMs>> {
        let time = |at| if at == 0 { 1. } else { self.0 };
        Ok((0..models.len()).map(|at| LatencyMs::of(vec![time(at)])).collect())
    }

    fn memory_bytes(&self, _: &Model, _: &RunInputs) -> Result<u64> {
        Ok(0)
    }
}

fn random(rows: usize, columns: usize, seed: u64) -> Array2<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
}

fn numbers(shape: &[usize], seed: u64) -> Tensor {
    tensor(shape, &random(1, shape.iter().product(), seed))
}

fn tensor(shape: &[usize], values: &Array2<f32>) -> Tensor {
    let values: Vec<f32> = values.iter().copied().collect();
    Tensor::from_slice(shape.to_vec(), &values).unwrap()
}

/// A node with its weight and, where it has one, its bias; the first axis of x is a symbol.
struct Case {
    op: &'static str,
    x: &'static [usize],
    weight: Tensor,
    bias: bool,
    attributes: Vec<(&'static str, Attr)>,
}

impl Case {
    fn new(op: &'static str, x: &'static [usize], weight: Tensor) -> Self {
        Self { op, x, weight, bias: false, attributes: Vec::new() }
    }

    fn with(mut self, attributes: &[(&'static str, Attr)]) -> Self {
        self.attributes.extend_from_slice(attributes);
        self.bias = true;
        self
    }

    fn model(&self) -> Model {
        let rest = self.x[1..].iter().map(|&dim| Dim::Known(dim));
        let shape = SymShape([Dim::Symbol("n".into())].into_iter().chain(rest).collect());
        let mut g = GraphBuilder::new("g");
        let x = g.input("x", TensorType { dtype: DType::F32, shape: Some(shape) });
        let mut inputs = vec![x, g.initializer("w", self.weight.clone())];
        if self.bias {
            let dims = self.weight.shape().dims();
            let transposed = self.attributes.iter().any(|(name, _)| *name == "transB");
            let n = if self.op == "Conv" || transposed { dims[0] } else { dims[1] };
            inputs.push(g.initializer("b", numbers(&[n], 5)));
        }
        let y = g.node(self.op, &inputs, self.attributes.clone());
        g.output("y", y, TensorType { dtype: DType::F32, shape: None });
        g.finish().unwrap()
    }

    fn sites(&self, model: &Model) -> (Vec<Site>, Structure) {
        let structure = model.structure(&[("x", Shape::from(self.x.to_vec()))]).unwrap();
        (sites(model, &structure), structure)
    }
}

fn output(model: &Model, x: &Tensor) -> Vec<f32> {
    let session = Session::new(model, SessionOptions::with_threads(1)).unwrap();
    let y = session.run(&[("x", x.view())]).unwrap().remove(0).tensor;
    y.as_slice::<f32>().unwrap().to_vec()
}

/// The relative error of one model's outputs.
fn distance(model: &Model, other: &Model, x: &Tensor) -> f64 {
    let (a, b) = (output(model, x), output(other, x));
    assert_eq!(a.len(), b.len());
    let square = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|value| f64::from(value).powi(2)).sum()
    };
    let error = square(&mut a.iter().zip(&b).map(|(a, b)| a - b));
    (error / square(&mut a.iter().copied())).sqrt()
}

fn parameters(model: &Model) -> usize {
    model.initializers().values().map(|tensor| tensor.shape().elements().unwrap()).sum()
}

fn applied(model: &Model, x: Tensor, strength: f64, times: f64) -> Option<Changed> {
    let runs = vec![vec![NamedTensor::new("x", x)]];
    let samples = Samples::new(model, runs, None).unwrap();
    let scene = Scene { samples: &samples, work: &work(), runner: &Times(times) };
    LowRank.prepare(model, &scene).unwrap()?(strength).unwrap()
}

/// The chains of a kernel, of full and of lower ranks.
fn chains(matrix: &Array2<f32>, shape: [usize; 4]) -> Vec<(ConvFactors, bool)> {
    let kernel = Array4::from_shape_vec(shape, matrix.iter().copied().collect()).unwrap();
    let [n, c, h, w] = shape;
    let mut chains = Vec::new();
    for (full, share) in [(true, 1), (false, 2)] {
        let rank = (c * h).min(n * w) / share;
        chains.push((spatial_svd(kernel.view(), 1, rank).unwrap(), full));
        chains.push((channel_svd(kernel.view(), 1, n.min(c * h * w) / share).unwrap(), full));
        // Neither rank may be above the other's times the taps.
        let (outer, inner) = (n.min(c * h * w) / share, c.min(n * h * w) / share);
        chains.push((conv_tucker2(kernel.view(), 1, outer, inner).unwrap(), full));
    }
    chains
}

// A chain of convolutions is a convolution with the kernel that the factors multiply to, and with
// full ranks that is the layer's own.
#[test]
fn rewritten_convolutions_have_the_recomposed_kernels_outputs() {
    let pads = |all: &[i64]| ("pads", Attr::from(all.to_vec()));
    let ints = |name, values: [i64; 2]| (name, Attr::from(values));
    let square = || Case::new("Conv", &[2, 4, 9, 8], numbers(&[6, 4, 3, 3], 1));
    let cases = [
        square(),
        square().with(&[pads(&[1, 1, 1, 1]), ints("kernel_shape", [3, 3])]),
        square().with(&[pads(&[0, 2, 1, 0]), ints("strides", [2, 1])]),
        square().with(&[pads(&[2, 1, 2, 1]), ints("dilations", [2, 1]), ints("strides", [1, 2])]),
        square().with(&[("auto_pad", "SAME_UPPER".into()), ints("strides", [2, 3])]),
        Case::new("Conv", &[2, 4, 9, 8], numbers(&[6, 4, 5, 2], 2)).with(&[pads(&[2, 1, 2, 0])]),
        Case::new("Conv", &[2, 6, 5, 4], numbers(&[4, 6, 1, 1], 3))
            .with(&[ints("strides", [2, 1])]),
        Case::new("Conv", &[2, 4, 9], numbers(&[6, 4, 3], 4)).with(&[
            pads(&[2, 1]),
            ("strides", vec![2].into()),
            ("dilations", vec![2].into()),
        ]),
    ];
    for (at, case) in cases.iter().enumerate() {
        let (model, x) = (case.model(), numbers(case.x, 7));
        let (found, structure) = case.sites(&model);
        let site = &found[0];
        let layer = layer(&model, &structure, site).unwrap().unwrap();
        let matrix = site.matrix(&case.weight).unwrap();
        let size = |axis: usize| site.shape.get(axis).copied().unwrap_or(1);
        for (chain, full) in chains(&matrix, [size(0), size(1), size(2), size(3)]) {
            let kernel: Vec<f32> = chain.recompose().unwrap().iter().copied().collect();
            let weight = Tensor::from_slice(site.shape.clone(), &kernel).unwrap();
            let dense = Case { weight, attributes: case.attributes.clone(), ..*case }.model();
            let factors = Factors { kind: "", chain };
            let changed = written(&model, &[Change { site, layer, factors: &factors }]).unwrap();
            assert!(changed.nodes().len() > 1);
            let found = distance(&dense, &changed, &x);
            assert!(found < 1e-5, "case {at}: {found} from the recomposed kernel");
            let found = distance(&model, &changed, &x);
            assert!(!full || found < 1e-4, "case {at}: {found} at full rank");
            let bytes = changed.to_onnx().unwrap();
            let read = Model::from_bytes(&bytes, None).unwrap();
            assert!(distance(&changed, &read, &x) == 0., "case {at}: the file");
        }
    }
}

// W = U·Σ·Vᵀ with all singular values is W, in every layout of a stored matrix.
#[test]
fn rewritten_products_have_the_same_outputs_at_full_rank() {
    let cases = [
        Case::new("MatMul", &[2, 3, 8], numbers(&[8, 5], 1)),
        Case::new("MatMul", &[2, 8], numbers(&[8, 11], 2)),
        Case::new("Gemm", &[3, 8], numbers(&[5, 8], 3)).with(&[("transB", 1.into())]),
        Case::new("Gemm", &[3, 8], numbers(&[8, 5], 4)).with(&[]),
    ];
    for (at, case) in cases.iter().enumerate() {
        let (model, x) = (case.model(), numbers(case.x, 7));
        let (found, structure) = case.sites(&model);
        let site = &found[0];
        let layer = layer(&model, &structure, site).unwrap().unwrap();
        assert_eq!(layer, Layer::Product);
        let matrix = site.matrix(&case.weight).unwrap();
        let (n, k) = matrix.dim();
        let spectrum = Spectrum::new(&matrix, &Array2::eye(k)).unwrap();
        let factors = Factors { kind: "", chain: spectrum.channels([n, k, 1, 1], n.min(k)) };
        let changed = written(&model, &[Change { site, layer, factors: &factors }]).unwrap();
        assert_eq!(changed.nodes().len(), 2, "case {at}");
        let found = distance(&model, &changed, &x);
        assert!(found < 1e-5, "case {at}: {found}");
    }
}

/// A kernel [n, c, 3, 3] that is one of the factorisations of rank 8.
fn planted(kind: &str, n: usize, c: usize) -> Tensor {
    let (a, b) = (random(n * 9, 8, 11), random(8, c * 9, 12));
    let (core, input) = (random(8, 8 * 9, 13), random(8, c, 14));
    let value = |o: usize, i: usize, h: usize, w: usize| -> f32 {
        let terms = (0..8).map(|r| match kind {
            "spatial SVD" => a[[o * 3 + w, r]] * b[[r, i * 3 + h]],
            "channel SVD" => a[[o, r]] * b[[r, (i * 3 + h) * 3 + w]],
            _ => {
                let inner = |s| core[[r, (s * 3 + h) * 3 + w]] * input[[s, i]];
                a[[o, r]] * (0..8).map(inner).sum::<f32>()
            }
        });
        terms.sum()
    };
    let kernel = Array4::from_shape_fn((n, c, 3, 3), |(o, i, h, w)| value(o, i, h, w));
    Tensor::from_slice([n, c, 3, 3], &kernel.iter().copied().collect::<Vec<_>>()).unwrap()
}

#[test]
fn planted_factors_are_found() {
    let low = random(48, 8, 8).dot(&random(8, 40, 9));
    // Counts by hand: 8·(48 + 40); 8·3·(24 + 24); 8·24·9 + 8·24; 8·24 + 8·8·9 + 8·24.
    let same = [("pads", Attr::from([1, 1, 1, 1]))];
    let conv = |kind| Case::new("Conv", &[8, 24, 6, 6], planted(kind, 24, 24)).with(&same);
    let cases = [
        ("SVD", Case::new("MatMul", &[64, 48], tensor(&[48, 40], &low)), 704),
        ("spatial SVD", conv("spatial SVD"), 1152 + 24),
        ("channel SVD", conv("channel SVD"), 1920 + 24),
        ("Tucker-2", conv("Tucker-2"), 960 + 24),
    ];
    for (kind, case, count) in cases {
        let (model, x) = (case.model(), numbers(case.x, 7));
        let changed = applied(&model, x.clone(), 0.02, 1.).unwrap();
        assert!(changed.notes[0].contains(&format!("1 by {kind})")), "{:?}", changed.notes);
        assert_eq!(parameters(&changed.model), count, "{kind}");
        let found = distance(&model, &changed.model, &x);
        assert!(found < 1e-3, "{kind}: {found}");
    }
}

// A random matrix has no low rank, yet over inputs of few directions its outputs have (SVD-LLM
// 2024), if there are enough of them to know the directions (OAS 2010).
#[test]
fn the_ranks_follow_the_inputs() {
    let narrow = |rows: usize| random(rows, 8, 2).dot(&random(8, 48, 3));
    let model = Case::new("MatMul", &[64, 48], numbers(&[48, 48], 1)).model();
    let ranks = |x: &Array2<f32>| {
        let x = tensor(&[x.nrows(), 48], x);
        let changed = applied(&model, x.clone(), 0.2, 1.)?;
        let found = distance(&model, &changed.model, &x);
        assert!(found < 0.2, "{found}");
        Some(parameters(&changed.model) / 96)
    };
    assert_eq!(ranks(&narrow(1024)), Some(8));
    assert_eq!(ranks(&random(1024, 48, 4)), None, "many directions");
    assert_eq!(ranks(&narrow(8)), None, "few samples");
}

#[test]
fn what_does_not_pay_is_left_alone() {
    let low = || tensor(&[48, 40], &random(48, 8, 8).dot(&random(8, 40, 9)));
    let x = || numbers(&[64, 48], 7);
    let low_rank = Case::new("MatMul", &[64, 48], low()).model();
    assert!(applied(&low_rank, x(), 0.1, 1.02).is_some());
    assert!(applied(&low_rank, x(), 0.1, 1.05).is_none(), "slower");
    let dense = Case::new("MatMul", &[64, 48], numbers(&[48, 40], 1)).model();
    assert!(applied(&dense, x(), 0.1, 0.5).is_none(), "of full rank");
    let small = Case::new("MatMul", &[64, 8], numbers(&[8, 8], 1)).model();
    assert!(applied(&small, numbers(&[64, 8], 7), 0.4, 0.5).is_none(), "too small");
    // A weight that two nodes read would be stored beside its factors.
    let mut parts = low_rank.into_parts();
    let mut twin = parts.nodes[0].clone();
    (twin.name, twin.outputs) = ("twin".into(), vec!["z".into()]);
    parts.nodes.push(twin);
    let mut spec = parts.outputs[0].clone();
    spec.name = "z".into();
    parts.outputs.push(spec);
    assert!(applied(&parts.finish().unwrap(), x(), 0.1, 1.).is_none(), "shared");
    let depthwise = Case::new("Conv", &[8, 24, 6, 6], numbers(&[24, 1, 3, 3], 1));
    let depthwise = depthwise.with(&[("group", 24.into())]).model();
    assert!(applied(&depthwise, numbers(&[8, 24, 6, 6], 7), 0.4, 1.).is_none(), "grouped");
    let transposed = Case::new("ConvTranspose", &[8, 24, 6, 6], planted("channel SVD", 24, 24));
    assert!(applied(&transposed.model(), numbers(&[8, 24, 6, 6], 7), 0.4, 1.).is_none());
}
