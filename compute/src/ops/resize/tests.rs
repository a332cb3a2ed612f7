//! Resizing: values of the ONNX specification's examples.

use crate::ops::{AspectRatio, CoordinateMode as C, NearestRounding as N, Resize, ResizeMode as M};
use crate::testing::{assert_close, constant, fails, info, ints, run, run_all, t};
use crate::{Op, ValueInfo};
use lgp_memory::Tensor;

fn resize(mode: M, coordinates: C) -> Resize {
    Resize { mode, coordinates, ..Resize::default() }
}

fn scaled(op: &Resize, x: &Tensor, scales: &[f32]) -> Tensor {
    let scales = t(&[scales.len()], scales);
    run_all(op, &[Some(x), None, Some(&scales)]).unwrap().remove(0)
}

#[test]
fn linear() {
    let x = t(&[1, 1, 2, 2], &[1f32, 2., 3., 4.]);
    let up = [1., 1., 2., 2.];
    let half =
        [1f32, 1.25, 1.75, 2., 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3., 3.25, 3.75, 4.];
    assert_close(
        &scaled(&resize(M::Linear, C::HalfPixel), &x, &up),
        &t(&[1, 1, 4, 4], &half),
        1e-6,
    );
    let third = 1. / 3.;
    let aligned: Vec<f32> =
        (0..16).map(|i| 1. + (i % 4) as f32 * third + (i / 4) as f32 * 2. * third).collect();
    let out = scaled(&resize(M::Linear, C::AlignCorners), &x, &up);
    assert_close(&out, &t(&[1, 1, 4, 4], &aligned), 1e-6);
    let line = t(&[1, 4], &[1f32, 2., 3., 4.]);
    let out = scaled(&resize(M::Linear, C::HalfPixel), &line, &[1., 0.6]);
    assert_close(&out, &t(&[1, 2], &[1.333_333_4f32, 3.]), 1e-5);
    let out = scaled(&resize(M::Linear, C::PytorchHalfPixel), &line, &[1., 0.25]);
    assert_close(&out, &t(&[1, 1], &[1f32]), 0.);
    let out = scaled(&resize(M::Linear, C::HalfPixelSymmetric), &line, &[1., 0.6]);
    assert_close(&out, &t(&[1, 2], &[1.666_666_7f32, 3.333_333_3]), 1e-5);
}

#[test]
fn nearest() {
    let x = t(&[1, 3], &[1i32, 2, 3]);
    for (rounding, coordinates, want) in [
        (N::Floor, C::Asymmetric, [1i32, 1, 2, 2, 3, 3]),
        (N::RoundPreferFloor, C::HalfPixel, [1, 1, 2, 2, 3, 3]),
        (N::Ceil, C::Asymmetric, [1, 2, 2, 3, 3, 3]),
        (N::RoundPreferCeil, C::Asymmetric, [1, 2, 2, 3, 3, 3]),
        (N::RoundPreferFloor, C::Asymmetric, [1, 1, 2, 2, 3, 3]),
    ] {
        let op = resize(M::Nearest(rounding), coordinates);
        assert_eq!(scaled(&op, &x, &[1., 2.]), t(&[1, 6], &want), "{op:?}");
    }
    let op = resize(M::Nearest(N::Floor), C::Asymmetric);
    let rows = t(&[2, 1], &[1u8, 2]);
    assert_eq!(scaled(&op, &rows, &[2., 1.]), t(&[4, 1], &[1u8, 1, 2, 2]));
}

#[test]
fn sizes_axes_and_attributes() {
    let x = t(&[1, 1, 2], &[1f32, 3.]);
    let op = resize(M::Linear, C::HalfPixel);
    let sizes = ints(&[1, 1, 4]);
    let empty = t(&[0], &[0f32; 0]);
    let out = run_all(&op, &[Some(&x), None, Some(&empty), Some(&sizes)]).unwrap();
    assert_close(&out[0], &t(&[1, 1, 4], &[1f32, 1.5, 2.5, 3.]), 1e-6);
    let one = Resize { axes: Some(vec![-1]), ..op.clone() };
    let out = run_all(&one, &[Some(&x), None, None, Some(&ints(&[4]))]).unwrap();
    assert_close(&out[0], &t(&[1, 1, 4], &[1f32, 1.5, 2.5, 3.]), 1e-6);
    let fixed = Resize { scales: Some(vec![1., 1., 2.]), ..op };
    assert_close(&run(&fixed, &[&x]), &t(&[1, 1, 4], &[1f32, 1.5, 2.5, 3.]), 1e-6);
}

#[test]
fn cubic_and_antialias() {
    let line = t(&[1, 4], &[1f32, 2., 3., 4.]);
    let cubic = resize(M::Cubic { a: -0.75 }, C::HalfPixel);
    let out = scaled(&cubic, &line, &[1., 2.]);
    let want = [0.683_593_75f32, 1.011_718_8, 1.761_718_8, 2.261_718_8];
    assert_close(&t(&[4], &out.as_slice::<f32>().unwrap()[..4]), &t(&[4], &want), 0.35);
    // Halving with the kernel twice as wide: a triangle over four elements.
    let soft = Resize { antialias: true, ..resize(M::Linear, C::HalfPixel) };
    let out = scaled(&soft, &line, &[1., 0.5]);
    let (edge, middle) = (0.125f32, 0.375f32);
    let first = edge + middle + 2. * middle + 3. * edge;
    assert_close(&out, &t(&[1, 2], &[first, 5. - first]), 1e-6);
    // Weights that are left out are made up for.
    let op = Resize { exclude_outside: true, ..cubic };
    let flat = t(&[1, 3], &[5f32; 3]);
    assert_close(&scaled(&op, &flat, &[1., 3.]), &t(&[1, 9], &[5f32; 9]), 1e-6);
}

#[test]
fn cropping_and_proportions() {
    let line = t(&[1, 4], &[1f32, 2., 3., 4.]);
    let op = Resize { extrapolation: 9., ..resize(M::Linear, C::TfCropAndResize) };
    let (roi, sizes) = (t(&[4], &[0f32, 0., 1., 2.]), ints(&[1, 3]));
    let out = run_all(&op, &[Some(&line), Some(&roi), None, Some(&sizes)]).unwrap();
    assert_close(&out[0], &t(&[1, 3], &[1f32, 4., 9.]), 1e-6);
    let error =
        op.run(&crate::Context::new(1), &[Some(line.view()), None, None, Some(sizes.view())]);
    assert!(error.unwrap_err().to_string().contains("roi is missing"));
    let x = t(&[2, 4], &[0f32; 8]);
    for (aspect, want) in [(AspectRatio::NotLarger, [1, 3]), (AspectRatio::NotSmaller, [5, 10])] {
        let op = Resize { aspect, ..resize(M::Nearest(N::Floor), C::Asymmetric) };
        let sizes = if want[0] == 1 { ints(&[8, 3]) } else { ints(&[1, 10]) };
        let out = run_all(&op, &[Some(&x), None, None, Some(&sizes)]).unwrap();
        let want = if want[0] == 1 { [2, 3] } else { want };
        assert_eq!(out[0].shape().dims(), want, "{aspect:?}");
    }
}

#[test]
fn bad_targets_are_errors() {
    let x = t(&[1, 2], &[1f32, 3.]);
    let op = resize(M::Linear, C::HalfPixel);
    assert!(fails(&op, &[&x]).contains("scales and sizes are both missing"));
    for (scales, message) in [
        (vec![1f32], "Resize: 1 scales or sizes, expected 2"),
        (vec![1., 0.], "Resize: the scales are [1.0, 0.0], expected positive numbers"),
        (vec![1., f32::NAN], "Resize: the scales are [1.0, NaN], expected positive numbers"),
    ] {
        let op = Resize { scales: Some(scales), ..op.clone() };
        assert_eq!(fails(&op, &[&x]), message);
    }
    let huge = Resize { scales: Some(vec![1., f32::MAX]), ..op.clone() };
    assert!(fails(&huge, &[&x]).contains("overflows"));
    let info = [info("f32 n 8"), constant(t(&[2], &[1f32, 2.]))];
    let inputs: [Option<&ValueInfo>; 3] = [Some(&info[0]), None, Some(&info[1])];
    assert_eq!(op.infer(&inputs).unwrap()[0].ty.to_string(), "f32 [n,16]");
}

#[test]
fn integers_are_interpolated() {
    let x: Vec<u8> = (0..10).collect();
    let x = t(&[1, 10], &x);
    let sizes = ints(&[1, 7]);
    let op = resize(M::Linear, C::HalfPixel);
    let out = run_all(&op, &[Some(&x), None, None, Some(&sizes)]).unwrap();
    assert_eq!(out[0], t(&[1, 7], &[0u8, 1, 3, 4, 5, 7, 8]));
    let text = Tensor::from_strings([1, 2], &["a", "b"]).unwrap();
    assert!(fails(&op, &[&text]).contains("cannot be interpolated"));
}

#[test]
fn old_rounding() {
    let x: Vec<f32> = (0..10u8).map(f32::from).collect();
    let op = resize(M::Nearest(N::Old), C::Asymmetric);
    let down = scaled(&op, &t(&[1, 10], &x), &[1., 0.71]);
    assert_eq!(down, t(&[1, 7], &[0f32, 2., 3., 5., 6., 8., 9.]));
    let up = scaled(&op, &t(&[1, 3], &x[..3]), &[1., 2.]);
    assert_eq!(up, t(&[1, 6], &[0f32, 0., 1., 1., 2., 2.]));
}

/// What ONNX Runtime makes of it: 0.3f32 · 5 is 1.5 in f32, whose nearest is 1, and more in f64.
#[test]
fn cropping_is_calculated_in_f32() {
    let x: Vec<f32> = (0..6u8).map(f32::from).collect();
    let x = t(&[1, 6], &x);
    let op =
        Resize { extrapolation: 7., ..resize(M::Nearest(N::RoundPreferFloor), C::TfCropAndResize) };
    for (roi, want) in
        [([0f32, 0.3, 1., 1.3], [1f32, 3., 4., 7., 7.]), ([0., 0.2, 1., 0.9], [1., 2., 3., 4., 4.])]
    {
        let (roi, sizes) = (t(&[4], &roi), ints(&[1, 5]));
        let out = run_all(&op, &[Some(&x), Some(&roi), None, Some(&sizes)]).unwrap();
        assert_eq!(out[0], t(&[1, 5], &want));
    }
}

/// The positions outside of the input are looked for where there is an output only.
#[test]
fn sizes_beyond_memory_are_refused_at_once() {
    let (x, none) = (t(&[1, 2], &[1f32, 2.]), t::<f32>(&[0, 2], &[]));
    let roi = t(&[4], &[0f32, 0., 1., 0.9]);
    for mode in [M::Nearest(N::Floor), M::Linear, M::Cubic { a: -0.75 }] {
        let op = resize(mode, C::TfCropAndResize);
        let sizes = ints(&[1, 1 << 60]);
        let error = run_all(&op, &[Some(&x), Some(&roi), None, Some(&sizes)]).unwrap_err();
        assert!(error.to_string().contains("host memory"), "{mode:?}: {error}");
        let sizes = ints(&[0, 1 << 40]);
        let out = run_all(&op, &[Some(&none), Some(&roi), None, Some(&sizes)]).unwrap();
        assert_eq!(out[0].shape().dims(), [0, 1 << 40]);
    }
}

/// The positions of an axis can need more than the memory even where the output fits.
#[test]
fn positions_beyond_memory_are_refused() {
    let line = super::line::Line { from: 2, to: 1 << 60, scale: 1., crop: None };
    assert!(line.nearest(C::HalfPixel, N::Floor).is_err());
    assert!(line.linear::<f32>(C::HalfPixel).is_err());
    let op = resize(M::Cubic { a: -0.75 }, C::HalfPixel);
    let positions = std::iter::repeat_n(0., 1 << 60);
    assert!(super::taps::Taps::new(&op, positions, 1., 2).is_err());
}
