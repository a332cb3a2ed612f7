//! Bilinear sampling between pixels, to rotate, move and scale images in one step.

use lgp_common::vision::{Channels, Pixels, VisionError};

/// The colour beyond an image's edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// The nearest pixel of the edge.
    Edge,
    /// Nothing but black.
    Black,
}

/// An RGB image. The colour of its pixel (x, y) lies at `place(x, y)` in `from`, interpolated bilinearly. (0, 0) is
/// the centre of the first pixel.
pub(super) fn warp(
    from: &Pixels,
    (width, height): (u32, u32),
    beyond: Beyond,
    place: impl Fn(f32, f32) -> (f32, f32),
) -> Result<Pixels, VisionError> {
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            // Exact, because sides are shorter than 2^24.
            data.extend(at(from, beyond, place(x as f32, y as f32)));
        }
    }
    Pixels::new(width, height, Channels::Rgb, data)
}

/// A projective transform of the unit square to any four corners.
#[derive(Debug, Clone, Copy)]
pub(super) struct Projection([f32; 8]);

impl Projection {
    /// The transform from the square (0, 0) to (1, 1) to these corners, which are given clockwise from the first.
    pub(super) fn from_square([[x0, y0], [x1, y1], [x2, y2], [x3, y3]]: [[f32; 2]; 4]) -> Self {
        let ([right_x, right_y], [lower_x, lower_y]) = ([x1 - x2, y1 - y2], [x3 - x2, y3 - y2]);
        // Zero for a parallelogram.
        let [skew_x, skew_y] = [x0 - x1 + x2 - x3, y0 - y1 + y2 - y3];
        let area = right_x * lower_y - lower_x * right_y;
        let g = (skew_x * lower_y - lower_x * skew_y) / area;
        let h = (right_x * skew_y - skew_x * right_y) / area;
        let [a, b] = [x1 - x0 + g * x1, x3 - x0 + h * x3];
        let [d, e] = [y1 - y0 + g * y1, y3 - y0 + h * y3];
        Self([a, b, x0, d, e, y0, g, h])
    }

    pub(super) fn apply(&self, [u, v]: [f32; 2]) -> [f32; 2] {
        let [a, b, c, d, e, f, g, h] = self.0;
        let far = g * u + h * v + 1.0;
        [(a * u + b * v + c) / far, (d * u + e * v + f) / far]
    }
}

/// The colour at a position.
fn at(from: &Pixels, beyond: Beyond, (x, y): (f32, f32)) -> [u8; 3] {
    let (left, top) = (x.floor(), y.floor());
    let (right_share, lower_share) = (x - left, y - top);
    // The casts map NaN to 0 and saturate.
    let (left, top) = (left as i32, top as i32);
    let pixel = |right: i32, down: i32| {
        pixel(from, beyond, (left.saturating_add(right), top.saturating_add(down)))
    };
    let (upper, lower) = ([pixel(0, 0), pixel(1, 0)], [pixel(0, 1), pixel(1, 1)]);
    [0, 1, 2].map(|channel| {
        let mix = |[left, right]: [[f32; 3]; 2]| {
            left[channel] + (right[channel] - left[channel]) * right_share
        };
        let (upper, lower) = (mix(upper), mix(lower));
        // Between 0 and 255.
        (upper + (lower - upper) * lower_share).round() as u8
    })
}

fn pixel(from: &Pixels, beyond: Beyond, (x, y): (i32, i32)) -> [f32; 3] {
    let side = |length: u32| i32::try_from(length).unwrap_or(i32::MAX) - 1;
    let inside = |value: i32, length: u32| match beyond {
        Beyond::Edge => usize::try_from(value.clamp(0, side(length))).ok(),
        Beyond::Black => usize::try_from(value).ok().filter(|_| value <= side(length)),
    };
    let colour = || {
        let (x, y) = (inside(x, from.width())?, inside(y, from.height())?);
        let start = y.checked_mul(usize::try_from(from.width()).ok()?)?.checked_add(x)?;
        let [red, green, blue] = *from.data().get(start.checked_mul(3)?..)?.first_chunk()?;
        Some([red, green, blue].map(f32::from))
    };
    colour().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_projection_has_its_corners_and_keeps_lines_straight() {
        let square = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]];
        for corners in [
            [[2.0, 3.0], [12.0, 3.0], [12.0, 8.0], [2.0, 8.0]],
            [[0.0, 5.0], [4.0, 0.0], [9.0, 4.0], [5.0, 9.0]],
            [[1.0, 1.0], [9.0, 2.0], [7.0, 8.0], [0.0, 6.0]],
        ] {
            let projection = Projection::from_square(corners);
            for (from, to) in square.into_iter().zip(corners) {
                let given = projection.apply(from);
                assert!((given[0] - to[0]).hypot(given[1] - to[1]) < 1e-4, "{given:?} {to:?}");
            }
            let [[ax, ay], [bx, by], [cx, cy]] =
                [[0.1, 0.9], [0.4, 0.6], [0.8, 0.2]].map(|place| projection.apply(place));
            assert!(((bx - ax) * (cy - ay) - (by - ay) * (cx - ax)).abs() < 1e-3);
        }
    }

    #[test]
    fn places_between_pixels_are_mixed_and_those_beyond_are_what_is_asked_for() {
        let data = vec![0, 10, 20, 100, 30, 20, 200, 50, 20, 100, 70, 20];
        let square = Pixels::new(2, 2, Channels::Rgb, data).expect("they fit");
        for (place, beyond, expected) in [
            ((0.0, 0.0), Beyond::Edge, [0, 10, 20]),
            ((0.5, 0.5), Beyond::Edge, [100, 40, 20]),
            ((0.25, 0.0), Beyond::Black, [25, 15, 20]),
            ((1.5, 1.0), Beyond::Edge, [100, 70, 20]),
            ((1.5, 1.0), Beyond::Black, [50, 35, 10]),
            ((-1.0, 0.0), Beyond::Black, [0, 0, 0]),
            ((-9.0, 0.0), Beyond::Edge, [0, 10, 20]),
            ((f32::NAN, f32::INFINITY), Beyond::Black, [0, 0, 0]),
            ((1e30, -1e30), Beyond::Black, [0, 0, 0]),
        ] {
            assert_eq!(at(&square, beyond, place), expected, "{place:?} {beyond:?}");
        }
    }
}
