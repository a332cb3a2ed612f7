//! Quantised convolutions against those of floats.

use crate::isa::Isa;
use crate::ops::{
    Conv, ConvGeometry, DequantizeLinear, Pads, QConv, QConvParts, Quant, QuantizeLinear, Transpose,
};
use crate::testing::{fails, noise, run, t};
use crate::{Context, Op};
use lgp_memory::{DType, Tensor, TensorView};

fn scalar(q: Quant) -> (Tensor, Tensor) {
    let zero = match q.dtype {
        DType::I8 => t(&[], &[i8::try_from(q.zero).unwrap()]),
        _ => t(&[], &[u8::try_from(q.zero).unwrap()]),
    };
    (t(&[], &[q.scale]), zero)
}

fn quantize(x: &Tensor, q: Quant) -> Tensor {
    let (scale, zero) = scalar(q);
    run(&QuantizeLinear::default(), &[x, &scale, &zero])
}

fn geometry(group: usize, channels: usize, maps: usize) -> ConvGeometry {
    ConvGeometry {
        kernel: [3, 3],
        strides: [1, 1],
        dilations: [1, 1],
        pads: Pads::Explicit(vec![1, 0, 1, 2]),
        group,
        channels,
        maps,
    }
}

/// Floats in between round alike, except at ties.
#[test]
fn agrees_with_floats_in_between() {
    let u8s = Quant { dtype: DType::U8, scale: 0.01, zero: 117 };
    let i8s = Quant { dtype: DType::I8, scale: 0.02, zero: -9 };
    let dense = geometry(1, 8, 17);
    let strided = ConvGeometry { strides: [2, 1], dilations: [1, 2], ..geometry(1, 8, 5) };
    let point = ConvGeometry { kernel: [1, 1], pads: Pads::default(), ..geometry(1, 8, 70) };
    let far_apart = ConvGeometry {
        strides: [40, 41],
        pads: Pads::Explicit(vec![79, 41, 120, 161]),
        ..geometry(1, 3, 5)
    };
    let apart = ConvGeometry {
        kernel: [2, 3],
        strides: [2, 3],
        dilations: [3, 2],
        pads: Pads::Explicit(vec![4, 7, 3, 9]),
        ..geometry(37, 37, 37)
    };
    for (geometry, x_quant, y_quant) in [
        (dense.clone(), u8s, u8s),
        (dense, i8s, i8s),
        (strided, u8s, i8s),
        (point, u8s, u8s),
        (geometry(1, 3, 20), u8s, u8s),
        (far_apart, i8s, u8s),
        (geometry(2, 8, 6), i8s, u8s),
        (geometry(20, 20, 20), u8s, i8s),
        // Fewer channels than a panel, several panels, and an even number of taps far apart.
        (geometry(5, 5, 5), i8s, u8s),
        (apart.clone(), u8s, u8s),
        (ConvGeometry { group: 1, channels: 8, maps: 9, ..apart }, u8s, i8s),
    ] {
        let [kh, kw] = geometry.kernel;
        let x = quantize(&noise(&[2, geometry.channels, 7, 9], 1), x_quant);
        let per_group = geometry.channels / geometry.group;
        let weight = quantize(
            &noise(&[geometry.maps, per_group, kh, kw], 2),
            Quant { dtype: DType::I8, scale: 0.009, zero: 0 },
        );
        let scale: Vec<f32> = (0..geometry.maps).map(|i| 0.01 + i as f32 * 1e-4).collect();
        let bias: Vec<i32> =
            (0..geometry.maps).map(|i| i32::try_from(i).unwrap() * 50 - 99).collect();
        let zeros = vec![0; geometry.maps];
        let parts = QConvParts {
            x: x_quant,
            weight: &weight.view(),
            weight_scale: &scale,
            weight_zero: &zeros,
            bias: Some(&bias),
            y: y_quant,
            limits: (-0.5, 0.9),
        };
        let op = QConv::new(geometry.clone(), parts).unwrap();
        let last = run(&Transpose { perm: Some(vec![0, 2, 3, 1]) }, &[&x]);
        let got = run(&op, &[&last]);
        for isa in Isa::ALL {
            let ctx = Context::new(1).with_isa(Some(isa));
            if ctx.simd().isa() != isa {
                println!("skipped: {}: this machine does not have it", isa.name());
                continue;
            }
            assert_eq!(
                op.run(&ctx, &[Some(last.view())]).unwrap(),
                std::slice::from_ref(&got),
                "{isa:?}"
            );
        }
        let (xs, xz) = scalar(x_quant);
        let floats = run(&DequantizeLinear::default(), &[&x, &xs, &xz]);
        let rows = DequantizeLinear { axis: 0, ..DequantizeLinear::default() };
        let weights = run(&rows, &[&weight, &t(&[scale.len()], &scale)]);
        let biases: Vec<f32> =
            bias.iter().zip(&scale).map(|(b, s)| *b as f32 * s * x_quant.scale).collect();
        let conv = Conv {
            strides: geometry.strides.to_vec(),
            pads: geometry.pads.clone(),
            dilations: geometry.dilations.to_vec(),
            group: geometry.group,
        };
        let y = run(&conv, &[&floats, &weights, &t(&[biases.len()], &biases)]);
        let mut y = run(&Transpose { perm: Some(vec![0, 2, 3, 1]) }, &[&y]);
        y.as_mut_slice::<f32>().unwrap().iter_mut().for_each(|y| *y = y.clamp(-0.5, 0.9));
        let want = quantize(&y, y_quant);
        let pairs = got.as_bytes().iter().zip(want.as_bytes());
        let off = pairs.clone().filter(|(a, b)| a != b).count();
        assert!(off * 200 <= got.len(), "{geometry:?}: {off} of {} differ", got.len());
        for (a, b) in pairs {
            assert!(a.wrapping_sub(*b).wrapping_add(1) <= 2, "{geometry:?}: {a} and {b}");
        }
    }
}

/// Weights of scale 1, no bias, no limits, and the input's quantisation for the output.
fn plain<'a>(quant: Quant, weight: &'a TensorView<'a>) -> QConvParts<'a> {
    QConvParts {
        x: quant,
        weight,
        weight_scale: &[1.],
        weight_zero: &[0],
        bias: None,
        y: quant,
        limits: (f32::MIN, f32::MAX),
    }
}

#[test]
fn what_has_no_kernel_is_refused() {
    let quant = Quant { dtype: DType::U8, scale: 0.01, zero: 117 };
    let weight = t(&[4, 3, 3, 3], &[1u8; 108]);
    let view = weight.view();
    let of = |zero: &'static [i32], y: Quant| {
        let parts = QConvParts { weight_zero: zero, y, ..plain(quant, &view) };
        QConv::new(geometry(1, 3, 4), parts)
    };
    assert!(of(&[128], quant).is_ok());
    assert!(of(&[127], quant).unwrap_err().to_string().contains("zero points"));
    assert!(of(&[128], Quant { scale: 0., ..quant }).is_err());
    assert!(of(&[128], Quant { zero: 256, ..quant }).is_err());
    let none = Tensor::from_bytes(DType::I8, [1 << 60, 1, 0, 3], &[]).unwrap();
    let geometry = ConvGeometry { kernel: [0, 3], maps: 1 << 60, ..geometry(1 << 60, 1 << 60, 1) };
    assert!(
        QConv::new(geometry, plain(quant, &none.view()))
            .unwrap_err()
            .to_string()
            .contains("expected no 0")
    );
    let op = of(&[128], quant).unwrap();
    assert!(fails(&op, &[&t(&[1, 2, 2, 4], &[0u8; 16])]).contains("channels"));
    assert!(fails(&op, &[&t(&[1, 2, 2, 3], &[0i8; 12])]).contains("expected u8"));
}

/// Padding of 3.6e9 pixels, of which strides leave nine.
#[test]
fn padding_that_strides_skip_is_not_copied() {
    let quant = Quant { dtype: DType::U8, scale: 1., zero: 0 };
    let geometry = ConvGeometry {
        kernel: [1, 1],
        strides: [60_000; 2],
        pads: Pads::Explicit(vec![60_000; 4]),
        ..geometry(1, 1, 1)
    };
    let weight = t(&[1, 1, 1, 1], &[2i8]);
    let op = QConv::new(geometry, plain(quant, &weight.view())).unwrap();
    let x = t(&[1, 2, 2, 1], &[5u8, 6, 7, 8]);
    assert_eq!(op.scratch_bytes(1, &[Some(&crate::testing::info("u8 1 2 2 1"))]), 36);
    assert_eq!(run(&op, &[&x]).as_bytes(), [0, 0, 0, 0, 10, 0, 0, 0, 0]);
}

/// The windows have so many taps that few pixels are computed at once.
#[test]
fn large_windows_by_channels() {
    let quant = Quant { dtype: DType::U8, scale: 1., zero: 0 };
    let geometry = ConvGeometry { kernel: [60, 60], pads: Pads::default(), ..geometry(20, 20, 20) };
    let weight = t(&[20, 1, 60, 60], &[1i8; 20 * 3600]);
    let parts = QConvParts {
        x: quant,
        weight: &weight.view(),
        weight_scale: &[1.],
        weight_zero: &[0],
        bias: None,
        y: Quant { scale: 3600., ..quant },
        limits: (f32::MIN, f32::MAX),
    };
    let op = QConv::new(geometry, parts).unwrap();
    let x: Vec<u8> = (0..65 * 62 * 20).map(|i| (i % 20) as u8).collect();
    let y = run(&op, &[&t(&[1, 65, 62, 20], &x)]);
    let want: Vec<u8> = (0..6 * 3 * 20).map(|i| (i % 20) as u8).collect();
    assert_eq!(y.as_bytes(), want);
}
