//! Maps with known texts.

use super::*;

/// The probabilities of a map with text at these pixels.
fn map(width: usize, height: usize, is_text: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    let all = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    all.map(|(x, y)| if is_text(x, y) { 0.9 } else { 0.1 }).collect()
}

fn found(values: &[f32], width: usize, size: (u32, u32), score_min: f32) -> Vec<Region> {
    regions(&Map { values, width, height: values.len() / width }, size, score_min)
}

#[test]
fn a_block_grows_and_is_in_pixels_of_the_picture() {
    let values = map(40, 20, |x, y| (5..25).contains(&x) && (4..12).contains(&y));
    // 20 × 8 pixels with those to the right and below; growth by 20 × 8 × 1.6 / 28.
    for (size, corners) in [
        ((40, 20), [[0.0, 0.0], [30.0, 0.0], [30.0, 17.0], [0.0, 17.0]]),
        ((80, 40), [[1.0, 0.0], [59.0, 0.0], [59.0, 33.0], [1.0, 33.0]]),
    ] {
        let found = found(&values, 40, size, 0.5);
        assert_eq!(found.iter().map(|region| region.corners).collect::<Vec<_>>(), [corners]);
        let score = (160.0 * 0.9 + 29.0 * 0.1) / 189.0;
        assert!((found[0].score - score).abs() < 1e-5, "{} {score}", found[0].score);
    }
    assert_eq!(found(&values, 40, (40, 20), 0.8), []);
}

#[test]
fn a_turned_block_is_a_turned_rectangle() {
    let (sin, cos) = 30_f64.to_radians().sin_cos();
    let values = map(100, 100, |x, y| {
        let (x, y) = (x as f64 - 50.0, y as f64 - 50.0);
        (x * cos + y * sin).abs() <= 20.0 && (y * cos - x * sin).abs() <= 5.0
    });
    let all = found(&values, 100, (100, 100), 0.5);
    assert_eq!(all.len(), 1);
    let growth = 40.0 * 10.0 * 1.6 / 50.0;
    let (long, wide) = ((40.0 + growth) / 2.0, (10.0 + growth) / 2.0);
    let corner =
        |x: f64, y: f64| [(50.0 + x * cos - y * sin) as f32, (50.0 + x * sin + y * cos) as f32];
    let expected =
        [corner(-long, -wide), corner(long, -wide), corner(long, wide), corner(-long, wide)];
    for (given, expected) in all[0].corners.into_iter().zip(expected) {
        assert!(distance(given, expected) < 2.5, "{given:?} {expected:?}");
    }
}

#[test]
fn texts_come_line_by_line() {
    // The right text of the upper line begins a little higher.
    let values = map(120, 100, |x, y| {
        matches!((x, y), (10..40, 22..30) | (70..110, 20..28) | (10..60, 70..78) | (2..4, 2..4))
    });
    let starts: Vec<bool> =
        found(&values, 120, (120, 100), 0.5).iter().map(|r| r.corners[0][0] < 50.0).collect();
    assert_eq!(starts, [true, false, true], "the smallest is none");
}

#[test]
fn odd_maps_have_no_text_or_one() {
    for (values, width, count) in [
        (map(64, 64, |_, _| false), 64, 0),
        (map(64, 64, |_, _| true), 64, 1),
        (map(64, 64, |x, _| x == 9), 64, 0),
        (map(64, 64, |x, y| x == y), 64, 0),
        (vec![1.0], 1, 0),
    ] {
        assert_eq!(found(&values, width, (64, 64), 0.3).len(), count);
    }
    // More pieces than the limit of regions.
    let values = map(400, 400, |x, y| x % 8 < 5 && y % 8 < 5);
    assert_eq!(found(&values, 400, (400, 400), 0.1).len(), REGIONS_MAX);
}
