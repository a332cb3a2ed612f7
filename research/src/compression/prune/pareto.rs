//! NSGA-II's ranking of points with two objectives, both to be minimised, and the hypervolume.
//!
//! Source: "A fast and elitist multiobjective genetic algorithm: NSGA-II", Deb et al. 2002.

use std::cmp::Ordering;

/// Whether `a` is no worse than `b` in both objectives and better in one.
#[must_use]
pub fn dominates(a: [f64; 2], b: [f64; 2]) -> bool {
    a[0] <= b[0] && a[1] <= b[1] && (a[0] < b[0] || a[1] < b[1])
}

/// Returns the points' indices by front: none of the first is dominated, and each later front is
/// dominated by the ones before it only (section III-A).
#[must_use]
pub fn non_dominated_sort(points: &[[f64; 2]]) -> Vec<Vec<usize>> {
    let mut dominated: Vec<Vec<usize>> = vec![Vec::new(); points.len()];
    let mut dominators = vec![0_usize; points.len()];
    for (i, a) in points.iter().enumerate() {
        for (j, b) in points.iter().enumerate() {
            if dominates(*a, *b) {
                dominated[i].push(j);
                dominators[j] += 1;
            }
        }
    }
    let mut front: Vec<usize> = (0..points.len()).filter(|i| dominators[*i] == 0).collect();
    let mut fronts = Vec::new();
    while !front.is_empty() {
        let mut next = Vec::new();
        for j in front.iter().flat_map(|i| &dominated[*i]) {
            dominators[*j] -= 1;
            if dominators[*j] == 0 {
                next.push(*j);
            }
        }
        next.sort_unstable();
        fronts.push(std::mem::replace(&mut front, next));
    }
    fronts
}

/// Returns each point's distance between its neighbours in a front, summed over the objectives'
/// ranges; infinite at the ends (section III-B).
#[must_use]
pub fn crowding_distance(front: &[[f64; 2]]) -> Vec<f64> {
    let mut distances = vec![0.0; front.len()];
    for objective in 0..2 {
        let value = |index: usize| front[index][objective];
        let mut order: Vec<usize> = (0..front.len()).collect();
        order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
        let (Some(first), Some(last)) = (order.first().copied(), order.last().copied()) else {
            continue;
        };
        let range = value(last) - value(first);
        if range > 0.0 {
            for three in order.windows(3) {
                distances[three[1]] += (value(three[2]) - value(three[0])) / range;
            }
        }
        distances[first] = f64::INFINITY;
        distances[last] = f64::INFINITY;
    }
    distances
}

/// The area that the points dominate up to `reference`; points beyond it have no part ("Multiobjective
/// Optimization Using Evolutionary Algorithms", Zitzler & Thiele 1998).
#[must_use]
pub fn hypervolume(points: &[[f64; 2]], reference: [f64; 2]) -> f64 {
    let mut inside: Vec<[f64; 2]> =
        points.iter().copied().filter(|p| p[0] < reference[0] && p[1] < reference[1]).collect();
    inside.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    let (mut area, mut floor) = (0.0, reference[1]);
    for [first, second] in inside {
        if second < floor {
            area += (reference[0] - first) * (floor - second);
            floor = second;
        }
    }
    area
}

/// Orders by front, then by the larger crowding distance (the crowded-comparison operator).
pub(super) fn crowded_order(a: (usize, f64), b: (usize, f64)) -> Ordering {
    a.0.cmp(&b.0).then(b.1.total_cmp(&a.1))
}

/// Returns each point's front, from 0, and its crowding distance there.
pub(super) fn rank(points: &[[f64; 2]]) -> Vec<(usize, f64)> {
    let mut ranks = vec![(0, 0.0); points.len()];
    for (index, front) in non_dominated_sort(points).into_iter().enumerate() {
        let values: Vec<[f64; 2]> = front.iter().map(|i| points[*i]).collect();
        for (i, distance) in front.into_iter().zip(crowding_distance(&values)) {
            ranks[i] = (index, distance);
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    /// Fronts by their definition: peel off again and again what no remaining point dominates.
    #[test]
    fn the_sort_equals_brute_force() {
        let mut rng = StdRng::seed_from_u64(1);
        for count in [0, 1, 2, 30, 120] {
            // A coarse grid gives ties and equal points.
            let points: Vec<[f64; 2]> =
                (0..count).map(|_| [0; 2].map(|_| f64::from(rng.random_range(0..15)))).collect();
            let mut rest: Vec<usize> = (0..count).collect();
            let mut expected = Vec::new();
            while !rest.is_empty() {
                let (front, later): (Vec<usize>, Vec<usize>) = rest
                    .iter()
                    .partition(|i| !rest.iter().any(|j| dominates(points[*j], points[**i])));
                expected.push(front);
                rest = later;
            }
            assert_eq!(non_dominated_sort(&points), expected);
        }
    }

    #[test]
    fn crowding_by_hand() {
        let front = [[0.0, 10.0], [4.0, 0.0], [1.0, 5.0], [3.0, 4.0]];
        // (3 − 0)/4 + (10 − 4)/10, and (4 − 1)/4 + (5 − 0)/10.
        let expected = [f64::INFINITY, f64::INFINITY, 1.35, 1.25];
        assert_eq!(crowding_distance(&front), expected);
        assert_eq!(crowding_distance(&[[1.0, 2.0]; 2]), [f64::INFINITY; 2]);
        assert!(crowding_distance(&[]).is_empty());
    }

    /// ZDT1's front is f₂ = 1 − √f₁, whose hypervolume to (1, 1) is ∫ √f₁ = 2/3 in the limit.
    #[test]
    fn hypervolume_of_zdt1_is_two_thirds() {
        let front = |n: u32| -> Vec<[f64; 2]> {
            (0..=n).map(|i| f64::from(i) / f64::from(n)).map(|f| [f, 1.0 - f.sqrt()]).collect()
        };
        let errors = [100, 10_000].map(|n| 2.0 / 3.0 - hypervolume(&front(n), [1.0, 1.0]));
        println!("2/3 - hypervolume at 100 and 10,000 points: {errors:?}");
        assert!(errors[0] > errors[1] && errors[1] > 0.0 && errors[1] < 1e-4, "{errors:?}");
    }

    #[test]
    fn hypervolume_by_hand() {
        let points = [[1.0, 3.0], [2.0, 1.0], [2.5, 2.0], [9.0, 0.0], [1.0, 3.0]];
        // 3·1 and 2·2; the third is dominated, the fourth beyond, the last a copy.
        assert_eq!(hypervolume(&points, [4.0, 4.0]), 3.0 * 1.0 + 2.0 * 2.0);
        assert_eq!(hypervolume(&[], [1.0, 1.0]), 0.0);
    }
}
