//! Aligns a face to the positions that the face recognition network expects.

/// The side of a face's image in pixels.
pub(super) const SIDE: u32 = 112;

/// Eyes, nose and corners of the mouth in ArcFace's training images.
const TEMPLATE: [[f32; 2]; 5] = [
    [38.2946, 51.6963],
    [73.5318, 51.5014],
    [56.0252, 71.7366],
    [41.5493, 92.3655],
    [70.7299, 92.2041],
];

/// A similarity transform: (x, y) becomes (a·x − b·y + dx, b·x + a·y + dy).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Similarity {
    a: f64,
    b: f64,
    dx: f64,
    dy: f64,
}

impl Similarity {
    pub(super) fn apply(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let (x, y) = (f64::from(x), f64::from(y));
        // f32 is precise enough for pixels.
        [self.a * x - self.b * y + self.dx, self.b * x + self.a * y + self.dy].map(|v| v as f32)
    }

    pub(super) fn inverse(&self) -> Option<Self> {
        let Self { a, b, dx, dy } = *self;
        let square = a * a + b * b;
        let (a, b) = (a / square, -b / square);
        let back = Self { a, b, dx: -(a * dx - b * dy), dy: -(b * dx + a * dy) };
        back.is_finite().then_some(back)
    }

    fn is_finite(&self) -> bool {
        [self.a, self.b, self.dx, self.dy].iter().all(|value| value.is_finite())
    }
}

/// The transform that fits a face's points to the template with the least sum of squared distances: Umeyama's
/// method, which in the plane is a regression with complex numbers. `None` if the points define no direction.
pub(super) fn to_template(points: &[[f32; 2]; 5]) -> Option<Similarity> {
    let (from, to) = (centred(points), centred(&TEMPLATE));
    let (mut a, mut b, mut spread) = (0.0, 0.0, 0.0);
    for ([x, y], [u, v]) in from.points.into_iter().zip(to.points) {
        a += x * u + y * v;
        b += x * v - y * u;
        spread += x * x + y * y;
    }
    let (a, b) = (a / spread, b / spread);
    let [x, y] = from.middle;
    let found =
        Similarity { a, b, dx: to.middle[0] - (a * x - b * y), dy: to.middle[1] - (b * x + a * y) };
    (found.is_finite() && found.inverse().is_some()).then_some(found)
}

struct Centred {
    middle: [f64; 2],
    points: [[f64; 2]; 5],
}

fn centred(points: &[[f32; 2]; 5]) -> Centred {
    let points = points.map(|point| point.map(f64::from));
    let middle = [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / 5.0);
    Centred { middle, points: points.map(|[x, y]| [x - middle[0], y - middle[1]]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_face_comes_back_upright() {
        // Rotated by 90°, three times as large, and moved.
        let turned = TEMPLATE.map(|[x, y]| [100.0 - 3.0 * y, 7.0 + 3.0 * x]);
        let found = to_template(&turned).expect("it is a face");
        for (from, to) in turned.into_iter().zip(TEMPLATE) {
            let given = found.apply(from);
            assert!(
                (given[0] - to[0]).abs() < 1e-3 && (given[1] - to[1]).abs() < 1e-3,
                "{given:?}"
            );
            let back = found.inverse().expect("it has one").apply(to);
            assert!((back[0] - from[0]).abs() < 1e-3 && (back[1] - from[1]).abs() < 1e-3);
        }
    }

    #[test]
    fn what_fits_the_template_badly_is_nearest() {
        let odd = [[10.0, 10.0], [40.0, 12.0], [20.0, 30.0], [14.0, 50.0], [44.0, 41.0]];
        let Similarity { a, b, dx, dy } = to_template(&odd).expect("it is a face");
        let error = |found: Similarity| -> f32 {
            let far = |(from, to): ([f32; 2], [f32; 2])| {
                let [x, y] = found.apply(from);
                (x - to[0]).powi(2) + (y - to[1]).powi(2)
            };
            odd.into_iter().zip(TEMPLATE).map(far).sum()
        };
        let least = error(Similarity { a, b, dx, dy });
        for [more_a, more_b, right, down] in [
            [0.01, 0.0, 0.0, 0.0],
            [0.0, 0.01, 0.0, 0.0],
            [0.0, 0.0, 0.5, 0.0],
            [0.0, 0.0, 0.0, 0.5],
        ] {
            for sign in [1.0, -1.0] {
                let (a, b) = (a + sign * more_a, b + sign * more_b);
                let other = Similarity { a, b, dx: dx + sign * right, dy: dy + sign * down };
                assert!(error(other) > least, "{other:?}");
            }
        }
    }

    #[test]
    fn points_without_a_direction_are_no_face() {
        for points in [[[5.0, 5.0]; 5], [[f32::NAN; 2]; 5], [[f32::INFINITY, 0.0]; 5]] {
            assert_eq!(to_template(&points), None, "{points:?}");
        }
    }
}
