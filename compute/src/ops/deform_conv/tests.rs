//! Without offsets the result is a convolution; whole offsets move the elements that are read.

use super::DeformConv;
use crate::ops::{Conv, Pads};
use crate::testing::{assert_close, fails, noise, run, run_all, t};

#[test]
fn taps_move() {
    let x = noise(&[2, 4, 5, 6], 1);
    let (weight, bias) = (noise(&[6, 2, 3, 2], 2), noise(&[6], 3));
    let op = DeformConv {
        strides: vec![1, 2],
        pads: vec![1, 0, 1, 1],
        dilations: vec![1, 2],
        group: 2,
        offset_group: 2,
    };
    let conv = Conv {
        strides: op.strides.clone(),
        pads: Pads::Explicit(op.pads.clone()),
        dilations: op.dilations.clone(),
        group: 2,
    };
    let want = run(&conv, &[&x, &weight, &bias]);
    let (oh, ow) = (want.shape()[2], want.shape()[3]);
    let still = t(&[2, 24, oh, ow], &vec![0f32; 48 * oh * ow]);
    assert_close(&run(&op, &[&x, &weight, &still, &bias]), &want, 1e-5);
    let half = t(&[2, 12, oh, ow], &vec![0.5f32; 24 * oh * ow]);
    let masked = run_all(&op, &[Some(&x), Some(&weight), Some(&still), None, Some(&half)]).unwrap();
    let doubled: Vec<f32> = masked[0].as_slice::<f32>().unwrap().iter().map(|y| y * 2.).collect();
    let plain = run(&conv, &[&x, &weight]);
    assert_close(&t(want.shape(), &doubled), &plain, 1e-5);
    assert!(fails(&op, &[&x, &weight, &half]).contains("a dimension of offset"));
}

#[test]
fn values_between_elements_are_interpolated() {
    let x = t(&[1, 1, 2, 2], &[0f32, 1., 2., 3.]);
    let weight = t(&[1, 1, 1, 1], &[1f32]);
    let op = DeformConv::default();
    let moves = [0.5f32, -0.5, 1., 9., 0.25, 0., -1., f32::NAN];
    let offset = t(&[1, 2, 2, 2], &moves);
    let out = run(&op, &[&x, &weight, &offset]);
    // (0.5, 0.25) between all four; (-0.5, 1) half outside; (2, -1) and far away: zeros.
    let got = out.as_slice::<f32>().unwrap();
    assert_eq!(got[..3], [0.25 + 1., 0.5, 0.]);
}
