//! Whether one set of measurements differs from another: an interval for the ratio of two, without
//! assumptions about how times are distributed. It needs the standard library alone, so that
//! `xtask`, which knows no crate of the workspace, compiles this same file.

/// Which way a measured quantity should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes.
    Lower,
    /// Rates, shares of what went well.
    Higher,
    /// For comparison only: it is nobody's regression.
    Neither,
}

/// The ratio of new values to old ones, with the interval in which it lies with a confidence of
/// 95 %: 1 is no change, 2 is twice as much. Infinite where old values are 0 and new ones are not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The middle of all ratios of a new value to an old one.
    pub estimate: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

/// What an interval shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval lies on the good side of 1.
    Better,
    /// The whole interval lies on the bad side of 1.
    Worse,
    /// 1 lies in the interval, or nobody says which side is good.
    NoDifferenceShown,
}

/// The confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;
/// The fewest values on either side that have an interval of that confidence: of two times four, all
/// new ones are larger by chance in one of 70 cases.
pub const VALUES_MIN: usize = 4;
/// More values than this are thinned, every so many-th kept: the interval of 500 on either side is
/// narrower than a run differs from the next.
const VALUES_MAX: usize = 500;
/// Up to so many pairs, chances are counted; beyond, they are those of a normal distribution.
const COUNTED_MAX: usize = 1_600;
/// Of a normal distribution, 97.5 % lie below so many standard deviations.
const DEVIATIONS: f64 = 1.959_964;

/// The ratio of `new` values to `old` ones, none of them negative: the estimator of Hodges and Lehmann
/// (1963) on ratios, with the interval that belongs to the test of Mann and Whitney (Moses, 1965;
/// Hollander, Wolfe and Chicken, *Nonparametric Statistical Methods*, 3rd ed., 4.3). It holds for
/// values that are independent of each other and differ between old and new by a factor alone.
///
/// `None` with fewer than [`VALUES_MIN`] values on either side, or where one is negative or no number.
///
/// ```
/// use lgp_sdk::stats::ratio;
/// let (old, new) = ([10., 11., 10., 12., 11.], [20., 22., 21., 24., 20.]);
/// let ratio = ratio(&old, &new).expect("five values each");
/// assert!(ratio.low > 1.6 && ratio.high < 2.5);
/// assert_eq!(lgp_sdk::stats::ratio(&old[..3], &new), None);
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

/// Nothing to nothing is no change.
fn quotient(new: f64, old: f64) -> f64 {
    if new == 0. && old == 0. { 1. } else { new / old }
}

/// The values in their order, or evenly chosen ones.
fn thinned(values: &[f64]) -> Vec<f64> {
    let step = values.len().div_ceil(VALUES_MAX).max(1);
    values.iter().step_by(step).copied().collect()
}

/// How many ratios lie outside the interval at either end: with as many, both ends together leave
/// out the truth in 5 % of all cases at most.
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
    // The truth is below the ratio with `k` before it when at most `k` pairs are the wrong way round.
    below.count().saturating_sub(1)
}

/// The chance of each number of pairs that are the wrong way round, from 0 on, between two sets of
/// values that do not differ.
fn chances(old: usize, new: usize) -> Vec<f64> {
    // By the largest of all values, which is a new one or an old one; rows are numbers of new ones.
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
    /// What the interval shows of a quantity.
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

/// The middle of values that are sorted; of an even number, the mean of the two in the middle.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = sorted.get(sorted.len() / 2).copied()?;
    let lower = sorted.get((sorted.len() - 1) / 2).copied()?;
    Some(if lower.to_bits() == upper.to_bits() { upper } else { lower.midpoint(upper) })
}

/// The nearest-rank percentile of values that are sorted: the smallest that is not less than
/// `percent` % of all; 0 of none.
///
/// ```
/// assert_eq!(lgp_sdk::stats::percentile(&[1., 2., 3., 4.], 50), 2.);
/// ```
#[must_use]
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.)
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
