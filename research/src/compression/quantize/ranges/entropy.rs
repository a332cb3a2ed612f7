//! The threshold of least Kullback–Leibler divergence. "8-bit Inference with TensorRT" (2017).

/// The share of a quantised bin that is empty where the distribution is not.
const EMPTY: f64 = 1e-9;

/// The number of bins of |x| to keep, at least `levels`: the first i bins, with all later values
/// added to the last of them, are compared with the first i bins merged into `levels` of equal
/// size, whose values are spread over those bins that have any.
pub(super) fn threshold(counts: &[u64], levels: usize) -> usize {
    let total: f64 = counts.iter().map(|&c| c as f64).sum();
    let last = counts.iter().rposition(|&c| c > 0).map_or(0, |i| i + 1);
    let mut best = (f64::INFINITY, last);
    let mut kept: f64 = counts.iter().take(levels).map(|&c| c as f64).sum();
    for i in levels..=last {
        if i > levels {
            kept += counts[i - 1] as f64;
        }
        if kept > 0.0 {
            let divergence = divergence(&counts[..i], levels, total - kept, total, kept);
            if divergence < best.0 {
                best = (divergence, i);
            }
        }
    }
    best.1
}

/// Σ p·ln(p/q) over the kept bins.
fn divergence(counts: &[u64], levels: usize, outliers: f64, total: f64, kept: f64) -> f64 {
    let n = counts.len();
    let mut sum = 0f64;
    for level in 0..levels {
        let (start, end) = (level * n / levels, (level + 1) * n / levels);
        let part = &counts[start..end];
        let used = part.iter().filter(|&&c| c > 0).count();
        let merged: f64 = part.iter().map(|&c| c as f64).sum();
        for (i, &count) in part.iter().enumerate() {
            let extra = if start + i + 1 == n { outliers } else { 0.0 };
            let p = (count as f64 + extra) / total;
            if p > 0.0 {
                let q = if count > 0 { merged / used as f64 / kept } else { EMPTY };
                sum += p * (p / q).ln();
            }
        }
    }
    sum
}
