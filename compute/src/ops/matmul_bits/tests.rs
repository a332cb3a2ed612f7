//! Products with weights of few bits against products with the expanded weights.

use super::*;
use crate::isa::Isa;
use crate::ops::{Binary, BinaryKind, DequantizeLinear, MatMul, Unary, UnaryKind, UnpackBits};
use crate::testing::{assert_close, fails, noise, run, run_all, t};

fn bytes(count: usize, seed: u64) -> Vec<u8> {
    let noise = noise(&[count], seed);
    noise.as_slice::<f32>().unwrap().iter().map(|x| (x * 127. + 128.) as u8).collect()
}

/// A stored weight, its scales and its zero points.
fn stored(op: &UnpackBits, zeros: Zeros) -> Vec<Tensor> {
    let &UnpackBits { k, n, bits, block } = op;
    let blocks = k.div_ceil(block);
    let row = block * bits / 8;
    let scales: Vec<f32> = bytes(n * blocks, 2).iter().map(|&b| f32::from(b) / 2048.).collect();
    let mut inputs =
        vec![t(&[n, blocks, row], &bytes(n * blocks * row, 1)), t(&[n * blocks], &scales)];
    let packed = (blocks * bits).div_ceil(8);
    match zeros {
        Zeros::Middle => {}
        Zeros::Bytes => inputs.push(t(&[n * packed], &bytes(n * packed, 3))),
        Zeros::Floats => inputs.push(noise(&[n * blocks], 4)),
    }
    inputs
}

fn views(inputs: &[Tensor]) -> Vec<Option<TensorView<'_>>> {
    inputs.iter().map(|x| Some(x.view())).collect()
}

/// Results in the unit of the least significant digit of the sums' terms: rounding depends on the
/// terms, not on their sum.
fn assert_rounded(got: &Tensor, want: &Tensor, a: &Tensor, w: &Tensor) {
    let abs = Unary::new(UnaryKind::Abs);
    let terms = run(&MatMul, &[&run(&abs, &[a]), &run(&abs, &[w])]);
    let [got, want, terms] = [got, want, &terms].map(|x| x.as_slice::<f32>().unwrap());
    for ((got, want), terms) in got.iter().zip(want).zip(terms) {
        assert!((got - want).abs() <= 4e-6 * terms, "{got}, expected {want} of {terms}");
    }
}

#[test]
fn it_is_the_product_with_the_expanded_weight() {
    for (bits, block) in [(4, 32), (4, 16), (4, 24), (4, 128), (2, 16), (2, 64), (8, 16), (8, 48)] {
        for (m, k, n) in [(1, 96, 32), (3, 70, 37), (9, 601, 150), (5, 33, 5)] {
            for zeros in [Zeros::Middle, Zeros::Bytes, Zeros::Floats] {
                let format = UnpackBits { k, n, bits, block };
                let inputs = stored(&format, zeros);
                let w = run(&format, &inputs.iter().collect::<Vec<_>>());
                let (op, words) = MatMulBits::pack(&format, &views(&inputs)).unwrap().unwrap();
                assert_eq!(op.zeros, zeros);
                let a = noise(&[m, k], 5);
                let want = run(&MatMul, &[&a, &w]);
                assert_rounded(&run(&op, &[&a, &words]), &want, &a, &w);
                for limit in Isa::ALL {
                    let ctx = Context::new(2).with_isa(Some(limit));
                    let got = op.run(&ctx, &[Some(a.view()), Some(words.view())]).unwrap();
                    assert_rounded(&got[0], &want, &a, &w);
                }
            }
        }
    }
}

#[test]
fn bytes_with_a_scale_for_each_column() {
    let data: Vec<i8> = bytes(70 * 37, 1).iter().map(|b| b.cast_signed()).collect();
    let signed = t(&[70, 37], &data);
    let unsigned = t(&[70, 37], &bytes(70 * 37, 1));
    let scales = t(&[37], &bytes(37, 2).iter().map(|&b| f32::from(b) / 999.).collect::<Vec<_>>());
    let one = Tensor::scalar(0.5f32).unwrap();
    let signed_zeros = t(&[37], &[-3i8; 37]);
    let decode = DequantizeLinear { axis: 1, ..DequantizeLinear::default() };
    for (w, scale, zero, expected) in [
        (&signed, &scales, None, Zeros::Middle),
        (&signed, &one, None, Zeros::Middle),
        (&signed, &scales, Some(&signed_zeros), Zeros::Bytes),
        (&unsigned, &scales, None, Zeros::Bytes),
        (&unsigned, &scales, Some(&t(&[37], &[200u8; 37])), Zeros::Bytes),
    ] {
        let zero_view = zero.map(Tensor::view);
        let packed = MatMulBits::pack_bytes(&w.view(), &scale.view(), zero_view.as_ref());
        let (op, words) = packed.unwrap().unwrap();
        assert_eq!(op.zeros, expected);
        let wide = run_all(&decode, &[Some(w), Some(scale), zero]).unwrap().remove(0);
        for m in [1, 20] {
            let a = noise(&[m, 70], 5);
            let want = run(&MatMul, &[&a, &wide]);
            assert_rounded(&run(&op, &[&a, &words]), &want, &a, &wide);
        }
    }
    let packed = MatMulBits::pack_bytes(&signed.view(), &t(&[70], &[1f32; 70]).view(), None);
    assert_eq!(packed.unwrap(), None);
}

/// A left side far from 0: all products of `q` are much larger than those of `q − zero`.
#[test]
fn little_is_lost_where_the_left_side_has_a_mean() {
    let data: Vec<i8> = bytes(4096 * 3, 1).iter().map(|b| b.cast_signed()).collect();
    let w = t(&[4096, 3], &data);
    let scale = Tensor::scalar(1f32).unwrap();
    let (op, words) = MatMulBits::pack_bytes(&w.view(), &scale.view(), None).unwrap().unwrap();
    let a: Vec<f32> = bytes(4096, 3).iter().map(|&b| 100. + f32::from(b) / 256.).collect();
    let exact =
        |j: usize| -> f64 { (0..4096).map(|i| f64::from(a[i]) * f64::from(data[i * 3 + j])).sum() };
    let terms: f64 = 100. * 64. * 4096.;
    let got = run(&op, &[&t(&[1, 4096], &a), &words]);
    for (j, got) in got.as_slice::<f32>().unwrap().iter().enumerate() {
        assert!((f64::from(*got) - exact(j)).abs() < 1e-6 * terms, "{got}, expected {}", exact(j));
    }
}

#[test]
fn bias_residual_and_activation_follow() {
    let format = UnpackBits { k: 64, n: 40, bits: 4, block: 32 };
    let inputs = stored(&format, Zeros::Bytes);
    let (mut op, words) = MatMulBits::pack(&format, &views(&inputs)).unwrap().unwrap();
    op.activation = Activation::Gelu { tanh: false };
    let w = run(&format, &inputs.iter().collect::<Vec<_>>());
    for m in [1, 4, 12] {
        let (a, bias, residual) = (noise(&[m, 64], 1), noise(&[40], 2), noise(&[m, 40], 3));
        let add = Binary::new(BinaryKind::Add);
        let sum = run(&add, &[&run(&add, &[&run(&MatMul, &[&a, &w]), &bias]), &residual]);
        let want = run(&Unary::new(UnaryKind::Gelu { tanh: false }), &[&sum]);
        assert_close(&run(&op, &[&a, &words, &bias, &residual]), &want, 1e-5);
    }
}

#[test]
fn sizes_of_zero_and_wrong_operands() {
    for (m, k, n) in [(0, 32, 3), (2, 0, 3), (20, 0, 3), (2, 32, 0)] {
        let format = UnpackBits { k, n, bits: 4, block: 32 };
        let inputs = stored(&format, Zeros::Middle);
        let (op, words) = MatMulBits::pack(&format, &views(&inputs)).unwrap().unwrap();
        let out = run(&op, &[&noise(&[m, k], 2), &words]);
        assert_eq!(out, Tensor::zeros(DType::F32, [m, n]).unwrap());
    }
    let format = UnpackBits { k: 32, n: 3, bits: 4, block: 32 };
    let inputs = stored(&format, Zeros::Middle);
    let (op, words) = MatMulBits::pack(&format, &views(&inputs)).unwrap().unwrap();
    let last = "the last dimension of input 0 is 5, expected 32";
    assert!(fails(&op, &[&noise(&[2, 5], 0), &words]).contains(last));
    let a = noise(&[2, 32], 0);
    assert!(fails(&op, &[&a, &t(&[1], &[0u32])]).contains("the weight is 1, expected 160"));
    assert!(fails(&op, &[&a, &words, &noise(&[2], 0)]).contains("the bias is 2, expected 3"));
    let odd = MatMulBits { bits: 3, ..op };
    assert!(fails(&odd, &[&a, &words]).contains("3 bits in blocks of 32"));
    // Blocks that are no whole words stay as they are.
    let odd = UnpackBits { block: 8, bits: 2, ..format };
    let inputs = stored(&odd, Zeros::Middle);
    assert_eq!(MatMulBits::pack(&odd, &views(&inputs)).unwrap(), None);
}

/// Scratch memory is what [`Op::scratch_bytes`] says.
#[test]
fn scratch_is_counted() {
    let format = UnpackBits { k: 600, n: 70, bits: 4, block: 32 };
    let inputs = stored(&format, Zeros::Middle);
    let (op, words) = MatMulBits::pack(&format, &views(&inputs)).unwrap().unwrap();
    for (m, threads) in [(1, 1), (5, 2), (100, 1), (100, 2)] {
        let ctx = Context::new(threads);
        let a = noise(&[m, 600], 1);
        let given = [Some(a.view()), Some(words.view())];
        let out = op.run(&ctx, &given).unwrap();
        let infos = crate::args::infos(&given).unwrap();
        let infos: Vec<Option<&ValueInfo>> = infos.iter().map(Option::as_ref).collect();
        let expected = op.scratch_bytes(threads, &infos) + out[0].as_bytes().len();
        let held = ctx.pool().stats().high_water_bytes;
        assert!(held >= expected && held < expected + expected / 4 + 512, "{held}, {expected}");
    }
}
