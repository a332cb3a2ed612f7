//! Gemm: transposes, scales and the addend's broadcasting.

use crate::ops::Gemm;
use crate::testing::{assert_close, fails, infers, info, noise, run, t};
use lgp_memory::Tensor;
use proptest::prelude::*;

fn flip(x: &Tensor) -> Tensor {
    run(&crate::ops::Transpose::default(), &[x])
}

proptest! {
    /// A transposed operand in the other memory order gives the same product.
    #[test]
    fn transposes_agree(m in 1usize..20, n in 1usize..20, k in 1usize..20, seed: u64) {
        let (a, b) = (noise(&[m, k], seed), noise(&[k, n], seed ^ 1));
        let want = run(&crate::ops::MatMul, &[&a, &b]);
        for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let op = Gemm { trans_a, trans_b, ..Gemm::default() };
            let (a, b) = (if trans_a { flip(&a) } else { a.clone() }, if trans_b { flip(&b) } else { b.clone() });
            assert_close(&run(&op, &[&a, &b]), &want, 1e-5);
        }
    }
}

#[test]
fn addends_broadcast_and_scale() {
    let (a, b) = (t(&[2, 1], &[1f32, 2.]), t(&[1, 2], &[10f32, 20.]));
    let op = Gemm { alpha: 2., beta: 0.5, ..Gemm::default() };
    for (c, out) in [
        (t(&[2], &[2f32, 4.]), [21f32, 42., 41., 82.]),
        (t(&[2, 1], &[2f32, 4.]), [21., 41., 42., 82.]),
        (t(&[], &[2f32]), [21., 41., 41., 81.]),
        (t(&[2, 2], &[2f32, 4., 6., 8.]), [21., 42., 43., 84.]),
    ] {
        assert_close(&run(&op, &[&a, &b, &c]), &t(&[2, 2], &out), 0.);
    }
    assert_close(&run(&op, &[&a, &b]), &t(&[2, 2], &[20f32, 40., 40., 80.]), 0.);
}

#[test]
fn bad_inputs_are_errors() {
    let (a, b) = (noise(&[2, 3], 0), noise(&[3, 4], 0));
    for (inputs, message) in [
        (vec![&a, &a], "Gemm: the inner dimension of input 1 is 2, expected 3"),
        (vec![&a], "Gemm: 1 inputs given, expected 2 to 3"),
    ] {
        assert_eq!(fails(&Gemm::default(), &inputs), message);
    }
    for c in [vec![3], vec![4, 1], vec![1, 2, 4]] {
        let message = fails(&Gemm::default(), &[&a, &b, &noise(&c, 0)]);
        assert!(message.contains("broadcast"), "{message}");
    }
    let symbolic = [info("f32 n 3"), info("f32 4 3"), info("f32 4")];
    let op = Gemm { trans_b: true, ..Gemm::default() };
    assert_eq!(infers(&op, &symbolic), "f32 [n,4]");
}
