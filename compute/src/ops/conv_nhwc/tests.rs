//! Channels-last convolution against the plain operator.

use super::*;
use crate::isa::Isa;
use crate::ops::{Cast, Conv, Transpose};
use crate::testing::{assert_close, fails, infers, info, noise, run, run_all, t};
use lgp_memory::TensorType;

/// `(n, c, m, h, w, kernel, stride, dilation, pads, group)`.
type Case = (usize, usize, usize, usize, usize, [usize; 2], usize, usize, [usize; 4], usize);

const CASES: &[Case] = &[
    (1, 3, 32, 17, 19, [3, 3], 2, 1, [1, 1, 1, 1], 1),
    (2, 3, 64, 23, 21, [7, 7], 2, 1, [3, 3, 3, 3], 1),
    (1, 64, 64, 9, 9, [3, 3], 1, 1, [1, 1, 1, 1], 1),
    (1, 300, 40, 25, 23, [3, 3], 1, 1, [1, 1, 1, 1], 1),
    (1, 37, 66, 26, 25, [3, 3], 1, 1, [0, 2, 1, 0], 1),
    (2, 37, 50, 10, 11, [3, 3], 1, 1, [1, 1, 1, 1], 1),
    (1, 16, 24, 13, 12, [1, 1], 1, 1, [0, 0, 0, 0], 1),
    (2, 40, 33, 9, 8, [1, 1], 2, 1, [0, 0, 0, 0], 1),
    (1, 700, 100, 3, 5, [1, 1], 1, 1, [0, 0, 0, 0], 1),
    (1, 130, 48, 5, 5, [3, 3], 2, 1, [1, 0, 1, 2], 1),
    (1, 8, 20, 12, 10, [5, 3], 1, 2, [4, 2, 4, 2], 1),
    (1, 32, 32, 9, 10, [3, 3], 1, 1, [1, 1, 1, 1], 32),
    (2, 50, 50, 11, 9, [3, 3], 2, 1, [1, 1, 1, 1], 50),
    (1, 24, 24, 14, 14, [5, 5], 1, 1, [2, 2, 2, 2], 24),
    (1, 17, 17, 14, 13, [5, 5], 2, 1, [2, 2, 2, 2], 17),
    (1, 24, 36, 9, 10, [3, 3], 1, 1, [1, 1, 1, 1], 4),
    (1, 15, 36, 9, 10, [3, 3], 2, 1, [1, 1, 1, 1], 3),
    (2, 1100, 50, 12, 11, [1, 1], 1, 1, [0, 0, 0, 0], 1),
    (1, 20, 20, 9, 9, [7, 7], 1, 1, [3, 3, 3, 3], 20),
    (1, 20, 20, 9, 9, [3, 3], 1, 2, [2, 2, 2, 2], 20),
    (1, 6, 12, 9, 9, [3, 3], 1, 1, [1, 1, 1, 1], 6),
    (1, 32, 64, 7, 9, [3, 3], 1, 1, [1, 1, 1, 1], 4),
    (1, 64, 40, 19, 18, [3, 3], 1, 2, [2, 2, 2, 2], 1),
    (2, 40, 64, 17, 23, [3, 3], 1, 3, [3, 1, 2, 3], 1),
    (1, 48, 48, 14, 15, [3, 3], 1, 6, [6, 6, 6, 6], 1),
    (1, 24, 24, 9, 10, [3, 3], 1, 1, [1, 1, 1, 1], 6),
    (2, 64, 64, 13, 15, [3, 3], 2, 1, [1, 1, 1, 1], 8),
    (1, 40, 40, 8, 16, [3, 3], 1, 1, [1, 0, 2, 1], 20),
    (2, 80, 80, 5, 6, [3, 3], 1, 1, [1, 1, 1, 1], 5),
    (1, 96, 96, 15, 14, [5, 3], 2, 1, [2, 1, 2, 1], 12),
    (1, 12, 12, 9, 8, [3, 3], 1, 1, [1, 1, 1, 1], 3),
    (2, 20, 20, 7, 9, [3, 3], 2, 1, [1, 1, 1, 1], 10),
    (1, 6, 6, 6, 9, [1, 3], 1, 1, [0, 1, 0, 1], 3),
    (1, 16, 16, 5, 8, [3, 3], 1, 1, [3, 1, 1, 1], 8),
    (1, 32, 32, 11, 9, [3, 3], 1, 2, [2, 2, 2, 2], 8),
    (1, 4, 4, 1, 30, [1, 5], 1, 1, [0, 2, 0, 2], 1),
    (1, 4, 4, 2, 2, [1, 1], 3, 1, [1, 1, 1, 1], 1),
];

fn last(x: &Tensor) -> Tensor {
    run(&Transpose { perm: Some(vec![0, 2, 3, 1]) }, &[x])
}

fn first(x: &Tensor) -> Tensor {
    run(&Transpose { perm: Some(vec![0, 3, 1, 2]) }, &[x])
}

/// The plain operator on one thread.
fn plain(conv: &Conv, inputs: &[&Tensor]) -> Tensor {
    let inputs: Vec<_> = inputs.iter().map(|x| Some(x.view())).collect();
    conv.run(&Context::new(1), &inputs).unwrap().remove(0)
}

fn geometry(case: &Case) -> ConvGeometry {
    let &(_, channels, maps, _, _, kernel, stride, dilation, pads, group) = case;
    ConvGeometry {
        kernel,
        strides: [stride; 2],
        dilations: [dilation; 2],
        pads: Pads::Explicit(pads.to_vec()),
        group,
        channels,
        maps,
    }
}

#[test]
fn agrees_with_the_plain_operator() {
    for (i, case) in CASES.iter().enumerate() {
        let &(n, c, m, h, w, kernel, stride, dilation, pads, group) = case;
        let x = noise(&[n, c, h, w], i as u64);
        let weight = noise(&[m, c / group, kernel[0], kernel[1]], 100 + i as u64);
        let bias = noise(&[m], 200 + i as u64);
        let conv = Conv {
            strides: vec![stride; 2],
            pads: Pads::Explicit(pads.to_vec()),
            dilations: vec![dilation; 2],
            group,
        };
        let want = last(&plain(&conv, &[&x, &weight, &bias]));
        // Errors grow as the sums do, whose terms have random signs.
        let terms = c / group * kernel[0] * kernel[1];
        let tolerance = 2e-5 * (terms as f64).sqrt().max(10.);
        let residual = noise(want.shape(), 300 + i as u64);
        let x = last(&x);
        let hints =
            [ConvHints::default(), ConvHints { batch: Some(n), input: Some([h, w]), bf16: false }];
        for hints in hints {
            let (op, packed) = ConvNhwc::pack(geometry(case), &weight.view(), hints).unwrap();
            let got = run(&op, &[&x, &packed, &bias]);
            assert_close(&got, &want, tolerance);
            for isa in Isa::ALL {
                let context = Context::new(1).with_isa(Some(isa));
                if context.simd().isa() != isa {
                    println!("skipped: {}: this machine does not have it", isa.name());
                    continue;
                }
                let inputs = [Some(x.view()), Some(packed.view()), Some(bias.view())];
                let got = op.run(&context, &inputs).unwrap().remove(0);
                assert_close(&got, &want, tolerance);
            }
            for activation in [Activation::Relu, Activation::Silu] {
                let op = op.clone().with_activation(activation);
                let mut sum: Vec<f32> = want.as_slice::<f32>().unwrap().to_vec();
                for (sum, r) in sum.iter_mut().zip(residual.as_slice::<f32>().unwrap()) {
                    *sum += r;
                }
                activation.apply(false, &mut sum);
                let got = run(&op, &[&x, &packed, &bias, &residual]);
                assert_close(&got, &t(want.shape(), &sum), tolerance);
            }
            let no_bias = run_all(&op, &[Some(&x), Some(&packed)]).unwrap().remove(0);
            let bare = last(&plain(&conv, &[&first(&x), &weight]));
            assert_close(&no_bias, &bare, tolerance);
        }
    }
}

/// What is left of a number in bf16.
fn rounded(x: &Tensor, to: DType) -> Tensor {
    let half = run(&Cast { to: DType::BF16 }, &[x]);
    if to == DType::BF16 { half } else { run(&Cast { to }, &[&half]) }
}

/// Images in f32 and in bf16, to results in f32 and in bf16.
#[test]
fn products_of_bf16_agree_with_the_plain_operator() {
    if !Context::new(1).simd().bf16() {
        println!("skipped: avx512bf16: this machine does not have it");
        return;
    }
    for (i, case) in CASES.iter().enumerate() {
        let &(n, c, m, h, w, kernel, stride, dilation, pads, group) = case;
        let weight = rounded(&noise(&[m, c / group, kernel[0], kernel[1]], i as u64), DType::F32);
        let hints = ConvHints { bf16: true, ..ConvHints::default() };
        let (op, packed) = ConvNhwc::pack(geometry(case), &weight.view(), hints).unwrap();
        assert_eq!(op.multiplies_bf16(), group == 1 || c / group % 2 == 0, "{case:?}");
        let exact = rounded(&noise(&[n, c, h, w], 100 + i as u64), DType::F32);
        let bias = noise(&[m], 200 + i as u64);
        let conv = Conv {
            strides: vec![stride; 2],
            pads: Pads::Explicit(pads.to_vec()),
            dilations: vec![dilation; 2],
            group,
        };
        let want = last(&plain(&conv, &[&exact, &weight, &bias]));
        // Inputs were rounded, so that only the sums differ.
        let terms = c / group * kernel[0] * kernel[1];
        let tolerance = 2e-5 * (terms as f64).sqrt().max(10.);
        let x = last(&exact);
        assert_close(&run(&op, &[&x, &packed, &bias]), &want, tolerance);
        let half = rounded(&x, DType::BF16);
        if !(op.is_depthwise() || op.multiplies_bf16() && c % 2 == 0) {
            assert!(fails(&op, &[&half, &packed, &bias]).contains("bf16, expected f32"));
            continue;
        }
        let op = if op.is_depthwise() { op } else { op.with_bf16_output() };
        let residual = noise(want.shape(), 300 + i as u64);
        for activation in [Activation::None, Activation::Relu, Activation::Silu] {
            let op = op.clone().with_activation(activation);
            for residual in [Some(&residual), Some(&rounded(&residual, DType::BF16)), None] {
                if op.is_depthwise() && residual.is_some_and(|r| r.dtype() == DType::BF16) {
                    continue;
                }
                let mut sum: Vec<f32> = want.as_slice::<f32>().unwrap().to_vec();
                if let Some(residual) = residual {
                    let wide = run(&Cast { to: DType::F32 }, &[residual]);
                    let wide = wide.as_slice::<f32>().unwrap();
                    sum.iter_mut().zip(wide).for_each(|(sum, r)| *sum += r);
                }
                activation.apply(false, &mut sum);
                let inputs = [Some(&half), Some(&packed), Some(&bias), residual];
                let got = run_all(&op, &inputs).unwrap().remove(0);
                assert_eq!(got.dtype(), DType::BF16);
                assert_close(&rounded(&got, DType::F32), &t(want.shape(), &sum), 0.01);
            }
        }
    }
}

/// Outputs whose windows do not see an infinity or NaN are as they are without it.
#[test]
fn infinities_stay_where_they_are_seen() {
    let (side, c, m) = (15, 40, 50);
    let (x, weight) = (noise(&[1, side, side, c], 1), noise(&[m, c, 3, 3], 2));
    let g = geometry(&(1, c, m, side, side, [3, 3], 1, 1, [1; 4], 1));
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let mut data = x.as_slice::<f32>().unwrap().to_vec();
        data[(7 * side + 5) * c + 33] = value;
        let spoilt = t(&[1, side, side, c], &data);
        let pack = |algorithm| {
            let (geometry, activation) = (g.clone(), Activation::Relu);
            let op = ConvNhwc { geometry, algorithm, activation, out: DType::F32 };
            let packed = pack::pack(&op, weight.as_slice().unwrap()).unwrap();
            (op, packed)
        };
        let (direct, packed) = pack(Algorithm::Direct);
        let want = run(&direct, &[&spoilt, &packed]);
        for side in [4, 6] {
            let (op, packed) = pack(Algorithm::Winograd { side });
            assert_close(&run(&op, &[&spoilt, &packed]), &want, 1e-3);
        }
    }
    let mut data = weight.as_slice::<f32>().unwrap().to_vec();
    for value in [f32::INFINITY, f32::NAN, -1e19] {
        data[77] = value;
        let weight = t(&[m, c, 3, 3], &data);
        let (op, _) = ConvNhwc::pack(g.clone(), &weight.view(), ConvHints::default()).unwrap();
        assert_eq!(op.algorithm, Algorithm::Direct);
    }
}

#[test]
fn a_machine_without_bf16_refuses_its_weights() {
    let case = (1, 4, 8, 5, 5, [3, 3], 1, 1, [1, 1, 1, 1], 1);
    let hints = ConvHints { bf16: true, ..ConvHints::default() };
    let weight = noise(&[8, 4, 3, 3], 1);
    let (op, packed) = ConvNhwc::pack(geometry(&case), &weight.view(), hints).unwrap();
    let x = noise(&[1, 5, 5, 4], 1);
    let context = Context::new(1).with_isa(Some(Isa::Avx2));
    let error = op.run(&context, &[Some(x.view()), Some(packed.view())]).unwrap_err().to_string();
    assert!(error.contains("without bf16"), "{error}");
}

#[test]
fn no_channels_are_refused() {
    let case = (1, 0, 8, 5, 5, [3, 3], 1, 1, [1, 1, 1, 1], 1);
    let weight = noise(&[8, 0, 3, 3], 1);
    let error = ConvNhwc::pack(geometry(&case), &weight.view(), ConvHints::default()).unwrap_err();
    assert!(error.to_string().contains("0 input channels"), "{error}");
}

/// What a plan counts on is what a run takes.
#[test]
fn scratch_memory_is_counted() {
    for (case, bf16) in [
        ((1, 64, 64, 56, 56, [3, 3], 1, 1, [1, 1, 1, 1], 1), false),
        ((2, 64, 32, 9, 9, [3, 3], 1, 1, [1, 1, 1, 1], 1), true),
    ] {
        let &(n, c, m, h, w, ..) = &case;
        let weight = noise(&[m, c, 3, 3], 1);
        let hints = ConvHints { bf16, ..ConvHints::default() };
        let (op, packed) = ConvNhwc::pack(geometry(&case), &weight.view(), hints).unwrap();
        let x = noise(&[n, h, w, c], 1);
        let context = Context::new(1);
        if bf16 && !context.simd().bf16() {
            println!("skipped: avx512bf16: this machine does not have it");
            continue;
        }
        let infos =
            [&x, &packed].map(|x| ValueInfo::of(TensorType::concrete(x.dtype(), x.shape())));
        let counted = op.scratch_bytes(1, &[Some(&infos[0]), Some(&infos[1])]);
        let out = op.run(&context, &[Some(x.view()), Some(packed.view())]).unwrap();
        let taken = context.pool().stats().high_water_bytes;
        let out_bytes = out[0].shape().byte_len(DType::F32).unwrap();
        assert!(
            counted > 0 && counted + out_bytes <= taken + 1024,
            "{counted} {out_bytes} {taken}"
        );
        assert!(taken <= 2 * (counted + out_bytes), "{counted} {out_bytes} {taken}");
    }
}

#[test]
fn empty_images_give_empty_results() {
    let case = (0, 3, 8, 5, 5, [3, 3], 1, 1, [1, 1, 1, 1], 1);
    let weight = noise(&[8, 3, 3, 3], 1);
    let (op, packed) =
        ConvNhwc::pack(geometry(&case), &weight.view(), ConvHints::default()).unwrap();
    let x = noise(&[0, 5, 5, 3], 1);
    assert_eq!(run(&op, &[&x, &packed]).shape().dims(), [0, 5, 5, 8]);
}

#[test]
fn wrong_inputs_are_errors() {
    let case = (1, 3, 8, 5, 5, [3, 3], 1, 1, [1, 1, 1, 1], 1);
    let weight = noise(&[8, 3, 3, 3], 1);
    let pack = |g, w: &Tensor| ConvNhwc::pack(g, &w.view(), ConvHints::default());
    let error = |g, w: &Tensor| pack(g, w).unwrap_err().to_string();
    let wrong = ConvGeometry { maps: 9, ..geometry(&case) };
    assert!(error(wrong, &weight).contains("expected f32 [9, 3, 3, 3]"));
    let wrong = ConvGeometry { group: 2, ..geometry(&case) };
    assert!(error(wrong, &weight).contains("group 2 does not divide"));
    let wrong = ConvGeometry { strides: [0, 1], ..geometry(&case) };
    assert!(error(wrong, &weight).contains("expected no 0"));
    let (op, packed) = pack(geometry(&case), &weight).unwrap();
    let x = noise(&[1, 5, 5, 3], 1);
    assert!(fails(&op, &[&noise(&[1, 5, 5, 4], 1), &packed]).contains("number of channels"));
    assert!(fails(&op, &[&x, &noise(&[7], 1)]).contains("length of the packed weight"));
    assert!(fails(&op, &[&x, &packed, &noise(&[7], 1)]).contains("length of bias"));
    let residual = noise(&[1, 5, 4, 8], 1);
    assert!(fails(&op, &[&x, &packed, &noise(&[8], 1), &residual]).contains("residual"));
    assert_eq!(infers(&op, &[info("f32 n h w 3"), info("f32 ?")]), "f32 [n,h,w,8]");
}

#[test]
fn groups_of_few_channels_have_their_algorithm() {
    let grouped = |per_group| Algorithm::Grouped { per_group };
    for (c, m, group, kernel, stride, dilation, bf16, want) in [
        (128, 128, 32, [3, 3], 1, 1, false, grouped(4)),
        (20, 20, 10, [5, 3], 2, 1, false, grouped(2)),
        (64, 64, 4, [3, 3], 1, 1, false, grouped(16)),
        (128, 128, 32, [3, 3], 1, 1, true, Algorithm::DirectBf16),
        (128, 128, 4, [3, 3], 1, 1, false, Algorithm::Direct),
        (64, 128, 16, [3, 3], 1, 1, false, Algorithm::Direct),
        (24, 24, 4, [3, 3], 1, 1, false, Algorithm::Direct),
        (64, 64, 16, [3, 5], 1, 1, false, Algorithm::Direct),
        (64, 64, 16, [3, 3], 3, 1, false, Algorithm::Direct),
        (64, 64, 16, [3, 3], 1, 2, false, Algorithm::Direct),
    ] {
        let g = geometry(&(1, c, m, 1, 1, kernel, stride, dilation, [1; 4], group));
        let hints = ConvHints { batch: None, input: None, bf16 };
        assert_eq!(
            g.algorithm(hints),
            want,
            "{c} {m} {group} {kernel:?} {stride} {dilation} {bf16}"
        );
    }
}

#[test]
fn algorithms_suit_shapes() {
    // (channels, maps, side, batch, bf16) -> algorithm
    for (c, m, side, batch, bf16, want) in [
        (64, 64, Some(56), None, false, Algorithm::Winograd { side: 6 }),
        (64, 64, Some(56), None, true, Algorithm::DirectBf16),
        (256, 256, Some(14), Some(1), false, Algorithm::Winograd { side: 6 }),
        (512, 512, Some(7), None, false, Algorithm::Winograd { side: 4 }),
        (512, 512, Some(6), None, false, Algorithm::Direct),
        (512, 512, Some(7), Some(8), false, Algorithm::Winograd { side: 6 }),
        (64, 64, None, None, false, Algorithm::Winograd { side: 4 }),
        (16, 64, Some(56), None, false, Algorithm::Direct),
    ] {
        let g = geometry(&(1, c, m, 1, 1, [3, 3], 1, 1, [1, 1, 1, 1], 1));
        let hints = ConvHints { batch, input: side.map(|s| [s; 2]), bf16 };
        assert_eq!(g.algorithm(hints), want, "{c} {m} {side:?} {batch:?} {bf16}");
    }
}

/// The error of each algorithm beside sums in f64, relative to the root mean square of those.
#[test]
fn errors_are_bounded() {
    let (c, m, side) = (128, 32, 24);
    let (x, weight) = (noise(&[1, side, side, c], 1), noise(&[m, c, 3, 3], 2));
    let g = geometry(&(1, c, m, side, side, [3, 3], 1, 1, [0; 4], 1));
    let (xs, ws) = (x.as_slice::<f32>().unwrap(), weight.as_slice::<f32>().unwrap());
    let out = side - 2;
    let mut want = vec![0f64; out * out * m];
    for (i, want) in want.iter_mut().enumerate() {
        let (y, x, map) = (i / m / out, i / m % out, i % m);
        for tap in 0..9 {
            let pixel = &xs[((y + tap / 3) * side + x + tap % 3) * c..][..c];
            for (channel, x) in pixel.iter().enumerate() {
                *want += f64::from(*x) * f64::from(ws[(map * c + channel) * 9 + tap]);
            }
        }
    }
    let square: f64 = want.iter().map(|w| w * w).sum::<f64>() / want.len() as f64;
    for (algorithm, bound) in [
        (Algorithm::Direct, 3e-6),
        (Algorithm::Winograd { side: 4 }, 6e-6),
        (Algorithm::Winograd { side: 6 }, 1e-4),
    ] {
        let op = ConvNhwc {
            geometry: g.clone(),
            algorithm,
            activation: Activation::None,
            out: DType::F32,
        };
        let packed = pack::pack(&op, ws).unwrap();
        let got = run(&op, &[&x, &packed]);
        let errors = got.as_slice::<f32>().unwrap().iter().zip(&want);
        let error = errors.fold(0f64, |e, (got, want)| e.max((f64::from(*got) - want).abs()));
        assert!(error / square.sqrt() < bound, "{algorithm:?}: {}", error / square.sqrt());
    }
}
