//! Positions worked out by hand.

use crate::ops::{GridSample, SampleMode, SamplePadding};
use crate::testing::{assert_close, fails, run, t};

#[test]
fn positions_are_read() {
    let x = t(&[1, 1, 2, 2], &[1f32, 2., 3., 4.]);
    // The centre, the upper right corner's element, and far outside to the left of the first row.
    let grid = t(&[1, 1, 3, 2], &[0f32, 0., 1., -1., -5., -1.]);
    for (mode, padding, align_corners, want) in [
        (SampleMode::Linear, SamplePadding::Zeros, true, [2.5f32, 2., 0.]),
        (SampleMode::Linear, SamplePadding::Border, true, [2.5, 2., 1.]),
        (SampleMode::Linear, SamplePadding::Zeros, false, [2.5, 0.5, 0.]),
        (SampleMode::Linear, SamplePadding::Border, false, [2.5, 2., 1.]),
        (SampleMode::Linear, SamplePadding::Reflection, true, [2.5, 2., 1.]),
        (SampleMode::Nearest, SamplePadding::Zeros, true, [1., 2., 0.]),
        (SampleMode::Cubic, SamplePadding::Border, true, [2.5, 2., 1.]),
    ] {
        let op = GridSample { mode, padding, align_corners };
        assert_close(&run(&op, &[&x, &grid]), &t(&[1, 1, 1, 3], &want), 1e-6);
    }
}

#[test]
fn volumes_and_bad_ranks() {
    let data: Vec<f32> = (0..8u8).map(f32::from).collect();
    let x = t(&[1, 1, 2, 2, 2], &data);
    let op =
        GridSample { mode: SampleMode::Linear, padding: SamplePadding::Zeros, align_corners: true };
    let grid = t(&[1, 1, 1, 2, 3], &[0f32, 0., 0., 1., -1., 0.]);
    assert_close(&run(&op, &[&x, &grid]), &t(&[1, 1, 1, 1, 2], &[3.5f32, 3.]), 1e-6);
    assert!(fails(&op, &[&x, &t(&[1, 1, 1, 2], &[0f32; 2])]).contains("ranks are 5 and 4"));
    let flat = t(&[1, 1, 1, 1, 2], &[0f32; 2]);
    assert!(fails(&op, &[&x, &flat]).contains("last axis is 2, expected 3"));
}
