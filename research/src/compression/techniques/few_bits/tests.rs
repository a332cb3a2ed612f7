//! Which form a weight gets, and what a budget chooses.

use super::*;
use crate::compression::observe::work;
use crate::compression::runner::LocalRunner;
use crate::compression::samples::Samples;
use lgp_inference::{GraphBuilder, Session, SessionOptions};
use lgp_memory::{Dim, NamedTensor, SymShape, TensorType};

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let len = shape.iter().product::<usize>();
    let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.;
    Tensor::from_slice(shape.to_vec(), &(0..len).map(value).collect::<Vec<_>>()).unwrap()
}

/// A product of matrices, one with a bias, and one with a factor.
fn model() -> Model {
    let dims = vec![Dim::Symbol("n".into()), Dim::Known(64)];
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty);
    let w = g.initializer("plain", numbers(&[64, 48], 1));
    let y = g.node("MatMul", &[x, w], []);
    let w = g.initializer("biased", numbers(&[40, 48], 2));
    let b = g.initializer("b", numbers(&[40], 3));
    let y = g.node("Gemm", &[y, w, b], [("transB", 1.into())]);
    let w = g.initializer("scaled", numbers(&[40, 8], 4));
    let y = g.node("Gemm", &[y, w], [("alpha", 0.5f32.into())]);
    g.output("y", y, TensorType { dtype: DType::F32, shape: None });
    g.finish().unwrap()
}

fn changed(model: &Model, strength: f64) -> Option<Changed> {
    let runs = vec![vec![NamedTensor::new("x", numbers(&[64, 64], 5))]];
    let samples = Samples::new(model, runs, None).unwrap();
    let (work, runner) = (work(), LocalRunner::new("cpu", Vec::new(), work()));
    let scene = Scene { samples: &samples, work: &work, runner: &runner };
    let apply = FewBits.prepare(model, &scene).unwrap()?;
    apply(strength).unwrap()
}

fn run(model: &Model) -> Vec<f32> {
    let session = Session::new(model, SessionOptions::with_threads(1)).unwrap();
    let x = numbers(&[3, 64], 9);
    session.run(&[("x", x.view())]).unwrap()[0].tensor.as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn a_plain_product_is_packed_and_others_are_dequantised() {
    let model = model();
    let eight = changed(&model, -9.).unwrap().model;
    let counts = eight.operator_counts();
    // The factor of the last product is not part of `x · W`.
    assert_eq!((counts["MatMulNBits"], counts["Gemm"]), (2, 1));
    assert_eq!(counts["DequantizeLinear"], 1);
    let (wanted, found) = (run(&model), run(&eight));
    let norm = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>().sqrt();
    let apart: Vec<f32> = wanted.iter().zip(&found).map(|(a, b)| a - b).collect();
    assert!(norm(&apart) < 0.01 * norm(&wanted), "{} of {}", norm(&apart), norm(&wanted));
}

#[test]
fn fewer_bits_take_fewer_bytes_and_lose_more() {
    let model = model();
    let wanted = run(&model);
    let measure = |strength: f64| {
        let few = changed(&model, strength).unwrap().model;
        let found = run(&few);
        let error: f32 = wanted.iter().zip(&found).map(|(a, b)| (a - b).powi(2)).sum();
        let stored: usize = few.initializers().values().map(|t| t.packed_len()).sum();
        (stored, error)
    };
    let measured = [-9., -5.25, -3.25].map(measure);
    for pair in measured.windows(2) {
        assert!(pair[1].0 < pair[0].0 && pair[1].1 > pair[0].1, "{measured:?}");
    }
}

#[test]
fn a_weight_that_two_nodes_read_keeps_its_place() {
    let ty = TensorType {
        dtype: DType::F32,
        shape: Some(SymShape(vec![Dim::Symbol("n".into()), Dim::Known(64)])),
    };
    let mut g = GraphBuilder::new("g");
    let x = g.input("x", ty);
    let w = g.initializer("w", numbers(&[64, 64], 1));
    let y = g.node("MatMul", &[x, w], []);
    let y = g.node("MatMul", &[y, w], []);
    g.output("y", y, TensorType { dtype: DType::F32, shape: None });
    let few = changed(&g.finish().unwrap(), -9.).unwrap().model;
    assert_eq!(few.operator_counts(), [("DequantizeLinear", 1), ("MatMul", 2)].into());
}
