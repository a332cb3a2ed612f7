//! Finds the classes with the highest scores.

/// Scores as probabilities that sum to 1. The largest is subtracted first, so that none overflows.
#[must_use]
pub fn softmax(scores: &[f32]) -> Vec<f32> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// The indices of the `k` highest scores with their scores, highest first. Of equal scores the
/// lower index comes first; NaN comes last.
#[must_use]
pub fn top_k(scores: &[f32], k: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<(usize, f32)> = scores.iter().copied().enumerate().collect();
    all.sort_by(|(_, a), (_, b)| {
        let number = |score: &f32| !score.is_nan();
        number(b).cmp(&number(a)).then(b.partial_cmp(a).unwrap_or(std::cmp::Ordering::Equal))
    });
    all.truncate(k);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_come_first() {
        let scores = [0.1, f32::NAN, 0.7, 0.1, f32::NEG_INFINITY];
        let order = |k| top_k(&scores, k).iter().map(|(index, _)| *index).collect::<Vec<_>>();
        for (k, expected) in
            [(0, vec![]), (1, vec![2]), (3, vec![2, 0, 3]), (9, vec![2, 0, 3, 4, 1])]
        {
            assert_eq!(order(k), expected, "{k}");
        }
    }

    #[test]
    fn softmax_sums_to_one_and_does_not_overflow() {
        let half = softmax(&[1000.0, 1000.0]);
        assert_eq!(half, [0.5, 0.5]);
        let known = softmax(&[0.0, 3.0_f32.ln()]);
        assert!((known[0] - 0.25).abs() < 1e-6 && (known[1] - 0.75).abs() < 1e-6, "{known:?}");
        assert!(softmax(&[]).is_empty());
    }
}
