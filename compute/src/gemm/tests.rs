//! Packed products against a naive loop.

use super::*;
use crate::isa::Isa;
use crate::testing::noise;
use half::bf16;

fn naive(m: usize, n: usize, k: usize, a: &[f32], b: &[f32]) -> Vec<f64> {
    let mut c = vec![0f64; m * n];
    for i in 0..m {
        for p in 0..k {
            for j in 0..n {
                c[i * n + j] += f64::from(a[i * k + p]) * f64::from(b[p * n + j]);
            }
        }
    }
    c
}

const SIZES: [(usize, usize, usize); 17] = [
    (1, 1, 1),
    (1, 33, 7),
    (1, 170, 600),
    (1, 256, 40),
    (3, 32, 64),
    (12, 32, 5),
    (13, 31, 100),
    (25, 70, 33),
    (37, 96, 1030),
    (7, 5, 0),
    (5, 64, 768),
    (30, 8, 256),
    (100, 40, 520),
    (1, 256, 5),
    (17, 32, 1536),
    (121, 64, 600),
    (241, 128, 40),
];

#[test]
fn every_instruction_set_agrees_with_the_definition() {
    for (m, n, k) in SIZES {
        let (a, b) = (noise(&[m * k], 1), noise(&[k * n], 2));
        let (a, b) = (a.as_slice::<f32>().unwrap(), b.as_slice::<f32>().unwrap());
        let want = naive(m, n, k, a, b);
        let mut words = vec![7.; Packed::words(k, n).unwrap()];
        pack(b, (k, n), (n, 1), &mut words);
        let transposed: Vec<f32> = (0..n * k).map(|i| b[i % k.max(1) * n + i / k.max(1)]).collect();
        let mut again = vec![7.; words.len()];
        pack(&transposed, (k, n), (1, k), &mut again);
        assert_eq!(words, again);
        let bias = noise(&[n], 3);
        let residual = noise(&[m * n], 4);
        let epilogue = Epilogue {
            bias: Some(bias.as_slice().unwrap()),
            residual: Some(residual.as_slice().unwrap()),
            activation: Activation::Relu,
        };
        for isa in Isa::ALL {
            let ctx = Context::new(1).with_isa(Some(isa));
            let three = Context::new(3).with_isa(Some(isa));
            let packed = Packed::new(&words, k, n).unwrap();
            let rows = Rows { words: a, row: k };
            let mut c = vec![f32::NAN; m * n];
            multiply(&ctx, m, rows, packed, &mut c, Word::F32, Epilogue::default());
            let mut d = vec![f32::NAN; m * n];
            multiply(&ctx, m, rows, packed, &mut d, Word::F32, epilogue);
            let mut e = vec![f32::NAN; m * n];
            multiply(&three, m, rows, packed, &mut e, Word::F32, epilogue);
            assert_eq!(d, e, "{isa:?} {m} {n} {k} on three threads");
            for i in 0..m * n {
                let tolerance = 1e-6 * (k as f64).max(1.);
                assert!(
                    (f64::from(c[i]) - want[i]).abs() < tolerance,
                    "{isa:?} {m} {n} {k} at {i}"
                );
                let (b, r) = (epilogue.bias.unwrap()[i % n], epilogue.residual.unwrap()[i]);
                let full = (want[i] + f64::from(b) + f64::from(r)).max(0.);
                assert!((f64::from(d[i]) - full).abs() < tolerance, "{isa:?} {m} {n} {k} at {i}");
            }
        }
    }
}

#[test]
fn infinities_and_nan_stay_in_their_rows_and_columns() {
    let (m, n, k) = (14, 40, 9);
    let mut a = vec![1f32; m * k];
    let mut b = vec![1f32; k * n];
    a[3 * k] = f32::INFINITY;
    b[35] = f32::NAN;
    let mut words = vec![0.; Packed::words(k, n).unwrap()];
    pack(&b, (k, n), (n, 1), &mut words);
    for isa in Isa::ALL {
        let ctx = Context::new(1).with_isa(Some(isa));
        let mut c = vec![0.; m * n];
        let packed = Packed::new(&words, k, n).unwrap();
        multiply(
            &ctx,
            m,
            Rows { words: &a, row: k },
            packed,
            &mut c,
            Word::F32,
            Epilogue::default(),
        );
        for (i, &c) in c.iter().enumerate() {
            match (i / n, i % n) {
                (_, 35) => assert!(c.is_nan()),
                (3, _) => assert_eq!(c, f32::INFINITY),
                _ => assert_eq!(c, 9.),
            }
        }
    }
}

#[test]
fn pairs_of_bf16_are_products_of_rounded_numbers() {
    let ctx = Context::new(1);
    if !ctx.simd().bf16() {
        println!("skipped: avx512bf16: this machine does not have it");
        return;
    }
    for (m, n, k) in SIZES {
        let round = |x: &f32| bf16::from_f32(*x).to_f32();
        let (a, b) = (noise(&[m * k], 1), noise(&[k * n], 2));
        let a: Vec<f32> = a.as_slice::<f32>().unwrap().iter().map(round).collect();
        let b: Vec<f32> = b.as_slice::<f32>().unwrap().iter().map(round).collect();
        let want = naive(m, n, k, &a, &b);
        let steps = k.div_ceil(2);
        let mut words = vec![7.; Packed::words(steps, n).unwrap()];
        pack_bf16(&b, (k, n), (n, 1), &mut words);
        let mut left = vec![7.; m * steps];
        if k > 0 {
            for (from, to) in a.chunks_exact(k).zip(left.chunks_exact_mut(steps)) {
                pack::pairs_of_row(from, to);
            }
        }
        let mut c = vec![f32::NAN; m * n];
        let packed = Packed::new(&words, steps, n).unwrap();
        let rows = Rows { words: &left, row: steps };
        multiply(&ctx, m, rows, packed, &mut c, Word::Pairs, Epilogue::default());
        for i in 0..m * n {
            let tolerance = 2e-6 * (k as f64).max(1.);
            assert!((f64::from(c[i]) - want[i]).abs() < tolerance, "{m} {n} {k} at {i}");
        }
    }
}

#[test]
fn words_round_as_bf16_does() {
    for x in [0., -0., 1., 1.003_9, 1.011_7, f32::MAX, f32::INFINITY, f32::NAN, 1e-40, -3.3] {
        let mut words = [7f32; 2];
        pack::pairs_of_row(&[x, -x, x], &mut words);
        let halves = [x, -x, x, 0.].map(bf16::from_f32);
        for (i, want) in halves.iter().enumerate() {
            let got = (words[i / 2].to_bits() >> (16 * (i % 2))) as u16;
            let got = bf16::from_bits(got);
            assert!(got == *want || got.is_nan() && want.is_nan(), "{x}: {got} {want}");
        }
    }
}
