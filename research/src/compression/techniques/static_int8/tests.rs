//! Which values are rounded, how weights and biases are stored, and what is left out.

use super::*;
use crate::compression::observe::work;
use crate::compression::runner::LocalRunner;
use crate::compression::samples::Samples;
use lgp_inference::{Attr, GraphBuilder};
use lgp_memory::{Dim, NamedTensor, SymShape, TensorType};

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let len = shape.iter().product::<usize>();
    let value = |i: usize| ((i * 37 + seed * 11) % 23) as f32 / 7. - 1.5;
    Tensor::from_slice(shape.to_vec(), &(0..len).map(value).collect::<Vec<_>>()).unwrap()
}

/// conv, relu, conv, sum with the first relu, flatten, gemm.
fn model(opset: i64) -> Model {
    let dims = vec![Dim::Symbol("n".into()), Dim::Known(4), Dim::Known(6), Dim::Known(6)];
    let ty = TensorType { dtype: DType::F32, shape: Some(SymShape(dims)) };
    let mut g = GraphBuilder::new("g").with_opset(opset);
    let x = g.input("x", ty);
    let pads = || [("pads", Attr::from([1, 1, 1, 1]))];
    let w = g.initializer("w0", numbers(&[8, 4, 3, 3], 1));
    let b = g.initializer("b0", numbers(&[8], 2));
    let a = g.node("Conv", &[x, w, b], pads());
    let a = g.node("Relu", &[a], []);
    let w = g.initializer("w1", numbers(&[8, 8, 3, 3], 3));
    let c = g.node("Conv", &[a, w], pads());
    let c = g.node("Add", &[c, a], []);
    let c = g.node("Flatten", &[c], []);
    let w = g.initializer("w2", numbers(&[10, 288], 4));
    let y = g.node("Gemm", &[c, w], [("transB", 1.into())]);
    g.output("y", y, TensorType { dtype: DType::F32, shape: None });
    g.finish().unwrap()
}

fn samples(model: &Model) -> Samples {
    let runs = vec![vec![NamedTensor::new("x", numbers(&[4, 4, 6, 6], 5))]];
    Samples::new(model, runs, None).unwrap()
}

fn changed(model: &Model, share: f64) -> Option<Changed> {
    let samples = samples(model);
    let (work, runner) = (work(), LocalRunner::new("cpu", Vec::new(), work()));
    let scene = Scene { samples: &samples, work: &work, runner: &runner };
    let apply = StaticInt8.prepare(model, &scene).unwrap()?;
    apply(share).unwrap()
}

fn count(model: &Model, op: &str) -> usize {
    model.operator_counts().get(op).copied().unwrap_or(0)
}

#[test]
fn values_between_products_are_rounded_once() {
    let model = model(18);
    let Changed { model: int8, notes } = changed(&model, 1.).unwrap();
    assert_eq!(notes[0], "3 of 3 products are on bytes");
    // The input, the relu, the second convolution, the sum and the flat sum: not the first
    // convolution, whose relu limits it in the same kernel, and not the model's output.
    assert_eq!(count(&int8, "QuantizeLinear"), 5);
    // Those, three weights and one bias.
    assert_eq!(count(&int8, "DequantizeLinear"), 9);
    let bias = &int8.initializers()["b0.codes"];
    assert_eq!((bias.dtype(), bias.len()), (DType::I32, 8));
    assert!(!int8.initializers().contains_key("b0"));
}

/// `u8 · i8 + u8 · i8` never passes 16 bits: see the comment at `rounded`.
#[test]
fn no_pair_of_a_row_can_saturate() {
    for (first, second) in [(1., 1.), (1., 0.5), (1., 0.01), (3e-39, 0.), (0., 0.)] {
        let row = Array2::from_shape_vec((1, 4), vec![first, -second, second, 0.]).unwrap();
        let rounded = rounded(&model(18), row.clone()).unwrap();
        let mut sizes: Vec<u8> = rounded.codes().iter().map(|code| code.abs_diff(128)).collect();
        sizes.sort_unstable();
        assert!(u32::from(sizes[3]) + u32::from(sizes[2]) <= 128, "{sizes:?}");
        let error = rounded.error(row.view()).unwrap().sqrt();
        assert!(error <= f64::from(rounded.scales()[0]), "{error}");
    }
}

#[test]
fn the_products_that_lose_most_for_their_work_are_left_out() {
    let loss =
        |operator, output_error, multiply_adds| Loss { operator, output_error, multiply_adds };
    let losses = [loss(0, 0.1, 10.), loss(1, 0.9, 10.), loss(2, 0.2, 80.)];
    assert_eq!(left_out(&losses, 1.), [].into());
    assert_eq!(left_out(&losses, 0.9), [1].into());
    assert_eq!(left_out(&losses, 0.8), [1, 0].into());
    let model = model(18);
    let Changed { model: mixed, notes } = changed(&model, 0.5).unwrap();
    assert_eq!(notes[0], "1 of 3 products are on bytes");
    assert!(mixed.initializers().contains_key("w0") || mixed.initializers().contains_key("w1"));
}

#[test]
fn older_operator_sets_have_one_scale_and_the_oldest_none() {
    let old = changed(&model(11), 1.).unwrap().model;
    assert_eq!(old.initializers()["w0.scale"].len(), 1);
    assert!(changed(&model(9), 1.).is_none());
}
