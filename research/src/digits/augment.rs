//! Small random shifts, turns and stretches of images, so that few images train as many would.

use super::data::{PIXELS, SIDE};
use rand::{Rng, RngExt};

/// How far an image may be moved, turned and stretched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Jitter {
    /// The largest shift in pixels, along each axis and either way.
    pub(super) shift: f32,
    /// The largest turn in radians, either way.
    pub(super) turn: f32,
    /// The largest relative stretch along each axis, either way.
    pub(super) stretch: f32,
}

/// An affine map from the pixels of the new image to positions in the old one.
#[derive(Debug, Clone, Copy)]
struct Affine {
    matrix: [f32; 4],
    offset: [f32; 2],
}

impl Jitter {
    /// Appends a moved copy of `image` (row-major, `PIXELS` values) to `out`.
    pub(super) fn apply(&self, image: &[f32], rng: &mut impl Rng, out: &mut Vec<f32>) {
        let mut within = |limit: f32| limit * (2.0 * rng.random::<f32>() - 1.0);
        let (sin, cos) = within(self.turn).sin_cos();
        let (tall, wide) = (1.0 + within(self.stretch), 1.0 + within(self.stretch));
        let affine = Affine {
            matrix: [cos * tall, -sin * wide, sin * tall, cos * wide],
            offset: [within(self.shift), within(self.shift)],
        };
        affine.sample(image, out);
    }
}

impl Affine {
    /// Appends the new image to `out`, by bilinear interpolation. Outside the old image is paper.
    fn sample(&self, image: &[f32], out: &mut Vec<f32>) {
        let middle = (SIDE as f32 - 1.0) / 2.0;
        for at in 0..PIXELS {
            let (y, x) = ((at / SIDE) as f32 - middle, (at % SIDE) as f32 - middle);
            let [a, b, c, d] = self.matrix;
            let from_y = a * y + b * x + middle + self.offset[0];
            let from_x = c * y + d * x + middle + self.offset[1];
            let (top, left) = (from_y.floor(), from_x.floor());
            let (down, right) = (from_y - top, from_x - left);
            let pixel = |dy: f32, dx: f32| at_or_paper(image, top + dy, left + dx);
            let above = pixel(0.0, 0.0) * (1.0 - right) + pixel(0.0, 1.0) * right;
            let below = pixel(1.0, 0.0) * (1.0 - right) + pixel(1.0, 1.0) * right;
            out.push(above * (1.0 - down) + below * down);
        }
    }
}

fn at_or_paper(image: &[f32], y: f32, x: f32) -> f32 {
    let inside = 0.0..SIDE as f32;
    if !inside.contains(&y) || !inside.contains(&x) {
        return 0.0;
    }
    // Both are whole numbers within the image, so the casts are exact.
    image.get(y as usize * SIDE + x as usize).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::StdRng};

    fn ramp() -> Vec<f32> {
        (0..PIXELS).map(|i| i as f32).collect()
    }

    #[test]
    fn no_jitter_changes_nothing() {
        let mut out = Vec::new();
        let still = Jitter { shift: 0.0, turn: 0.0, stretch: 0.0 };
        still.apply(&ramp(), &mut StdRng::seed_from_u64(1), &mut out);
        assert_eq!(out, ramp());
    }

    #[test]
    fn a_whole_shift_moves_rows_and_leaves_paper() {
        let mut out = Vec::new();
        let affine = Affine { matrix: [1.0, 0.0, 0.0, 1.0], offset: [1.0, 0.0] };
        affine.sample(&ramp(), &mut out);
        assert_eq!(out[..PIXELS - SIDE], ramp()[SIDE..]);
        assert_eq!(out[PIXELS - SIDE..], [0.0; SIDE]);
    }

    #[test]
    fn a_quarter_turn_is_a_rotation() {
        let mut out = Vec::new();
        let affine = Affine { matrix: [0.0, -1.0, 1.0, 0.0], offset: [0.0, 0.0] };
        affine.sample(&ramp(), &mut out);
        // The pixel (7, 0) moves to (0, 0).
        assert_eq!(out[0], (7 * SIDE) as f32);
    }

    #[test]
    fn the_same_seed_moves_alike() {
        let jitter = Jitter { shift: 1.0, turn: 0.2, stretch: 0.1 };
        let run = |seed| {
            let mut out = Vec::new();
            jitter.apply(&ramp(), &mut StdRng::seed_from_u64(seed), &mut out);
            out
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}
