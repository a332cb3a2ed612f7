//! Against sums written out.

use crate::ops::{Dft, Stft};
use crate::testing::{assert_close, fails, ints, noise, run, run_all, t};
use lgp_memory::Tensor;

fn dft(axis: i64, inverse: bool, one_sided: bool) -> Dft {
    Dft { axis, inverse, one_sided }
}

/// The transform of `n` complex numbers by its definition.
fn naive(x: &[f32]) -> Vec<f32> {
    let n = x.len() / 2;
    let one = |k: usize| {
        let angle = |j: usize| -2. * std::f64::consts::PI * ((j * k) % n) as f64 / n as f64;
        (0..n).fold([0f64; 2], |[re, im], j| {
            let (s, c) = angle(j).sin_cos();
            let (a, b) = (f64::from(x[2 * j]), f64::from(x[2 * j + 1]));
            [re + a * c - b * s, im + a * s + b * c]
        })
    };
    (0..n).flat_map(one).map(|x| x as f32).collect()
}

#[test]
fn transforms_of_any_length() {
    for n in [1, 2, 3, 5, 8, 12, 31, 64] {
        let x = noise(&[1, n, 2], 3);
        let want = t(&[1, n, 2], &naive(x.as_slice().unwrap()));
        let out = run(&dft(1, false, false), &[&x]);
        assert_close(&out, &want, 1e-5);
        assert_close(&run(&dft(-2, true, false), &[&out]), &x, 1e-5);
    }
}

#[test]
fn real_signals_need_half_of_the_frequencies() {
    for n in [2, 6, 7, 16] {
        let x = noise(&[2, n, 1], 5);
        let pairs: Vec<f32> =
            x.as_slice::<f32>().unwrap()[..n].iter().flat_map(|&x| [x, 0.]).collect();
        let half = run(&dft(1, false, true), &[&x]);
        assert_eq!(half.shape().dims(), [2, n / 2 + 1, 2]);
        let want = &naive(&pairs)[..(n / 2 + 1) * 2];
        let first = t(&[want.len()], &half.as_slice::<f32>().unwrap()[..want.len()]);
        assert_close(&first, &t(&[want.len()], want), 1e-5);
        let length = i64::try_from(n).unwrap();
        let back = run(&dft(1, true, true), &[&half, &t(&[], &[length])]);
        assert_close(&back, &x, 1e-5);
    }
}

#[test]
fn other_axes_and_lengths() {
    let x = noise(&[4, 3, 2], 9);
    let columns = run(&dft(0, false, false), &[&x]);
    let line: Vec<f32> =
        (0..4).flat_map(|i| x.as_slice::<f32>().unwrap()[i * 6..][..2].to_vec()).collect();
    let got: Vec<f32> =
        (0..4).flat_map(|i| columns.as_slice::<f32>().unwrap()[i * 6..][..2].to_vec()).collect();
    assert_close(&t(&[8], &got), &t(&[8], &naive(&line)), 1e-5);
    assert_eq!(run(&dft(0, false, false), &[&x, &t(&[], &[6i64])]).shape().dims(), [6, 3, 2]);
    assert!(fails(&dft(2, false, false), &[&x]).contains("the last one"));
    assert!(fails(&dft(0, false, false), &[&x, &ints(&[0])]).contains("length is 0"));
    assert!(fails(&dft(0, false, false), &[&noise(&[4, 3], 1)]).contains("last axis of 1 or 2"));
}

#[test]
fn windows_slide() {
    let x = noise(&[1, 10, 1], 4);
    let data = x.as_slice::<f32>().unwrap();
    let window = t(&[4], &[0.5f32, 1., 1., 0.5]);
    let out = run(&Stft { one_sided: false }, &[&x, &t(&[], &[3i64]), &window]);
    assert_eq!(out.shape().dims(), [1, 3, 4, 2]);
    let weights = window.as_slice::<f32>().unwrap();
    let frame: Vec<f32> = (0..4).flat_map(|j| [data[3 + j] * weights[j], 0.]).collect();
    let got: Tensor = t(&[8], &out.as_slice::<f32>().unwrap()[8..16]);
    assert_close(&got, &t(&[8], &naive(&frame)), 1e-5);
    let op = Stft { one_sided: true };
    assert_eq!(run(&op, &[&x, &t(&[], &[3i64]), &window]).shape().dims(), [1, 3, 3, 2]);
    assert!(fails(&op, &[&x, &ints(&[0]), &window]).contains("step is 0"));
    assert!(fails(&op, &[&x, &ints(&[1])]).contains("both missing"));
    assert!(fails(&op, &[&x, &ints(&[1]), &noise(&[11], 1)]).contains("longer than 10"));
}

/// Lines are in f64, and so can need more memory than there is where the output fits.
#[test]
fn lengths_beyond_memory_are_refused() {
    for n in [1 << 60, (1 << 60) - 1] {
        assert!(super::fft::Plan::new(n).is_err());
    }
    // Without a signal there is no frame, however long the frames are.
    let (x, length) = (t::<f32>(&[0, 1 << 50, 1], &[]), t(&[], &[1i64 << 50]));
    let out =
        run_all(&Stft { one_sided: true }, &[Some(&x), Some(&ints(&[1])), None, Some(&length)]);
    assert_eq!(out.unwrap()[0].shape().dims()[0], 0);
}

#[test]
fn work_grows_as_the_transform_does() {
    // 8 is halved three times, four products each; 3 takes two transforms of 8, their product and
    // two chirps.
    for (n, products) in [(1, 0), (2, 1), (8, 12), (3, 12 + 12 + 8 + 3 + 3)] {
        assert_eq!(super::fft::multiply_adds(n), 4 * products, "{n}");
    }
}
