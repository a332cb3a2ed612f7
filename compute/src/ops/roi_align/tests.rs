//! Regions worked out by hand.

use crate::ops::{MaxRoiPool, RoiAlign};
use crate::testing::{assert_close, fails, ints, run, t};

#[test]
fn regions_are_pooled() {
    let data: Vec<f32> = (0..16u8).map(f32::from).collect();
    let x = t(&[1, 1, 4, 4], &data);
    let op = RoiAlign {
        output: [2, 2],
        sampling_ratio: 1,
        spatial_scale: 0.5,
        half_pixel: true,
        max: false,
    };
    // The whole image, one sample a bin: in the middle of four elements.
    let roi = t(&[1, 4], &[0f32, 0., 8., 8.]);
    let want = t(&[1, 1, 2, 2], &[2.5f32, 4.5, 10.5, 12.5]);
    assert_close(&run(&op, &[&x, &roi, &ints(&[0])]), &want, 1e-6);
    let max = RoiAlign { max: true, sampling_ratio: 0, ..op.clone() };
    assert_eq!(run(&max, &[&x, &roi, &ints(&[-1])]).shape().dims(), [1, 1, 2, 2]);
    assert!(fails(&op, &[&x, &roi, &ints(&[1])]).contains("index 1 is outside"));
    let op = MaxRoiPool { output: [2, 2], spatial_scale: 1. };
    let roi = t(&[1, 5], &[0f32, 0., 0., 3., 3.]);
    assert_eq!(run(&op, &[&x, &roi]), t(&[1, 1, 2, 2], &[5f32, 7., 13., 15.]));
    assert!(fails(&op, &[&x, &t(&[1, 5], &[9f32; 5])]).contains("image 9 is outside"));
}
