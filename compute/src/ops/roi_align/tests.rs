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

/// As in ONNX Runtime, which calculates in f32: a region far larger than the image, with most
/// samples outside, and a region whose size in elements is a whole number only in f32.
#[test]
fn large_regions_and_rounding() {
    let data: Vec<f32> = (0..16u8).map(f32::from).collect();
    let x = t(&[1, 1, 4, 4], &data);
    let op = RoiAlign {
        output: [1, 1],
        sampling_ratio: 0,
        spatial_scale: 1.,
        half_pixel: false,
        max: false,
    };
    // 4000 samples on each axis; 5 of them, from -0.5 to 3.5, read elements: 0, 0.5, 1.5, 2.5, 3.
    let roi = t(&[1, 4], &[-2000f32, -2000., 2000., 2000.]);
    let want = t(&[1, 1, 1, 1], &[187.5f32 / 16e6]);
    assert_close(&run(&op, &[&x, &roi, &ints(&[0])]), &want, 1e-9);
    let max = RoiAlign { max: true, ..op.clone() };
    let below = t(&[1, 1, 4, 4], &[-1f32; 16]);
    assert_eq!(run(&max, &[&below, &roi, &ints(&[0])]), t(&[1, 1, 1, 1], &[0f32]));
    let endless = t(&[1, 4], &[0f32, 0., f32::INFINITY, 1e30]);
    run(&op, &[&x, &endless, &ints(&[0])]);
    // 10 * 0.1f32 is 1 in f32 and a little more in f64, where a bin would have two samples.
    let whole = RoiAlign { spatial_scale: 0.1, max: true, ..op.clone() };
    let roi = t(&[1, 4], &[0f32, 0., 10., 10.]);
    assert_eq!(run(&whole, &[&x, &roi, &ints(&[0])]), t(&[1, 1, 1, 1], &[5f32 / 4.]));
    let many = RoiAlign { sampling_ratio: 65, ..op.clone() };
    assert!(fails(&many, &[&x, &roi, &ints(&[0])]).contains("64 or fewer"));
    let huge = RoiAlign { output: [1 << 40, 1 << 40], ..op };
    let (none, no_image) = (t(&[0, 4], &[] as &[f32]), ints(&[]));
    assert!(run(&huge, &[&x, &none, &no_image]).is_empty());
    let pool = MaxRoiPool { output: [1 << 40, 1 << 40], spatial_scale: 1. };
    assert!(run(&pool, &[&x, &t(&[0, 5], &[] as &[f32])]).is_empty());
}
