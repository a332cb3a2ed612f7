//! Softmax and the norms against their formulas.

use crate::ops::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, Lrn, RmsNorm, Softmax};
use crate::testing::{assert_close, fails, noise, run, t};

#[test]
fn softmax_sums_to_one_along_its_axis() {
    let x = t(&[2, 2], &[0f32, 3f32.ln(), 1000., 1000.]);
    let softmax = |axis, log, flatten| Softmax { axis, log, flatten };
    let rows = [0.25f32, 0.75, 0.5, 0.5];
    assert_close(&run(&softmax(-1, false, false), &[&x]), &t(&[2, 2], &rows), 1e-6);
    assert_close(&run(&softmax(-1, true, false), &[&x]), &t(&[2, 2], &rows.map(f32::ln)), 1e-6);
    let columns = [0f32, 0., 1., 1.];
    assert_close(&run(&softmax(0, false, false), &[&x]), &t(&[2, 2], &columns), 1e-6);
    let image = noise(&[2, 3, 5], 0);
    // The older meaning normalises over everything from the axis on.
    let flat = run(&softmax(1, false, true), &[&image]);
    let want = run(&softmax(1, false, false), &[&image.reshape([2, 15]).unwrap()]);
    assert_close(&flat.reshape([2, 15]).unwrap(), &want, 0.);
    // Softmax along the middle axis is softmax along the last axis of the transpose.
    let swap = crate::ops::Transpose { perm: Some(vec![0, 2, 1]) };
    for log in [false, true] {
        let middle = run(&softmax(1, log, false), &[&image]);
        let last = run(&softmax(2, log, false), &[&run(&swap, &[&image])]);
        assert_close(&run(&swap, &[&middle]), &last, 1e-6);
    }
    assert!(fails(&softmax(3, false, false), &[&image]).contains("axis 3 is outside"));
}

/// Mean and variance of a slice.
fn moments(x: &[f32]) -> (f32, f32) {
    let n = x.len() as f32;
    let mean = x.iter().sum::<f32>() / n;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n)
}

#[test]
fn norms() {
    let x = noise(&[2, 4, 3, 5], 0);
    let data = x.as_slice::<f32>().unwrap();
    let (scale, bias) = (noise(&[4], 1), noise(&[4], 2));
    let (s, b) = (scale.as_slice::<f32>().unwrap(), bias.as_slice::<f32>().unwrap());
    let channel = |i: usize| i / 15 % 4;
    let normed = |span: usize| -> Vec<f32> {
        let one = |(i, x): (usize, &f32)| {
            let (mean, variance) = moments(&data[i / span * span..][..span]);
            (x - mean) / (variance + 1e-5).sqrt()
        };
        data.iter().enumerate().map(one).collect()
    };
    let affine = |x: Vec<f32>| -> Vec<f32> {
        x.iter().enumerate().map(|(i, x)| x * s[channel(i)] + b[channel(i)]).collect()
    };
    let out = run(&InstanceNorm::default(), &[&x, &scale, &bias]);
    assert_close(&out, &t(&[2, 4, 3, 5], &affine(normed(15))), 1e-5);
    let group = GroupNorm { groups: 2, epsilon: 1e-5 };
    let out = run(&group, &[&x, &scale, &bias]);
    assert_close(&out, &t(&[2, 4, 3, 5], &affine(normed(30))), 1e-5);
    let per_group = [t(&[2], &[2f32, 3.]), t(&[2], &[1f32, -1.])];
    let want: Vec<f32> = normed(30)
        .iter()
        .enumerate()
        .map(|(i, x)| if channel(i) < 2 { x * 2. + 1. } else { x * 3. - 1. })
        .collect();
    assert_close(&run(&group, &[&x, &per_group[0], &per_group[1]]), &t(&[2, 4, 3, 5], &want), 1e-5);
    let (mean, variance) = (noise(&[4], 3), t(&[4], &[1f32, 2., 3., 4.]));
    let (m, v) = (mean.as_slice::<f32>().unwrap(), variance.as_slice::<f32>().unwrap());
    let want: Vec<f32> = data
        .iter()
        .enumerate()
        .map(|(i, x)| {
            (x - m[channel(i)]) / (v[channel(i)] + 1e-5).sqrt() * s[channel(i)] + b[channel(i)]
        })
        .collect();
    let out = run(&BatchNorm::default(), &[&x, &scale, &bias, &mean, &variance]);
    assert_close(&out, &t(&[2, 4, 3, 5], &want), 1e-5);
    let (scale, bias) = (noise(&[3, 5], 4), noise(&[5], 5));
    let (s, b) = (scale.as_slice::<f32>().unwrap(), bias.as_slice::<f32>().unwrap());
    let want: Vec<f32> =
        normed(15).iter().enumerate().map(|(i, x)| x * s[i % 15] + b[i % 5]).collect();
    let layer = LayerNorm { axis: 2, epsilon: 1e-5 };
    assert_close(&run(&layer, &[&x, &scale, &bias]), &t(&[2, 4, 3, 5], &want), 1e-5);
    let three = noise(&[3], 0);
    let message = fails(&InstanceNorm::default(), &[&x, &three, &three]);
    assert_eq!(message, "InstanceNormalization: the length of scale is 3, expected 4");
    let odd = GroupNorm { groups: 3, epsilon: 0. };
    assert!(fails(&odd, &[&x, &three, &three]).contains("3 groups do not divide 4 channels"));
    assert!(fails(&layer, &[&x, &three]).contains("broadcast"));
}

#[test]
fn root_mean_squares() {
    let (x, scale) = (noise(&[3, 4], 0), noise(&[4], 1));
    let (data, s) = (x.as_slice::<f32>().unwrap(), scale.as_slice::<f32>().unwrap());
    let normed = |row: &[f32]| -> Vec<f32> {
        let square = row.iter().map(|x| x * x).sum::<f32>() / 4.;
        row.iter().zip(s).map(|(x, s)| x / (square + 1e-5).sqrt() * s).collect()
    };
    let want: Vec<f32> = data.chunks(4).flat_map(normed).collect();
    assert_close(&run(&RmsNorm::default(), &[&x, &scale]), &t(&[3, 4], &want), 1e-5);
    assert!(fails(&RmsNorm::default(), &[&x, &noise(&[3], 0)]).contains("broadcast"));
}

#[test]
fn no_channels_have_nothing_to_normalise() {
    let (x, none) = (t(&[2, 0, 3], &[0f32; 0]), t(&[0], &[0f32; 0]));
    assert_eq!(run(&InstanceNorm::default(), &[&x, &none, &none]), x);
}

#[test]
fn local_response() {
    let x = t(&[1, 3, 1], &[1f32, 2., 3.]);
    let op = Lrn { alpha: 3., beta: 1., bias: 1., size: 3 };
    let want = [1f32 / 6., 2. / 15., 3. / 14.];
    assert_close(&run(&op, &[&x]), &t(&[1, 3, 1], &want), 1e-6);
    let even = Lrn { size: 2, alpha: 2., ..op.clone() };
    assert_close(&run(&even, &[&x]), &t(&[1, 3, 1], &[1f32 / 6., 2. / 14., 3. / 10.]), 1e-6);
    let all = Lrn { size: usize::MAX, alpha: 0., ..op.clone() };
    assert_close(&run(&all, &[&x]), &x, 0.);
    assert!(fails(&Lrn { size: 0, ..op }, &[&x]).contains("size is 0"));
}
