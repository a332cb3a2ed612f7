//! Which channels of each group go, given their importance and a ratio.

use crate::compression::sparse::lowest;
use crate::error::{Error, Result};

/// How many channels go, and from where.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelChoice {
    /// The fraction of channels that go, in [0, 1).
    pub pruning_ratio: f64,
    /// Each group keeps a multiple of this many channels, 1 or more, unless it loses none.
    pub round_to: usize,
    /// Whether the ratio is that of all groups together, which then compare their importance.
    /// Otherwise it is that of each group.
    pub global_pruning: bool,
}

/// Returns the channels to remove of each group, ascending, from each group's `importance`.
///
/// The least important go; of equal ones the later. The kept count is rounded up to a multiple of
/// `round_to`, so no group loses more than asked, and each keeps at least one multiple. A global
/// choice takes from the other groups what a group at that floor cannot give.
///
/// # Errors
/// Returns an error if a setting is not allowed, a group is empty, or an importance is not finite.
pub fn choose_channels(importance: &[Vec<f64>], choice: &ChannelChoice) -> Result<Vec<Vec<usize>>> {
    let ChannelChoice { pruning_ratio, round_to, global_pruning } = *choice;
    if !(0.0..1.0).contains(&pruning_ratio) {
        return Err(setting("pruning_ratio", pruning_ratio, "0 or more and below 1"));
    }
    if round_to == 0 {
        return Err(setting("round_to", 0, "1 or more"));
    }
    for (group, scores) in importance.iter().enumerate() {
        if scores.is_empty() {
            return Err(refuse(format!("group {group} is empty, expected channels")));
        }
        if let Some(score) = scores.iter().find(|score| !score.is_finite()) {
            return Err(refuse(format!("group {group} has importance {score}, expected finite")));
        }
    }
    let share = |channels: usize| (channels as f64 * pruning_ratio).round() as usize;
    let removed = if global_pruning {
        let total = importance.iter().map(Vec::len).sum();
        global_counts(importance, share(total), round_to)
    } else {
        importance.iter().map(|scores| share(scores.len())).collect()
    };
    let pairs = importance.iter().zip(removed);
    Ok(pairs
        .map(|(scores, removed)| {
            let kept = (scores.len() - removed).max(1).next_multiple_of(round_to).min(scores.len());
            let mut channels = lowest(scores, scores.len() - kept);
            channels.sort_unstable();
            channels
        })
        .collect())
}

/// Returns how many channels of each group are among the `count` least important of all, where no
/// group goes below `round_to` channels.
fn global_counts(importance: &[Vec<f64>], count: usize, round_to: usize) -> Vec<usize> {
    let mut order: Vec<(f64, usize)> = importance
        .iter()
        .enumerate()
        .flat_map(|(group, scores)| scores.iter().map(move |score| (*score, group)))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut removed = vec![0; importance.len()];
    let mut left = count;
    for (_, group) in order {
        if left > 0 && importance[group].len() - removed[group] > round_to {
            removed[group] += 1;
            left -= 1;
        }
    }
    removed
}

fn setting(name: &'static str, value: impl ToString, expected: &'static str) -> Error {
    Error::Setting { name, value: value.to_string(), expected }
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "choose channels", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        importance: &[Vec<f64>],
        ratio: f64,
        round_to: usize,
        global: bool,
    ) -> Vec<Vec<usize>> {
        let choice = ChannelChoice { pruning_ratio: ratio, round_to, global_pruning: global };
        choose_channels(importance, &choice).unwrap()
    }

    /// The kept count of one group, by its channels, the ratio and the multiple.
    #[test]
    fn kept_counts_round_up_to_multiples() {
        let cases = [
            (64, 0.5, 1, 32),
            (64, 0.55, 8, 32),
            (30, 0.5, 8, 16),
            (30, 0.1, 8, 30),
            (10, 0.99, 1, 1),
            (10, 0.99, 4, 4),
            (3, 0.9, 8, 3),
            (10, 0.7, 1, 3),
            (10, 0.0, 4, 10),
        ];
        for (channels, ratio, round_to, kept) in cases {
            let scores: Vec<f64> = (0..channels).map(|c| f64::from((c * 7) % 31)).collect();
            for global in [false, true] {
                let removed = choose(std::slice::from_ref(&scores), ratio, round_to, global);
                assert_eq!(scores.len() - removed[0].len(), kept, "{channels} {ratio} {round_to}");
                let lost = removed[0].iter().map(|c| scores[*c]).fold(f64::MIN, f64::max);
                let stays = (0..scores.len()).filter(|c| !removed[0].contains(c));
                assert!(stays.map(|c| scores[c]).all(|score| score >= lost));
                assert!(removed[0].is_sorted());
            }
        }
    }

    #[test]
    fn global_pruning_compares_groups_and_empties_none() {
        let importance = [vec![0.1, 0.2, 0.3, 0.4], vec![9.0, 7.0, 8.0, 6.0]];
        assert_eq!(choose(&importance, 0.5, 1, false), [vec![0, 1], vec![1, 3]]);
        assert_eq!(choose(&importance, 0.25, 1, true), [vec![0, 1], vec![]]);
        // The first group stops at one channel, or at two, and the second gives the rest.
        assert_eq!(choose(&importance, 0.5, 1, true), [vec![0, 1, 2], vec![3]]);
        assert_eq!(choose(&importance, 0.5, 2, true), [vec![0, 1], vec![1, 3]]);
        assert_eq!(choose(&importance, 0.99, 1, true), [vec![0, 1, 2], vec![1, 2, 3]]);
    }

    /// Torch-Pruning's ResNet-18 at ratio 0.5: parameters 11,689,512 → 3,055,880.
    #[test]
    fn resnet18_parameters() {
        // Widths are of the four stages, whose residual sums tie their blocks, and of the first
        // convolutions of the eight blocks.
        let full: Vec<usize> = [64, 128, 256, 512].into_iter().flat_map(|w| [w, w, w]).collect();
        let parameters = |widths: &[usize]| {
            let mut total = 3 * 49 * widths[0] + 2 * widths[0];
            let mut inputs = widths[0];
            for (stage, widths) in widths.chunks(3).enumerate() {
                let width = widths[0];
                for (block, inner) in widths[1..].iter().enumerate() {
                    total += 9 * inputs * inner + 2 * inner + 9 * inner * width + 2 * width;
                    if stage > 0 && block == 0 {
                        total += inputs * width + 2 * width;
                    }
                    inputs = width;
                }
            }
            total + inputs * 1000 + 1000
        };
        assert_eq!(parameters(&full), 11_689_512);
        let importance: Vec<Vec<f64>> =
            full.iter().map(|w| (0..*w).map(|c| c as f64).collect()).collect();
        let removed = choose(&importance, 0.5, 8, false);
        let kept: Vec<usize> = full.iter().zip(&removed).map(|(w, gone)| w - gone.len()).collect();
        assert_eq!(parameters(&kept), 3_055_880);
    }

    #[test]
    fn bad_settings_are_errors() {
        let good = ChannelChoice { pruning_ratio: 0.5, round_to: 1, global_pruning: false };
        let fails = |importance: &[Vec<f64>], choice| choose_channels(importance, &choice).is_err();
        assert!(fails(&[vec![1.0]], ChannelChoice { pruning_ratio: 1.0, ..good }));
        assert!(fails(&[vec![1.0]], ChannelChoice { pruning_ratio: f64::NAN, ..good }));
        assert!(fails(&[vec![1.0]], ChannelChoice { round_to: 0, ..good }));
        assert!(fails(&[vec![]], good));
        assert!(fails(&[vec![f64::NAN]], good));
        assert!(choose_channels(&[], &good).unwrap().is_empty());
    }
}
