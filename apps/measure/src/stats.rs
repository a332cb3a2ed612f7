//! Compares two sets of measurements: an interval for the ratio of the two, without assumptions about the
//! distribution of times. This file uses the standard library alone, because `xtask`, which depends on no crate of
//! the workspace, compiles it too.

/// The direction in which a quantity improves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes.
    Lower,
    /// Rates, shares of successes.
    Higher,
    /// For comparison only: no change is a regression.
    Neither,
}

/// The ratio of new values to old ones, with its 95 % confidence interval: 1 is no change, 2 is twice as much.
/// Infinite where old values are 0 and new ones are not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of all ratios of a new value to an old one.
    pub estimate: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// What an interval shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval lies on the good side of 1.
    Better,
    /// The whole interval lies on the bad side of 1.
    Worse,
    /// 1 lies in the interval, or neither direction is an improvement.
    NoDifferenceShown,
}

/// The confidence level of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// The fewest values on either side that have an interval at this level. With four on each side, all new values are
/// larger by chance in one of 70 cases.
pub const VALUES_MIN: usize = 4;
/// Larger sets are thinned to every n-th value. The interval of 500 values on either side is narrower than the
/// difference between two runs.
const VALUES_MAX: usize = 500;
/// Up to this many pairs, chances are counted exactly; above, they follow a normal distribution.
const COUNTED_MAX: usize = 1_600;
/// 97.5 % of a normal distribution lie below this many standard deviations.
const DEVIATIONS: f64 = 1.959_964;

/// The ratio of `new` values to `old` ones, none of them negative: the estimator of Hodges and Lehmann
/// (1963) on ratios, with the interval that belongs to the test of Mann and Whitney (Moses, 1965;
/// Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*, 3rd ed., 4.3). It holds for
/// values that are independent of each other and differ between old and new by a factor alone.
///
/// `None` if either side has fewer than [`VALUES_MIN`] values, or a value is negative or not finite.
///
/// ```
/// use lgp_measure::stats::ratio;
/// let (old, new) = ([10., 11., 10., 12., 11.], [20., 22., 21., 24., 20.]);
/// let ratio = ratio(&old, &new).expect("five values each");
/// assert!(ratio.low > 1.6 && ratio.high < 2.5);
/// assert_eq!(lgp_measure::stats::ratio(&old[..3], &new), None);
/// ```
#[must_use]
pub fn ratio(old: &[f64], new: &[f64]) -> Option<Ratio> {
    let (old, new) = (thinned(old), thinned(new));
    let good = |values: &[f64]| values.iter().all(|value| value.is_finite() && *value >= 0.);
    if old.len() < VALUES_MIN || new.len() < VALUES_MIN || !good(&old) || !good(&new) {
        return None;
    }
    let pairs = new.iter().flat_map(|new| old.iter().map(|old| quotient(*new, *old)));
    let mut ratios: Vec<f64> = pairs.collect();
    ratios.sort_by(f64::total_cmp);
    let outside = outside(old.len(), new.len());
    let low = ratios.get(outside).copied()?;
    let high = ratios.get(ratios.len().checked_sub(outside + 1)?).copied()?;
    Some(Ratio { estimate: median(&ratios)?, low, high })
}

/// A ratio of 0 to 0 counts as no change.
fn quotient(new: f64, old: f64) -> f64 {
    if new == 0. && old == 0. { 1. } else { new / old }
}

/// All values in their order, or every n-th of them.
fn thinned(values: &[f64]) -> Vec<f64> {
    let step = values.len().div_ceil(VALUES_MAX).max(1);
    values.iter().step_by(step).copied().collect()
}

/// How many ratios lie outside the interval at each end, such that both ends together miss the true ratio in at most
/// 5 % of all cases.
fn outside(old: usize, new: usize) -> usize {
    let tail = (1. - CONFIDENCE) / 2.;
    if old * new > COUNTED_MAX {
        let (n, m) = (old as f64, new as f64);
        let deviation = (n * m * (n + m + 1.) / 12.).sqrt();
        return (n * m / 2. - DEVIATIONS * deviation - 0.5).max(0.) as usize;
    }
    let mut sum = 0.;
    let below = chances(old, new).into_iter().take_while(|chance| {
        sum += chance;
        sum <= tail
    });
    // At most `k` reversed pairs mean that the true ratio lies below the ratio with `k` before it.
    below.count().saturating_sub(1)
}

/// The chance of each number of reversed pairs, from 0 on, between two sets of the same distribution.
fn chances(old: usize, new: usize) -> Vec<f64> {
    // Recursion on the largest of all values, which is a new or an old one. Rows are counts of new values.
    let mut row: Vec<Vec<f64>> = vec![vec![1.]; old + 1];
    for i in 1..=new {
        let mut next: Vec<Vec<f64>> = vec![vec![1.]];
        for j in 1..=old {
            let is_new = i as f64 / (i + j) as f64;
            let mut chances = vec![0.; i * j + 1];
            for (pairs, chance) in row[j].iter().enumerate() {
                chances[pairs + j] += is_new * chance;
            }
            for (pairs, chance) in next[j - 1].iter().enumerate() {
                chances[pairs] += (1. - is_new) * chance;
            }
            next.push(chances);
        }
        row = next;
    }
    row.pop().unwrap_or_default()
}

impl Ratio {
    /// The verdict of the interval for a quantity.
    #[must_use]
    pub fn verdict(self, better: Better) -> Verdict {
        let (is_more, is_less) = (self.low > 1., self.high < 1.);
        match better {
            Better::Lower if is_more => Verdict::Worse,
            Better::Lower if is_less => Verdict::Better,
            Better::Higher if is_more => Verdict::Better,
            Better::Higher if is_less => Verdict::Worse,
            _ => Verdict::NoDifferenceShown,
        }
    }

    /// Whether the whole interval is worse by more than `tolerance`, a share such as 0.05.
    #[must_use]
    pub fn is_regression(self, better: Better, tolerance: f64) -> bool {
        match better {
            Better::Lower => self.low > 1. + tolerance,
            Better::Higher => self.high < 1. - tolerance,
            Better::Neither => false,
        }
    }
}

/// The median of sorted values; for an even count, the mean of the middle two.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2).copied()?;
    let lower = sorted.get((sorted.len() - 1) / 2).copied()?;
    Some(if lower.to_bits() == upper.to_bits() { upper } else { lower.midpoint(upper) })
}

/// The nearest-rank percentile of sorted values: the smallest value that at least `percent` % of all values do not
/// exceed; 0 for an empty slice.
///
/// ```
/// assert_eq!(lgp_measure::stats::percentile(&[1., 2., 3., 4.], 50), 2.);
/// ```
#[must_use]
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.)
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
