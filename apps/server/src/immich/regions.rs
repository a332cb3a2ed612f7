//! Locates text: turns a probability map of a differentiable-binarization network into rectangles, which may be
//! rotated.

/// Map pixels above this probability belong to text.
const PROBABILITY_MIN: f32 = 0.3;
/// Networks mark a text's core. A rectangle grows by this factor times its area over its circumference.
const GROWTH: f64 = 1.6;
/// The least shorter side of a rectangle before it grows, in map pixels.
const SIDE_MIN: f64 = 3.0;
/// The most regions of an image; a page of text has some hundred lines.
const REGIONS_MAX: usize = 1000;
/// Texts whose upper corners differ in height by less than this are on one line, in pixels.
const LINE: f32 = 10.0;

/// The probabilities of the map's pixels, row by row.
pub(super) struct Map<'a> {
    pub(super) values: &'a [f32],
    pub(super) width: usize,
    pub(super) height: usize,
}

/// A text region in pixels of the image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Region {
    /// Upper left, upper right, lower right, lower left.
    pub(super) corners: [[f32; 2]; 4],
    /// The mean probability in the region before it grew.
    pub(super) score: f32,
}

/// The text regions of at least `score_min` in an image of this size, line by line.
pub(super) fn regions(map: &Map<'_>, (width, height): (u32, u32), score_min: f32) -> Vec<Region> {
    let (width, height) = (f64::from(width), f64::from(height));
    let scale = [width / map.width as f64, height / map.height as f64];
    let mut found = Vec::new();
    for outline in map.outlines() {
        let Some(rectangle) = Rectangle::around(&hull(outline)) else { continue };
        if rectangle.shorter() < SIDE_MIN {
            continue;
        }
        let score = map.mean_in(&rectangle);
        let grown = rectangle.grown();
        if score < score_min || grown.shorter() < SIDE_MIN + 2.0 {
            continue;
        }
        let corner = |[x, y]: [f64; 2]| {
            let inside = |value: f64, side: f64| value.round_ties_even().clamp(0.0, side - 1.0);
            // Exact, because these are whole numbers below 2^24.
            [inside(x * scale[0], width) as f32, inside(y * scale[1], height) as f32]
        };
        let corners = in_order(grown.corners().map(corner));
        let [start, right, _, below] = corners;
        if distance(start, right) >= 4.0 && distance(start, below) >= 4.0 {
            found.push(Region { corners, score });
        }
    }
    by_lines(&mut found);
    found
}

pub(super) fn distance([x, y]: [f32; 2], [u, v]: [f32; 2]) -> f32 {
    (x - u).hypot(y - v)
}

/// Orders the corners clockwise from the upper left.
fn in_order(mut corners: [[f32; 2]; 4]) -> [[f32; 2]; 4] {
    corners.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let [a, b, c, d] = corners;
    let by_height = |a: [f32; 2], b: [f32; 2]| if a[1] > b[1] { (b, a) } else { (a, b) };
    let ((upper_left, lower_left), (upper_right, lower_right)) = (by_height(a, b), by_height(c, d));
    [upper_left, upper_right, lower_right, lower_left]
}

/// Sorts from top to bottom, and from left to right within a line.
fn by_lines(all: &mut [Region]) {
    let start = |region: &Region| region.corners[0];
    all.sort_by(|a, b| {
        let ([ax, ay], [bx, by]) = (start(a), start(b));
        ay.total_cmp(&by).then(ax.total_cmp(&bx))
    });
    for end in 1..all.len() {
        for at in (1..=end).rev() {
            let ([left, upper], [right, lower]) = (start(&all[at - 1]), start(&all[at]));
            if (lower - upper).abs() >= LINE || right >= left {
                break;
            }
            all.swap(at - 1, at);
        }
    }
}

impl Map<'_> {
    /// The first and the last pixel in each row of every connected component.
    fn outlines(&self) -> Vec<Vec<[i32; 2]>> {
        let mut open = self.marked();
        let mut all = Vec::new();
        let mut waiting = Vec::new();
        for start in 0..open.len() {
            if !open[start] {
                continue;
            }
            if all.len() == REGIONS_MAX {
                break;
            }
            // The scan meets a component's highest row first.
            let first_row = start / self.width;
            let mut rows: Vec<[usize; 2]> = Vec::new();
            open[start] = false;
            waiting.push(start);
            while let Some(place) = waiting.pop() {
                let (x, y) = (place % self.width, place / self.width);
                let row = y - first_row;
                if rows.len() <= row {
                    rows.resize(row + 1, [usize::MAX, 0]);
                }
                rows[row] = [rows[row][0].min(x), rows[row][1].max(x)];
                for y in y.saturating_sub(1)..(y + 2).min(self.height) {
                    for x in x.saturating_sub(1)..(x + 2).min(self.width) {
                        let next = y * self.width + x;
                        if std::mem::take(&mut open[next]) {
                            waiting.push(next);
                        }
                    }
                }
            }
            let point =
                |x: usize, y: usize| [x, y].map(|value| i32::try_from(value).unwrap_or(i32::MAX));
            let ends = rows.iter().enumerate().flat_map(|(row, &[first, last])| {
                [point(first, first_row + row), point(last, first_row + row)]
            });
            all.push(ends.collect());
        }
        all
    }

    /// Marks text pixels, with the pixels to the right of them and below.
    fn marked(&self) -> Vec<bool> {
        let mut marked = vec![false; self.width * self.height];
        for (place, &value) in self.values.iter().enumerate().take(self.width * self.height) {
            if value <= PROBABILITY_MIN {
                continue;
            }
            let (x, y) = (place % self.width, place / self.width);
            for y in y..(y + 2).min(self.height) {
                for x in x..(x + 2).min(self.width) {
                    marked[y * self.width + x] = true;
                }
            }
        }
        marked
    }

    /// The mean probability within a rectangle.
    fn mean_in(&self, rectangle: &Rectangle) -> f32 {
        let corners = rectangle.corners();
        let span = |axis: usize, length: usize| {
            let values = corners.map(|corner| corner[axis]);
            let least = values.into_iter().fold(f64::INFINITY, f64::min).floor().max(0.0);
            let most = values.into_iter().fold(0.0, f64::max).ceil();
            // Clamped to the map, whose sides are far below 2^32.
            (least as usize)..(most as usize + 1).min(length)
        };
        let (mut sum, mut count) = (0.0, 0_u32);
        for y in span(1, self.height) {
            for x in span(0, self.width) {
                if rectangle.has([x as f64, y as f64]) {
                    sum += self.values.get(y * self.width + x).copied().map_or(0.0, f64::from);
                    count += 1;
                }
            }
        }
        (sum / f64::from(count.max(1))) as f32
    }
}

/// The corners of the convex hull of points, by Andrew's monotone chain.
fn hull(mut points: Vec<[i32; 2]>) -> Vec<[f64; 2]> {
    points.sort_unstable();
    points.dedup();
    let turn = |a: [i32; 2], b: [i32; 2], c: [i32; 2]| {
        let [[ax, ay], [bx, by], [cx, cy]] = [a, b, c].map(|point| point.map(i64::from));
        (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
    };
    let half = |points: &mut dyn Iterator<Item = [i32; 2]>| {
        let mut chain: Vec<[i32; 2]> = Vec::new();
        for point in points {
            while let [.., a, b] = chain[..]
                && turn(a, b, point) <= 0
            {
                chain.pop();
            }
            chain.push(point);
        }
        // The last point is the first of the other half.
        chain.pop();
        chain
    };
    let mut all = half(&mut points.iter().copied());
    all.extend(half(&mut points.iter().rev().copied()));
    all.into_iter().map(|point| point.map(f64::from)).collect()
}

/// A rectangle by its centre, the direction of its first side, and the lengths of both sides.
#[derive(Debug, Clone, Copy)]
struct Rectangle {
    middle: [f64; 2],
    along: [f64; 2],
    sides: [f64; 2],
}

impl Rectangle {
    /// The smallest rectangle around a convex polygon: one of its sides lies on a side of the polygon.
    fn around(figure: &[[f64; 2]]) -> Option<Self> {
        let ends = figure.iter().skip(1).chain(figure.first());
        let all = figure.iter().zip(ends).filter_map(|(&[x, y], &[u, v])| {
            let length = (u - x).hypot(v - y);
            let along = [(u - x) / length, (v - y) / length];
            (length > 0.0).then(|| Self::along(along, figure))
        });
        let area = |rectangle: &Self| rectangle.sides[0] * rectangle.sides[1];
        all.min_by(|a, b| area(a).total_cmp(&area(b)))
    }

    fn along(along: [f64; 2], figure: &[[f64; 2]]) -> Self {
        let across = [-along[1], along[0]];
        let [first, second] = [along, across].map(|axis| {
            let places = figure.iter().map(|[x, y]| x * axis[0] + y * axis[1]);
            places.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, most], place| {
                [least.min(place), most.max(place)]
            })
        });
        let [along_middle, across_middle] =
            [first, second].map(|[least, most]| f64::midpoint(least, most));
        let middle = [0, 1].map(|i| along[i] * along_middle + across[i] * across_middle);
        Self { middle, along, sides: [first, second].map(|[least, most]| most - least) }
    }

    fn shorter(&self) -> f64 {
        self.sides[0].min(self.sides[1])
    }

    fn grown(&self) -> Self {
        let [long, wide] = self.sides;
        let growth = long * wide * GROWTH / (long + wide);
        Self { sides: [long + growth, wide + growth], ..*self }
    }

    fn corners(&self) -> [[f64; 2]; 4] {
        let [u, v] = self.along;
        let [long, wide] = self.sides.map(|side| side / 2.0);
        [[-long, -wide], [long, -wide], [long, wide], [-long, wide]]
            .map(|[x, y]| [self.middle[0] + u * x - v * y, self.middle[1] + v * x + u * y])
    }

    fn has(&self, [x, y]: [f64; 2]) -> bool {
        /// Sides run through pixel centres, so the test needs a tolerance.
        const ROUNDING: f64 = 1e-6;
        let [x, y] = [x - self.middle[0], y - self.middle[1]];
        let [u, v] = self.along;
        let places = [x * u + y * v, y * u - x * v];
        places.into_iter().zip(self.sides).all(|(at, side)| at.abs() <= side / 2.0 + ROUNDING)
    }
}

#[cfg(test)]
mod tests;
