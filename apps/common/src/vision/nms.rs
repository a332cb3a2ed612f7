//! Non-maximum suppression: keeps the highest-scored of overlapping boxes.

/// A box by two corners, `x1 <= x2` and `y1 <= y2`; no pixel is added to its sides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PixelBox {
    /// Left side.
    pub x1: f32,
    /// Upper side.
    pub y1: f32,
    /// Right side.
    pub x2: f32,
    /// Lower side.
    pub y2: f32,
    /// The model's score.
    pub score: f32,
    /// The class index.
    pub class: u32,
}

/// Options of the suppression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NmsOptions {
    /// Boxes of one class with a larger intersection over union are duplicates.
    pub iou_max: f32,
    /// Boxes with a lower score are dropped first.
    pub score_min: f32,
    /// The most boxes that are kept.
    pub boxes_max: usize,
}

/// The indices of the kept boxes, by falling score; of equal scores the earlier one first. A box
/// suppresses only boxes of its own class. Boxes with a corner that is not finite are dropped. The
/// time is proportional to `boxes.len() × boxes_max`.
#[must_use]
pub fn nms(boxes: &[PixelBox], options: &NmsOptions) -> Vec<usize> {
    let usable = |b: &PixelBox| {
        b.score >= options.score_min && [b.x1, b.y1, b.x2, b.y2].iter().all(|v| v.is_finite())
    };
    let mut order: Vec<(usize, &PixelBox)> =
        boxes.iter().enumerate().filter(|(_, b)| usable(b)).collect();
    order.sort_by(|(_, a), (_, b)| b.score.total_cmp(&a.score));
    let mut kept: Vec<(usize, &PixelBox)> = Vec::new();
    for (index, candidate) in order {
        if kept.len() >= options.boxes_max {
            break;
        }
        let covered = kept.iter().any(|(_, other)| {
            other.class == candidate.class && iou(other, candidate) > options.iou_max
        });
        if !covered {
            kept.push((index, candidate));
        }
    }
    kept.into_iter().map(|(index, _)| index).collect()
}

/// Intersection over union; 0 if both boxes have no area.
fn iou(a: &PixelBox, b: &PixelBox) -> f32 {
    let area = |b: &PixelBox| (b.x2 - b.x1).max(0.0) * (b.y2 - b.y1).max(0.0);
    let width = (a.x2.min(b.x2) - a.x1.max(b.x1)).max(0.0);
    let height = (a.y2.min(b.y2) - a.y1.max(b.y1)).max(0.0);
    let union = area(a) + area(b) - width * height;
    if union > 0.0 { width * height / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x1: f32, x2: f32, score: f32, class: u32) -> PixelBox {
        PixelBox { x1, y1: 0.0, x2, y2: 10.0, score, class }
    }

    #[test]
    fn cases_worked_by_hand() {
        // The first and second overlap by 8 of 12: 2/3. The third stands apart.
        let boxes = [
            at(0.0, 10.0, 0.8, 0),
            at(2.0, 12.0, 0.9, 0),
            at(20.0, 30.0, 0.8, 0),
            at(2.0, 12.0, 0.5, 1),
            at(2.0, f32::NAN, 0.99, 0),
            at(40.0, 40.0, 0.1, 0),
            at(50.0, f32::INFINITY, 0.99, 0),
        ];
        let options = |iou_max, score_min, boxes_max| NmsOptions { iou_max, score_min, boxes_max };
        for (options, expected) in [
            (options(0.5, 0.0, 9), vec![1, 2, 3, 5]),
            (options(0.7, 0.0, 9), vec![1, 0, 2, 3, 5]),
            (options(0.5, 0.6, 9), vec![1, 2]),
            (options(0.5, 0.0, 1), vec![1]),
            (options(0.5, 0.0, 0), vec![]),
        ] {
            assert_eq!(nms(&boxes, &options), expected, "{options:?}");
        }
    }
}
