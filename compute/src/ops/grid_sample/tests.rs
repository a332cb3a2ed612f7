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

/// Just outside of the edge, a cubic reads the edge and inner elements, as in PyTorch and ONNX
/// Runtime.
#[test]
fn cubics_clamp_their_elements() {
    let x = t(&[1, 1, 1, 4], &[0f32, 1., 4., 9.]);
    let at = [-1.6f32, -1.1, -0.9, 0.95, 1.2, 2.5, f32::INFINITY];
    let grid: Vec<f32> = at.iter().flat_map(|&x| [x, 0.]).collect();
    let grid = t(&[1, 1, 7, 2], &grid);
    let (mode, padding) = (SampleMode::Cubic, SamplePadding::Border);
    for (align_corners, want) in [
        (false, [0f32, -0.047_25, -0.110_25, 9.54, 9.033_75, 9., 9.]),
        (true, [-0.006_75, -0.081_281, 0.084_657, 8.710_418, 9.551_252, 9., 9.]),
    ] {
        let op = GridSample { mode, padding, align_corners };
        assert_close(&run(&op, &[&x, &grid]), &t(&[1, 1, 1, 7], &want), 1e-5);
    }
}

#[test]
fn many_axes_are_refused() {
    let op =
        GridSample { mode: SampleMode::Cubic, padding: SamplePadding::Zeros, align_corners: false };
    let (x, grid) = (t(&[1; 18], &[1f32]), t(&[&[1; 17][..], &[16]].concat(), &[0f32; 16]));
    assert_eq!(fails(&op, &[&x, &grid]), "GridSample is not supported for 16 spatial axes");
}
