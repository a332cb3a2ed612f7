//! Channels that repeat are made up for by those that stay.

use super::*;
use crate::compression::observe::work;
use crate::compression::runner::LocalRunner;
use crate::compression::samples::Samples;
use lgp_inference::{GraphBuilder, Session, SessionOptions};
use lgp_memory::{DType, Dim, NamedTensor, SymShape, Tensor, TensorType};
use rand::RngExt;

const WIDTH: usize = 64;

fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..len).map(|_| rng.random::<f32>() * 2. - 1.).collect()
}

/// 6 → 64 → 3 with a Relu between; the second half of the channels repeats the first.
fn repeating(hidden: bool) -> (Model, Samples) {
    let rows = |features: usize| TensorType {
        dtype: DType::F32,
        shape: Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(features)])),
    };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", rows(6));
    let half = random(6 * WIDTH / 2, 1);
    let wide: Vec<f32> =
        (0..6 * WIDTH).map(|at| half[at / WIDTH * WIDTH / 2 + at % (WIDTH / 2)]).collect();
    let wide = g.initializer("wide", Tensor::from_slice([6, WIDTH], &wide).unwrap());
    let mut y = g.node("MatMul", &[x, wide], []);
    if hidden {
        y = g.node("Relu", &[y], []);
        let narrow = Tensor::from_slice([WIDTH, 3], &random(3 * WIDTH, 2)).unwrap();
        let narrow = g.initializer("narrow", narrow);
        y = g.node("MatMul", &[y, narrow], []);
    }
    g.output("y", y, rows(if hidden { 3 } else { WIDTH }));
    let model = g.finish().unwrap();
    let x = Tensor::from_slice([400, 6], &random(400 * 6, 3)).unwrap();
    let samples = Samples::new(&model, vec![vec![NamedTensor::new("x", x)]], None).unwrap();
    (model, samples)
}

fn applied(model: &Model, samples: &Samples, strength: f64) -> Option<Changed> {
    let (work, runner) = (work(), LocalRunner::new("cpu", Vec::new(), work()));
    let scene = Scene { samples, work: &work, runner: &runner };
    let apply = StructuredPruning.prepare(model, &scene).unwrap()?;
    apply(strength).unwrap()
}

/// The root of the mean squared difference, as a share of that of the first model's outputs.
fn difference(a: &Model, b: &Model, samples: &Samples) -> f32 {
    let run = |model: &Model| -> Vec<f32> {
        let session = Session::new(model, SessionOptions::with_threads(1)).unwrap();
        let x = &samples.evaluation.runs[0][0];
        let y = session.run(&[("x", x.tensor.view())]).unwrap().remove(0).tensor;
        y.as_slice::<f32>().unwrap().to_vec()
    };
    let (a, b) = (run(a), run(b));
    let squares: f32 = a.iter().map(|a| a * a).sum();
    let error: f32 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
    (error / squares).sqrt()
}

#[test]
fn kept_weights_make_up_for_channels_that_repeat() {
    let (model, samples) = repeating(true);
    let mut last = usize::MAX;
    for (strength, kept, error_max) in [(0.1, 64, 0.03), (0.25, 48, 0.05), (0.5, 32, 0.3)] {
        let Some(changed) = applied(&model, &samples, strength) else {
            // A tenth is less than the lanes of a vector.
            assert_eq!(kept, 64);
            continue;
        };
        let weights = changed.model.initializers();
        assert_eq!(weights["wide"].shape().dims(), [6, kept], "{:?}", changed.notes);
        assert_eq!(weights["narrow"].shape().dims(), [kept, 3]);
        assert!(changed.model.parameters() < last);
        last = changed.model.parameters();
        let error = difference(&model, &changed.model, &samples);
        // Without the least squares the same channels are removed.
        let (work, runner) = (work(), LocalRunner::new("cpu", Vec::new(), work()));
        let scene = Scene { samples: &samples, work: &work, runner: &runner };
        let pruning = Pruning::new(&model, &scene).unwrap();
        let chosen = pruning.chosen(strength).unwrap();
        let plain = pruning.graph.remove(&model, &samples.shapes(), &chosen).model;
        let plain = difference(&model, &plain, &samples);
        assert!(error < error_max && error < plain / 2., "{strength}: {error} {plain}");
        assert!(changed.notes[0].contains(&format!("{} of 64 channels", 64 - kept)));
    }
}

#[test]
fn a_model_of_inputs_and_outputs_has_nothing_to_remove() {
    let (model, samples) = repeating(false);
    assert!(applied(&model, &samples, 0.5).is_none());
}
