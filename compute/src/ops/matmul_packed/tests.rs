//! Products with packed weights against plain ones.

use super::*;
use crate::ops::{Binary, BinaryKind, MatMul, Unary, UnaryKind};
use crate::testing::{assert_close, fails, noise, run, run_all, t};

fn packed(weight: &Tensor, transposed: bool, fast: bool) -> (MatMulPacked, Tensor) {
    MatMulPacked::pack(&Context::new(1), &weight.view(), transposed, fast).unwrap()
}

#[test]
fn it_is_the_product_and_what_follows() {
    let (a, w) = (noise(&[2, 7, 50], 1), noise(&[50, 70], 2));
    let (bias, residual) = (noise(&[70], 3), noise(&[2, 7, 70], 4));
    let product = run(&MatMul, &[&a, &w]);
    let add = Binary::new(BinaryKind::Add);
    let sum = run(&add, &[&run(&add, &[&product, &bias]), &residual]);
    let want = run(&Unary::new(UnaryKind::Gelu { tanh: false }), &[&sum]);
    for fast in [false, true] {
        let (mut op, words) = packed(&w, false, fast);
        let tolerance = if op.bf16 { 0.1 } else { 1e-5 };
        let plain = run_all(&op, &[Some(&a), Some(&words)]).unwrap();
        assert_close(&plain[0], &product, tolerance);
        op.activation = Activation::Gelu { tanh: false };
        let inputs = [Some(&a), Some(&words), Some(&bias), Some(&residual)];
        assert_close(&run_all(&op, &inputs).unwrap()[0], &want, tolerance);
    }
}

#[test]
fn transposed_weights_and_sizes_of_zero() {
    let w = noise(&[3, 5], 1);
    let (op, words) = packed(&w, true, false);
    let x = noise(&[5], 2);
    let x_data = x.as_slice::<f32>().unwrap();
    let row = |w: &[f32]| w.iter().zip(x_data).map(|(a, b)| a * b).sum();
    let want: Vec<f32> = w.as_slice::<f32>().unwrap().chunks(5).map(row).collect();
    assert_close(&run(&op, &[&x, &words]), &t(&[3], &want), 1e-6);
    for (m, k, n) in [(0, 5, 3), (2, 0, 3), (2, 5, 0)] {
        let (op, words) = packed(&noise(&[k, n], 1), false, false);
        let out = run_all(&op, &[Some(&noise(&[m, k], 2)), Some(&words)]).unwrap();
        // An output without columns has no elements, but still its number of rows.
        assert_eq!(out[0], Tensor::zeros(DType::F32, [m, n]).unwrap());
    }
}

#[test]
fn wrong_operands_are_named() {
    let (op, words) = packed(&noise(&[4, 3], 1), false, false);
    let last = "the last dimension of input 0 is 5, expected 4";
    for (a, message) in [(noise(&[2, 5], 0), last), (noise(&[], 0), "scalar")] {
        assert!(fails(&op, &[&a, &words]).contains(message));
    }
    let a = noise(&[2, 4], 0);
    assert!(fails(&op, &[&a, &noise(&[5], 0)]).contains("the weight is 5, expected 128"));
    assert!(fails(&op, &[&a, &words, &noise(&[2], 0)]).contains("the bias is 2, expected 3"));
    let inputs = [&a, &words, &noise(&[3], 0), &noise(&[1, 3], 0)];
    assert!(fails(&op, &inputs).contains("a dimension of the residual is 1, expected 2"));
    let weight = noise(&[2], 0);
    assert!(MatMulPacked::pack(&Context::new(1), &weight.view(), false, false).is_err());
}
