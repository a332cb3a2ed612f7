//! A histogram of a stream of values whose range is not known in advance.

use super::{Range, RangeMethod, entropy, mse};
use crate::error::{Error, Result};

/// Bins of a histogram.
const BINS: usize = 2048;

/// Counts of values in 2048 bins of one width, half of them below 0.
///
/// When a value lies outside, the width doubles and each two neighbouring bins become one. The least
/// and the largest value are kept exactly.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    /// 0 until the first value other than 0.
    width: f64,
    min: f32,
    max: f32,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BINS], width: 0.0, min: 0.0, max: 0.0, total: 0 }
    }
}

impl Histogram {
    /// Adds values.
    ///
    /// # Errors
    /// Fails if a value is not finite; the values before it are counted.
    pub fn add(&mut self, values: &[f32]) -> Result<()> {
        for &value in values {
            if !value.is_finite() {
                return Err(refuse(format!("value {value}, expected finite values")));
            }
            if self.width == 0.0 && value != 0.0 {
                self.width = f64::from(value.abs()) / (BINS / 2 - 1) as f64;
                let zeros = std::mem::take(&mut self.counts[0]);
                self.counts[BINS / 2] = zeros;
            }
            let bin = self.make_room(value);
            self.counts[bin] += 1;
            (self.min, self.max) = match self.total {
                0 => (value, value),
                _ => (self.min.min(value), self.max.max(value)),
            };
            self.total += 1;
        }
        Ok(())
    }

    /// The bin of a finite value, after doubling the width until there is one.
    fn make_room(&mut self, value: f32) -> usize {
        if self.width == 0.0 {
            // Zeros gather in the first bin while there is no width.
            return 0;
        }
        let half = (BINS / 2) as f64;
        loop {
            let bin = (f64::from(value) / self.width).floor() + half;
            if (0.0..BINS as f64).contains(&bin) {
                return bin as usize;
            }
            self.width *= 2.0;
            // Bin i covers [i − half, i + 1 − half) widths, which halves to bin (i + half) / 2.
            let old = std::mem::replace(&mut self.counts, vec![0; BINS]);
            for (i, count) in old.into_iter().enumerate() {
                self.counts[(i + BINS / 2) / 2] += count;
            }
        }
    }

    /// The number of values.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The least and the largest value; 0 and 0 without values.
    pub fn extent(&self) -> (f32, f32) {
        (self.min, self.max)
    }

    /// The range that a method chooses for codes of `bits` bits, which need not lie on 0; where the
    /// zero point is in the middle, `symmetric` asks for a range from −t to t.
    ///
    /// # Errors
    /// Fails without values, if `bits` is not in 2..=8, or for a percentile outside (50, 100].
    pub fn range(&self, method: RangeMethod, bits: u8, symmetric: bool) -> Result<Range> {
        if self.total == 0 {
            return Err(refuse("no values, expected at least one".into()));
        }
        if !(2..=8).contains(&bits) {
            let (value, expected) = (bits.to_string(), "2 to 8");
            return Err(Error::Setting { name: "bits", value, expected });
        }
        let (low, high) = (self.min.min(0.0), self.max.max(0.0));
        let largest = high.max(-low);
        // A method's magnitude t, within the values.
        let within = |t: f64| {
            let t = (t as f32).min(largest);
            if symmetric { Range::new(-t, t) } else { Range::new(low.max(-t), high.min(t)) }
        };
        match method {
            RangeMethod::MinMax => within(f64::from(largest)),
            RangeMethod::Percentile(p) if p > 50.0 && p <= 100.0 => {
                if symmetric {
                    return within(quantile(&self.magnitudes(), p / 100.0) * self.width);
                }
                let end =
                    |p: f64| (quantile(&self.counts, p / 100.0) - (BINS / 2) as f64) * self.width;
                let (least, most) = (end(100.0 - p) as f32, end(p) as f32);
                Range::new(least.max(self.min).min(0.0), most.min(self.max).max(0.0))
            }
            RangeMethod::Percentile(p) => {
                let (value, expected) = (p.to_string(), "above 50, at most 100");
                Err(Error::Setting { name: "percentile", value, expected })
            }
            RangeMethod::Entropy => {
                let levels = 1usize << (bits - 1);
                within(entropy::threshold(&self.magnitudes(), levels) as f64 * self.width)
            }
            RangeMethod::Mse => {
                let levels = 1usize << bits;
                let (least, most) = mse::range(&self.centres(), levels, [low, high], symmetric);
                Range::new(least, most)
            }
        }
    }

    /// Counts of |x| in bins of the same width.
    fn magnitudes(&self) -> Vec<u64> {
        let half = BINS / 2;
        (0..half).map(|i| self.counts[half + i] + self.counts[half - 1 - i]).collect()
    }

    /// The middle of each bin with values, and their number.
    fn centres(&self) -> Vec<(f64, f64)> {
        let middle = |i: usize| (i as f64 + 0.5 - (BINS / 2) as f64) * self.width;
        let bins = self.counts.iter().enumerate().filter(|&(_, &count)| count > 0);
        bins.map(|(i, &count)| (middle(i), count as f64)).collect()
    }
}

/// The place in bins below which a share of the values lies, values spread evenly over their bin.
fn quantile(counts: &[u64], share: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let wanted = share * total as f64;
    let mut below = 0f64;
    for (i, &count) in counts.iter().enumerate() {
        let count = count as f64;
        if count > 0.0 && below + count >= wanted {
            return i as f64 + ((wanted - below) / count).max(0.0);
        }
        below += count;
    }
    counts.len() as f64
}

fn refuse(message: String) -> Error {
    Error::Compression { method: "choose a range", message }
}

#[cfg(test)]
mod tests;
